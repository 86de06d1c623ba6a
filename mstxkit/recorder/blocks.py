"""Blocks as the sealer and adoption write them: a bank's records, the ranges still open, and how a process ended."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping

from ..engine.choose import engine
from ..store import block_index, livefile, records, segment, text_columns
from ..store.block_index import Indexed

# A scaled duration is exact to this many ticks.
_SCALE_TICKS = 1 << records.SCALE_SHIFT


def of_records(view: livefile.Buffer, content: segment.Content, seq: int, origin: int) -> Indexed:
    """A records block. Cost: the compression, which releases the GIL.
    `view`: the live file that the bank is in, for identity, counters and clock. `content`: what was encoded of the
    bank. `seq`: the bank's sequence number. `origin`: the bank's origin, in ticks.
    """
    (codec, packed), reach = segment.compress_stream(content.stream), content.extent
    # Keys of the stages that any of its ranges is in; None: in a stage that has no name here, or in none.
    keys = livefile.read_texts(content.texts, None)[0].stages if any(reach.stages) else {}
    stages = [keys.get(stage) for stage in reach.stages] if any(reach.stages) else [None] * bool(content.n)
    meta = {
        **describe_process(view), "bank": seq, "origin": origin, "records": content.n, "attributes": content.m,
        "text_bytes": content.text_bytes, "codec": codec,
        "extent": [origin + reach.first, origin + reach.last, reach.first_step, reach.last_step],
        "stages": stages,
    }  # fmt: skip
    return block_index.make_block(segment.RECORDS, meta, packed, content.n)


def encode_texts(texts: bytes) -> bytes:
    """Those of a bank as they are stored: many of them as columns."""
    columns = engine.text_columns(texts) if len(texts) >= text_columns.FROM_BYTES else None
    return text_columns.seal_texts(texts, columns)


def of_left_banks(view: livefile.Buffer, layout: livefile.Layout, sealed: Mapping[int, int] = {}) -> Iterator[Indexed]:
    """A block of every bank in a live file that nobody writes any more, oldest first. `sealed`: sequence number of each
    bank that is on disk already, with its records and attributes.
    """
    for bank in banks_in_order(view, layout):
        before = sealed.get(bank.seq, 0)
        if len(bank.raw) // records.RECORD_BYTES > before:
            texts, planes, attributes, n, m, extent = engine.encode_left(bank.raw, bank.text, bank.salt)
            if n and n + m > before:
                stored = encode_texts(texts)
                stream = b"".join((stored, planes, attributes))
                content = segment.Content(stream, texts, len(stored), n, m, segment.Extent(*extent))
                yield of_records(view, content, bank.seq, bank.origin)


def of_open_ranges(view: livefile.Buffer) -> Indexed | None:
    """What the process is inside of, as a block; None when nothing is open."""
    header = livefile.read_header(view)
    texts = livefile.Texts({}, {}, {}, {})  # of all banks: ids of sites and stages hold for the life of a process
    for bank in banks_in_order(view, header.layout):
        of_bank, _ = livefile.read_texts(bank.text, bank.salt)
        texts.sites.update(of_bank.sites)
        texts.stages.update(of_bank.stages)
    slots = livefile.read_slots(view, header)
    ended = _find_ended(view, header.layout, slots)
    ranges = [_describe_slot(slot, texts) for slot in slots if slot not in ended]
    if not ranges:
        return None
    codec, content = segment.compress_stream(json.dumps(ranges).encode())
    return block_index.make_block(segment.OPEN_RANGES, {**describe_process(view), "codec": codec}, content)


def of_end(view: livefile.Buffer, ended: str, **more: Any) -> Indexed:
    """The last block of a process.
    `ended`: `exit`, `left` (it became another program), or `killed` (it is gone without a word). `more`: `error`, the
    exception that ended its program; `gone_ns`, when it was seen to be gone, CLOCK_MONOTONIC, `watched`, was that at
    the moment itself, and `by`, by which process of the run; `fatal` and `signal`, by which it was ended. None: nothing
    is known.
    """
    meta = {**describe_process(view), "ended": ended, "status": livefile.read_exit_status(view), **more}
    return block_index.make_block(segment.END, {name: value for name, value in meta.items() if value is not None})


def describe_process(view: livefile.Buffer) -> dict[str, Any]:
    """The meta that every block has: identity, counters, clock, last heartbeat."""
    header = livefile.read_header(view)
    anchors = [list(anchor) for anchor in livefile.read_anchors(view)]
    return {
        "identity": livefile.read_identity(view),
        "counters": livefile.read_counters(view),
        "clock": {"kind": header.clock, "ticks_per_ns": header.ticks_per_ns, "anchors": anchors},
        "heartbeat_ns": livefile.heartbeat_ns(view),
    }


def banks_in_order(view: livefile.Buffer, layout: livefile.Layout) -> list[livefile.BankCopy]:
    """All banks in use, oldest first."""
    banks = (livefile.read_bank(view, layout, index) for index in range(layout.bank_count))
    return sorted((bank for bank in banks if bank is not None), key=lambda bank: bank.seq)


def _find_ended(view: livefile.Buffer, layout: livefile.Layout, slots: list[livefile.Slot]) -> set[livefile.Slot]:
    """Slots whose record is there too: a kill between record and slot must not show a range twice."""
    by_words: dict[int, list[livefile.Slot]] = {}
    for slot in slots:
        by_words.setdefault(slot.site | slot.track << 16 | slot.step << 32, []).append(slot)
    return {
        slot
        for bank in (banks_in_order(view, layout) if slots else ())
        for w0, w1, w2 in records.WORDS.iter_unpack(bank.raw)
        for slot in by_words.get(w1, ())
        if _is_record_of(slot, bank.origin, records.unpack_record(w0, w1, w2))
    }


def _is_record_of(slot: livefile.Slot, origin: int, record: records.Record) -> bool:
    late = origin + record.end - record.duration - slot.start
    return record.kind == records.RANGE and 0 <= late < (_SCALE_TICKS if record.duration > records.DURATION_MAX else 1)


def _describe_slot(slot: livefile.Slot, texts: livefile.Texts) -> dict[str, Any]:
    site = texts.sites.get(slot.site, livefile.SiteText("?", "default", 0))
    return {
        "name": site.name, "domain": site.domain, "stage": texts.stages.get(slot.stage),
        "own_stage": bool(site.own_stage), "step": slot.step, "track": slot.track, "depth": slot.depth,
        "start": slot.start, "tid": slot.thread,
    }  # fmt: skip
