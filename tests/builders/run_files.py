"""Runs for reader tests, written with the package's own encoders and no engine: sealed files, live files, pointers."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

from builders import packing

from mstxkit.host import identity
from mstxkit.store import block_index, livefile, records, segment
from mstxkit.store.block_index import Indexed
from mstxkit.store.livefile import Anchor, Slot
from mstxkit.store.records import NO_STEP

__all__ = ["NO_STEP", "Anchor", "BankFiles", "ProcessFiles", "Slot", "alive", "anchor", "new_run"]

MONOTONIC, TSC, FAKE = 1, 2, 4
RUN_ID = "0123456789abcdef0123456789abcdef"
# CLOCK_MONOTONIC ns to wall clock ns of every process made here, unless its anchors say otherwise.
WALL_OFFSET_NS = 1_700_000_000_000_000_000


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def started_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def anchor(ticks: int, monotonic_ns: int | None = None, error_ns: int = 0, offset_ns: int = WALL_OFFSET_NS) -> Anchor:
    monotonic_ns = ticks if monotonic_ns is None else monotonic_ns
    return Anchor(ticks, monotonic_ns, monotonic_ns + offset_ns, error_ns)


class BankFiles:
    """The contents of one bank. Times in ticks; a range is (name, start, end)."""

    def __init__(self, seq: int = 1, origin: int = 0, salt: int = 0x1234_5678_9ABC_DEF0) -> None:
        self.seq, self.origin, self.salt = seq, origin, salt
        self.raw, self.text = b"", b""
        self._ids: dict[Any, int] = {}

    def range(
        self, name: str, start: int, end: int, *, stage: str | None = None, own: bool = False, domain: str = "default",
        step: int | None = None, track: int = 0, depth: int = 0, error: bool = False, busy: int | None = None,
        **attributes: Any,
    ) -> BankFiles:  # fmt: skip
        self._record(records.RANGE, name, end, end - start, stage, own, domain, step, track, depth, error)
        for key, value in attributes.items():
            self._attribute(key, value)
        if busy is not None:
            self._append(packing.attribute(busy, 0, records.BUSY, self.salt, self.count))
        return self

    def mark(
        self, message: str, at: int, *, stage: str | None = None, step: int | None = None, track: int = 0,
        depth: int = 0, **attributes: Any,
    ) -> BankFiles:  # fmt: skip
        self._record(records.MARK, message, at, 0, stage, False, "default", step, track, depth, False)
        for key, value in attributes.items():
            self._attribute(key, value)
        return self

    @property
    def count(self) -> int:
        return len(self.raw) // records.RECORD_BYTES

    def site(self, name: str, domain: str = "default", own_stage: int = 0) -> int:
        payload = livefile.site_payload(name.encode("utf-8", "backslashreplace"), domain.encode(), own_stage)
        return self._id(livefile.SITE, payload)

    def stage(self, key: str | None) -> int:
        return 0 if key is None else self._id(livefile.STAGE, key.encode())

    def track(self, track: int, thread: int, is_task: bool = False, name: str = "") -> BankFiles:
        self._define(livefile.TRACK, track, livefile.track_payload(thread, is_task, name))
        return self

    def _record(
        self, kind: int, name: str, end: int, duration: int, stage: str | None, own: bool, domain: str,
        step: int | None, track: int, depth: int, error: bool,
    ) -> None:  # fmt: skip
        stage_id = self.stage(stage)
        site = self.site(name, domain, stage_id if own else 0)
        number = records.NO_STEP if step is None else step
        record = records.Record(end - self.origin, duration, site, stage_id, number, track, depth, error, kind)
        self._append(packing.record(record, self.salt, self.count))

    def _append(self, raw: bytes) -> None:
        self.raw += raw

    def _attribute(self, key: str, value: Any) -> None:
        key_id = self._id(livefile.TEXT, key.encode())
        found = packing.value_bits(value)
        if found is None:
            is_text = isinstance(value, str)
            text = value if is_text else type(value).__name__
            found = (records.TEXT if is_text else records.OTHER), self._id(livefile.TEXT, text.encode())
        self._append(packing.attribute(found[1], key_id, found[0], self.salt, self.count))

    def _id(self, kind: int, payload: bytes) -> int:
        if (kind, payload) not in self._ids:
            self._ids[kind, payload] = 1 + sum(1 for k, _ in self._ids if k == kind)
            self._define(kind, self._ids[kind, payload], payload)
        return self._ids[kind, payload]

    def _define(self, kind: int, entry_id: int, payload: bytes) -> None:
        self.text = livefile.pack_text(kind, entry_id, payload, self.salt) + self.text


class ProcessFiles:
    """The files of one process. Its ticks are ns and its clock is the TSC, unless told otherwise."""

    def __init__(
        self, run: Path, pid: int = 100, *, rank: int | None = 0, host: str = identity.name_host(), start: str = "5eed",
        anchors: tuple[Anchor, ...] = (), clock: int = TSC, ticks_per_ns: float = 1.0, **more: Any,
    ) -> None:  # fmt: skip
        self.run, self.name = run, f"{host}-{pid}-{start}"
        self.anchors = anchors or (anchor(0), anchor(10_000_000_000))
        self.clock, self.ticks_per_ns = clock, ticks_per_ns
        self.counters = dict.fromkeys(livefile.COUNTERS, 0)
        self.heartbeat_ns = 5_000_000_000
        self.identity: dict[str, Any] = {
            "run": RUN_ID, "host": host, "boot": "another boot", "pid": pid, "ppid": 1, "start": start,
            "start_ns": WALL_OFFSET_NS, "pid_start": 1, "pidns": 0, "timens": 0, "rank": rank, "world_size": 2,
            "role": None, "native": False, "python": "3.11.0", "mstxkit": "0.1.0", **more,
        }  # fmt: skip
        self._files = 0

    def meta(self) -> dict[str, Any]:
        clock = {"kind": self.clock, "ticks_per_ns": self.ticks_per_ns, "anchors": [list(a) for a in self.anchors]}
        return {
            "identity": dict(self.identity), "counters": dict(self.counters), "clock": clock,
            "heartbeat_ns": self.heartbeat_ns,
        }  # fmt: skip

    def indexed_block(self, bank: BankFiles) -> Indexed:
        """As the sealer writes it, with what an index says of it."""
        payload = segment.encode_bank(bank.raw, bank.text, bank.salt)
        reach, stages = payload.extent, livefile.read_texts(bank.text, bank.salt)[0].stages
        extent = [bank.origin + reach.first, bank.origin + reach.last, reach.first_step, reach.last_step]
        meta = {
            **self.meta(), "bank": bank.seq, "origin": bank.origin, "records": payload.n, "attributes": payload.m,
            "text_bytes": len(payload.texts), "codec": "zlib", "extent": extent,
            "stages": [stages.get(stage) for stage in reach.stages],
        }  # fmt: skip
        return block_index.make_block(segment.RECORDS, meta, zlib.compress(b"".join(payload[:3])), payload.n)

    def seal_indexed(
        self, *banks: BankFiles, ended: str | None = "exit", index_at: tuple[int, ...] = (),
        inside: list[dict[str, Any]] | None = None,
    ) -> Path:  # fmt: skip
        """One more sealed file as the sealer writes it: its index at its end, or also after so many blocks."""
        blocks = [self.indexed_block(bank) for bank in banks]
        if inside is not None:
            meta = {**self.meta(), "codec": "zlib"}
            blocks.append(block_index.make_block(segment.OPEN_RANGES, meta, zlib.compress(json.dumps(inside).encode())))
        blocks += [block_index.make_block(segment.END, {**self.meta(), "ended": ended})] if ended else []
        path = self.run / "sealed" / f"{self.name}.{self._files:04d}.mxs"
        self._files += 1
        data, growing = segment.file_header(), block_index.Growing()
        for place, block in enumerate(blocks, 1):
            data += block.data
            growing.add(block, len(data))
            index = growing.written() if place in (index_at or (len(blocks),)) else None
            if index is not None:
                data += index.data
                growing.add(index, len(data))
        path.write_bytes(data)
        return path

    def block(self, bank: BankFiles, codec: str = "zlib") -> bytes:
        payload = segment.encode_bank(bank.raw, bank.text, bank.salt)
        stream = b"".join(payload[:3])
        codec, packed = segment.compress_stream(stream) if codec != "zlib" else ("zlib", zlib.compress(stream))
        meta = {
            **self.meta(), "bank": bank.seq, "origin": bank.origin, "records": payload.n,
            "attributes": payload.m, "text_bytes": len(payload.texts), "codec": codec,
        }  # fmt: skip
        return segment.pack_block(segment.RECORDS, meta, packed)

    def open_block(self, ranges: list[dict[str, Any]]) -> bytes:
        meta = {**self.meta(), "codec": "zlib"}
        return segment.pack_block(segment.OPEN_RANGES, meta, zlib.compress(json.dumps(ranges).encode()))

    def end_block(self, ended: str, **more: Any) -> bytes:
        return segment.pack_block(segment.END, {**self.meta(), "ended": ended, **more})

    def seal(
        self,
        *banks: BankFiles,
        ended: str | None = "exit",
        inside: list[dict[str, Any]] | None = None,
        codec: str = "zlib",
        end: dict[str, Any] | None = None,
    ) -> Path:
        """One more sealed file: these banks, then what was open, then the end, of which `end` says more."""
        blocks = [self.block(bank, codec) for bank in banks]
        blocks += [self.open_block(inside)] if inside is not None else []
        blocks += [self.end_block(ended, **(end or {}))] if ended else []
        path = self.run / "sealed" / f"{self.name}.{self._files:04d}.mxs"
        self._files += 1
        path.write_bytes(segment.file_header() + b"".join(blocks))
        return path

    def live(
        self, *banks: BankFiles, slots: tuple[livefile.Slot, ...] = (), state: int = livefile.RECORDING,
        pointer: dict[str, Any] | None = None, bank_bytes: int = 8192,
    ) -> Path:  # fmt: skip
        """A live file as its process left it, and the pointer to it. By default the process is gone."""
        layout = livefile.Layout(max(4, len(slots)), max(2, len(banks)), bank_bytes)
        view = memoryview(bytearray(layout.total_bytes))
        self._lay_out(view, layout, state)
        for place, slot in enumerate(slots):
            w1 = slot.site | slot.track << 16 | slot.step << 32
            w2 = slot.stage | slot.depth << 16 | slot.thread << 32
            words = (slot.start, w1, w2, livefile.slot_mark(slot.start, w1, w2, 77))
            livefile.SLOT.pack_into(view, livefile.HEADER_BYTES + place * livefile.SLOT_BYTES, *words)
        for index, bank in enumerate(banks):
            put_bank(view, layout, index, bank)
        path = self.run.parent / f"{self.name}.live"
        path.write_bytes(view)
        self.point_to(path, **(pointer or {}))
        return path

    def point_to(self, path: Path, **fields: Any) -> Path:
        """The pointer file."""
        pointer = {
            "format": 1, "path": str(path), "run": RUN_ID, "boot": boot_id(), "pid_start": 0,
            "pidns": os.stat("/proc/self/ns/pid").st_ino,
            **{key: self.identity[key] for key in ("host", "pid", "start")}, **fields,
        }  # fmt: skip
        found = self.run / "live" / f"{self.name}.json"
        found.write_text(json.dumps(pointer))
        return found

    def _lay_out(self, view: memoryview, layout: livefile.Layout, state: int) -> None:
        livefile.lay_out(view, layout, 77, False)
        struct.pack_into("<I4xd", view, livefile.CLOCK_AT, self.clock, self.ticks_per_ns)
        struct.pack_into("<Q", view, livefile.HEARTBEAT_AT, self.heartbeat_ns)
        livefile.write_identity(view, self.identity)
        for one in self.anchors:
            livefile.write_anchor(view, one)
        for name, amount in self.counters.items():
            livefile.add_to_counter(view, name, amount)
        livefile.set_state(view, state)


def put_bank(view: memoryview, layout: livefile.Layout, index: int, bank: BankFiles) -> None:
    livefile.activate_bank(view, layout, index, bank.seq, bank.salt, bank.origin, 1)
    at, end = layout.bank_at(index), layout.bank_at(index) + layout.bank_bytes
    first = at + livefile.BANK_HEADER_BYTES
    view[first : first + len(bank.raw)] = bank.raw
    view[end - len(bank.text) : end] = bank.text
    struct.pack_into("<QQ", view, at + 32, bank.count, len(bank.text))


def new_run(path: Path) -> Path:
    """An empty run folder."""
    for name in ("live", "sealed"):
        os.makedirs(path / name)
    (path / "run.json").write_text(json.dumps({"format": 1, "run": RUN_ID, "created_ns": WALL_OFFSET_NS}))
    return path


def alive() -> dict[str, Any]:
    """Pointer fields that say: this very process."""
    return {"pid": os.getpid(), "pid_start": started_ticks(os.getpid())}
