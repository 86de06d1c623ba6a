"""What is known of one process of a run, put together from its blocks and its live file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, NamedTuple

from ..align import Clock, anchor_of
from ..livefile import CLOCKS, COUNTERS, Anchor, Bank, Slot, Texts

RUNNING, EXITED, KILLED, UNKNOWN = "running", "exited", "killed", "unknown"
Key = tuple[str, int, str]


class BlockRef(NamedTuple):
    """Where a block's payload lies, with what its meta says. Offset of the payload and size in bytes."""

    file: str
    offset: int
    size: int
    crc: int
    meta: dict[str, Any]

    @property
    def bank(self) -> int:
        """Sequence number of the bank it was sealed from; 0 if it does not say."""
        return whole_number(self.meta.get("bank"))


@dataclass
class Process:
    """One process: identity, clocks and counters, and where its records are.

    `banks` and `slots` are copies from the live file; `live_path` names it in messages.
    """

    key: Key
    index: int = 0
    identity: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    anchors: set[Anchor] = field(default_factory=set)
    clock_kind: int = 0
    ticks_per_ns: float = 1.0
    heartbeat_ns: int = 0
    state: str = UNKNOWN
    ended: bool = False
    blocks: list[BlockRef] = field(default_factory=list)
    sealed_banks: set[int] = field(default_factory=set)
    open_block: BlockRef | None = None
    banks: list[Bank] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    texts: Texts = field(default_factory=lambda: Texts({}, {}, {}, {}))
    live_path: str = ""
    live_path_gone: bool = False
    offset_ns: int = 0
    _identity_from: float = -1.0
    _clock: Clock | None = None

    @property
    def host(self) -> str:
        """Host name, as the process gave it."""
        return self.key[0]

    @property
    def pid(self) -> int:
        """Process id on its host, in its own namespace."""
        return self.key[1]

    @property
    def name(self) -> str:
        """`<host>-<pid>-<start>`: the name its files begin with."""
        return "-".join(map(str, self.key))

    @property
    def clock(self) -> Clock:
        """Its ticks as CLOCK_MONOTONIC; made at first use, when all anchors are known."""
        if self._clock is None:
            self._clock = Clock(self.anchors, self.clock_kind, self.ticks_per_ns)
        return self._clock

    @property
    def clock_group(self) -> tuple[str, ...]:
        """Processes of one group share CLOCK_MONOTONIC; one that does not say where it runs is a group of its own."""
        boot = text_of(self.identity.get("boot"))
        return (self.host, boot, text_of(self.identity.get("timens"))) if boot else self.name_parts

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The key as texts."""
        return (self.key[0], str(self.key[1]), self.key[2])

    def learn(self, meta: dict[str, Any], order: float) -> None:
        """Take in what a block's meta or a live header says; `order` says which of two identities is later."""
        self._learn_identity(meta.get("identity"), order)
        counters = meta.get("counters")
        for name in COUNTERS:
            value = whole_number(counters.get(name)) if isinstance(counters, dict) else 0
            self.counters[name] = max(self.counters.get(name, 0), value)
        self.heartbeat_ns = max(self.heartbeat_ns, whole_number(meta.get("heartbeat_ns")))
        clock = meta.get("clock")
        if isinstance(clock, dict):
            self._learn_clock(clock)

    def _learn_identity(self, identity: Any, order: float) -> None:
        known = {k: v for k, v in identity.items() if v is not None} if isinstance(identity, dict) else {}
        if order >= self._identity_from:
            self.identity.update(known)
            self._identity_from = order
        else:
            self.identity = {**known, **self.identity}

    def _learn_clock(self, clock: dict[str, Any]) -> None:
        self.clock_kind = whole_number(clock.get("kind")) or self.clock_kind
        rate = clock.get("ticks_per_ns")
        self.ticks_per_ns = float(rate) if isinstance(rate, (int, float)) and rate else self.ticks_per_ns
        anchors = clock.get("anchors")
        found = (anchor_of(fields) for fields in anchors) if isinstance(anchors, list) else ()
        self.anchors.update(anchor for anchor in found if anchor)

    def learn_texts(self, texts: Texts) -> None:
        """Sites, stages and tracks have one number for a process's whole life: keep them for its open slots."""
        self.texts.sites.update(texts.sites)
        self.texts.stages.update(texts.stages)
        self.texts.tracks.update(texts.tracks)


class Processes:
    """All processes of a run, by key, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Process] = {}

    def of(self, identity: Any, file_stem: str) -> Process:
        """The process that an identity, or failing that a file's name, speaks of."""
        key = key_of(identity, file_stem)
        return self._by_key.setdefault(key, Process(key))

    def is_running(self, name: str) -> bool:
        """Is the process whose files begin with `name` known to be alive?"""
        return any(p.state == RUNNING and p.name == name for p in self._by_key.values())

    def ordered(self) -> list[Process]:
        """By rank (those without one last), then host, pid and start; `index` follows this order."""
        found = sorted(self._by_key.values(), key=lambda p: (*_rank_order(p), p.key))
        for index, process in enumerate(found):
            process.index = index
        return found


def _rank_order(process: Process) -> tuple[bool, int]:
    rank = rank_of(process)
    return (rank is None, rank or 0)


def rank_of(process: Process) -> int | None:
    """Its rank, where it ever learnt one."""
    return small_number(process.identity.get("rank"))


def key_of(identity: Any, file_stem: str) -> Key:
    """(host, pid, start) of an identity; what it does not say comes from the name of its file."""
    fields = identity if isinstance(identity, dict) else {}
    host, pid, start = _split(file_stem)
    return (
        text_of(fields.get("host")) or host,
        small_number(fields.get("pid")) or pid,
        text_of(fields.get("start")) or start,
    )


def _split(stem: str) -> tuple[str, int, str]:
    parts = stem.rsplit("-", 2)
    if len(parts) == 3 and parts[1].isascii() and parts[1].isdigit():
        return parts[0], small_number(int(parts[1][:12])) or 0, parts[2]
    return stem, 0, ""


def whole_number(value: Any) -> int:
    """A number from 0 to 2^63 - 1 out of JSON; 0 for anything else."""
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0


def small_number(value: Any) -> int | None:
    """A number from 0 to 2^31 - 1 out of JSON; None for anything else."""
    return int(value) if isinstance(value, int) and 0 <= value < 1 << 31 else None


def text_of(value: Any) -> str:
    """A str or number out of JSON as text that any encoder takes; "" for anything else."""
    if isinstance(value, (str, int)):
        return str(value).encode("utf-8", "backslashreplace").decode()
    return ""


def set_offsets(processes: Iterable[Process]) -> None:
    """Give every process the offset of its group from CLOCK_MONOTONIC to the wall clock."""
    from ..align import wall_offset

    groups: dict[tuple[str, ...], list[Process]] = {}
    for process in processes:
        groups.setdefault(process.clock_group, []).append(process)
    for members in groups.values():
        offset = wall_offset(anchor for process in members for anchor in process.anchors)
        for process in members:
            process.offset_ns = offset


def row_of(process: Process, last_open_ns: int) -> dict[str, Any]:
    """Its row in the table of processes; `last_open_ns`: when it entered the last of its open ranges, 0 for none."""
    anchors = process.clock.anchors
    last_ns = max([process.heartbeat_ns, *(a.monotonic_ns for a in anchors)])
    start_ns = (
        anchors[0].monotonic_ns + process.offset_ns if anchors else whole_number(process.identity.get("start_ns"))
    )
    last_seen_ns = max(last_ns + process.offset_ns if last_ns else 0, last_open_ns, start_ns)
    lived_ns = last_seen_ns - start_ns
    counted = {name: process.counters.get(name, 0) for name in COUNTERS}
    native = process.identity.get("native")
    return {
        "rank": rank_of(process),
        "host": process.host,
        "pid": process.pid,
        "role": role_of(process),
        "world_size": small_number(process.identity.get("world_size")),
        "start_ns": start_ns or None,
        "last_seen_ns": last_seen_ns or None,
        "native": bool(native) if native is not None else None,
        "clock_error_ns": process.clock.error_ns,
        "own_cost_ratio": counted.pop("own_cost_ns") / lived_ns if lived_ns > 0 else None,
        "state": process.state,
        "clock": CLOCKS.get(process.clock_kind),
        "process": process.name,
        **counted,
    }


def role_of(process: Process) -> str | None:
    """Its role, where it ever learnt one."""
    return text_of(process.identity.get("role")) or None
