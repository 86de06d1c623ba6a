"""What is known of one process of a run, put together from its blocks and its live file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Iterable, Mapping, NamedTuple

from ..host import life, parts
from ..store.fate import Liveness
from ..store.livefile import CLOCKS, COUNTERS, Anchor, BankCopy, Slot, Texts
from ..store.records import RECORD_BYTES
from ..store.values import finite_number, group_by, list_of, small_number, step_number, table_of, text_of, whole_number
from .align import Clock, anchor_of, wall_offset

# How a process ended: it said so itself; it went on to another program, or went away in order; it was killed; nobody
# here can tell.
RUNNING, ENDED, LEFT, KILLED, LOST = "running", "ended", "left", "killed", "lost"
# The word of a block that a process ends with, and the state that it means.
ENDINGS = {"exit": ENDED, "killed": KILLED, "left": LEFT}
Key = tuple[str, int, str]
_REPLICA = re.compile(r"replica \d{1,9}")
# From a worker of an engine to its server, over the engine's core.
_DEEP = 8
_ReplicaPlace = tuple[str, str, int, int]


class BlockRef(NamedTuple):
    """Where a block's payload lies, its kind, and what its meta says. Offset of the payload and size in bytes."""

    file: str
    kind: int
    offset: int
    size: int
    crc: int
    meta: Mapping[str, Any]

    @property
    def bank(self) -> int:
        """Sequence number of the bank it was sealed from; 0 if it does not say."""
        return whole_number(self.meta.get("bank"))

    @property
    def generation(self) -> int:
        """How much of its bank it holds, records and attributes: a bank only grows until the next one is begun."""
        return whole_number(self.meta.get("records")) + whole_number(self.meta.get("attributes"))


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
    state: str = LOST
    ended: bool = False
    attempt: int = 0
    error: str | None = None  # the exception that ended its program
    exit_status: int | None = None  # of os._exit
    gone_ns: int = 0  # CLOCK_MONOTONIC, when who sealed it saw that it was gone; 0: it did so itself
    sealed_by: str = ""  # the name of that process of the run
    was_watched: bool = False  # did that one see it at that moment?
    fatal: str = ""  # what it wrote as a signal of its own ended it
    signal: int = 0  # that has ended it, as the kernel said; 0: not known, or none
    was_told: bool = False  # has a watchman told that it was killed?
    blocks: list[BlockRef] = field(default_factory=list)
    sealed_banks: dict[int, int] = field(default_factory=dict)  # sequence number to what is sealed of it
    open_block: BlockRef | None = None
    banks: list[BankCopy] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    texts: Texts = field(default_factory=lambda: Texts({}, {}, {}, {}))
    live_path: str = ""
    live_path_gone: bool = False
    offset_ns: int = 0
    _identity_from: float = -1.0

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
    def is_of_ray(self) -> bool:
        """Is it a worker of a Ray job?"""
        return self.identity.get("under") == parts.RAY

    @cached_property
    def clock(self) -> Clock:
        """Its ticks as CLOCK_MONOTONIC; made at first use, when all anchors are known."""
        return Clock(self.anchors, self.clock_kind, self.ticks_per_ns)

    @property
    def first_step(self) -> tuple[int, int] | None:
        """The first step that it said, and when, ns on the wall clock; None: it said none, or that was not kept yet."""
        import numpy as np

        first = list_of(self.identity.get("first_step"))
        step, ticks = (step_number(first[0]), whole_number(first[1])) if len(first) == 2 else (None, 0)
        at_ns = int(self.clock.to_monotonic(np.array([ticks]))[0]) + self.offset_ns if step is not None else 0
        return None if step is None or not 0 < at_ns < 1 << 62 else (step, at_ns)

    def learn(self, meta: dict[str, Any], order: float) -> None:
        """Take in what a block's meta or a live header says; `order` says which of two identities is later."""
        identity = {name: value for name, value in table_of(meta.get("identity")).items() if value is not None}
        is_newer = order >= self._identity_from
        self.identity = {**self.identity, **identity} if is_newer else {**identity, **self.identity}
        self._identity_from = max(order, self._identity_from)
        counters = table_of(meta.get("counters"))
        for name in COUNTERS:
            self.counters[name] = max(self.counters.get(name, 0), whole_number(counters.get(name)))
        self.heartbeat_ns = max(self.heartbeat_ns, whole_number(meta.get("heartbeat_ns")))
        clock = table_of(meta.get("clock"))
        self.clock_kind = whole_number(clock.get("kind")) or self.clock_kind
        self.ticks_per_ns = finite_number(clock.get("ticks_per_ns")) or self.ticks_per_ns
        self.anchors.update(filter(None, map(anchor_of, list_of(clock.get("anchors")))))

    def learn_end(self, meta: dict[str, Any]) -> None:
        """What the block that it ends with says."""
        self.ended = True
        self.error = text_of(meta.get("error")) or None
        self.exit_status = small_number(meta.get("status"))
        self.learn_death(meta)
        if self.state != RUNNING:  # by its lock: it was adopted by mistake
            self.state = ENDINGS.get(text_of(meta.get("ended")), ENDED)

    def learn_death(self, death: Mapping[str, Any]) -> None:
        """What it, or those who lived on, have left of how and when it was gone."""
        self.gone_ns, self.sealed_by = whole_number(death.get("gone_ns")), text_of(death.get("by"))
        self.was_watched = death.get("watched") is True
        self.fatal, self.signal = text_of(death.get("fatal")), small_number(death.get("signal")) or 0

    def take(self, ref: BlockRef) -> None:
        """A block of records. Of a bank that was sealed twice, by its process and by who adopted it, the later counts:
        it holds all that the earlier one does.
        """
        before = self.sealed_banks.get(ref.bank) if ref.bank else None
        if before is not None and before >= ref.generation:
            return
        if before is not None:
            self.blocks = [block for block in self.blocks if block.bank != ref.bank]
        self.blocks.append(ref)
        self.sealed_banks[ref.bank] = ref.generation

    def unsealed(self) -> list[BankCopy]:
        """Live banks of which the sealed files hold less, or nothing."""
        return [bank for bank in self.banks if len(bank.raw) // RECORD_BYTES > self.sealed_banks.get(bank.seq, -1)]

    def learn_texts(self, texts: Texts) -> None:
        """Sites, stages and tracks have one number for a process's whole life: keep them for its open slots."""
        self.texts.sites.update(texts.sites)
        self.texts.stages.update(texts.stages)
        for track, text in texts.tracks.items():
            self.texts.tracks[track] = text.after(self.texts.tracks.get(track))


class Processes:
    """All processes of a run, by key, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Process] = {}

    def of(self, identity: Any, file_stem: str) -> Process:
        """The process that an identity, or failing that a file's name, speaks of."""
        key = key_of(identity, file_stem)
        return self._by_key.setdefault(key, Process(key))

    def running(self) -> frozenset[str]:
        """Names of those that are known to be alive."""
        return frozenset(process.name for process in self._by_key.values() if process.state == RUNNING)

    def leave_out_other_programs(self, ranks: frozenset[int] | None = None) -> None:
        """Forget what was forked and became another program, or went away, before it recorded anything.
        `ranks`: forget who is of no such rank, too.
        """
        for key, process in list(self._by_key.items()):
            is_of_others = ranks is not None and rank_of(process) not in ranks
            has_recorded = process.blocks or process.slots or process.ended or any(bank.raw for bank in process.banks)
            is_gone_fork = process.state in (LEFT, KILLED) and process.identity.get("parent")
            if is_of_others or (is_gone_fork and not has_recorded):
                del self._by_key[key]

    def ordered(self) -> list[Process]:
        """By rank (those without one last), its own process before those beside it, then host, in the order in which
        they were started; `index` follows this order.
        """

        def place(process: Process) -> tuple[bool, int, bool, str, int, Key]:
            rank, of, key = rank_of(process), process.identity.get, process.key
            return rank is None, rank or 0, of("under") in parts.BESIDE, key[0], whole_number(of("pid_start")), key

        ordered = sorted(self._by_key.values(), key=place)
        for index, process in enumerate(ordered):
            process.index = index
        return ordered


def rank_of(process: Process) -> int | None:
    """Its rank, where it ever learnt one."""
    return small_number(process.identity.get("rank"))


def key_of(identity: Any, file_stem: str) -> Key:
    """(host, pid, start) of an identity; what it does not say comes from the name of its file."""
    fields, parts = table_of(identity), file_stem.rsplit("-", 2)
    is_named = len(parts) == 3 and parts[1].isascii() and parts[1].isdigit()
    host, pid, start = parts if is_named else (file_stem, "0", "")
    whole_pid = small_number(fields.get("pid")) or small_number(int(pid[:12])) or 0
    return text_of(fields.get("host")) or host, whole_pid, text_of(fields.get("start")) or start


def find_living(states: Iterable[tuple[str, int, str]]) -> Liveness:
    """Who of a run still runs: whose files say that it has ended does not, on whatever host; else as this host knows.
    `states`: host, pid and state of each process of the run.
    """
    states = list(states)
    going_on = {(host, pid) for host, pid, state in states if state in (RUNNING, LOST)}
    ended = {(host, pid) for host, pid, _ in states} - going_on

    def is_alive(who: Mapping[str, Any]) -> bool | None:
        is_over = (text_of(who.get("host")), small_number(who.get("pid"))) in ended
        return False if is_over else life.is_alive(dict(who))

    return is_alive


def set_offsets(processes: Iterable[Process], clocks: Callable[[int], Mapping[str, int]]) -> None:
    """Give every process the offset of its group from CLOCK_MONOTONIC, which its members share, to the wall clock.
    `clocks`: called with how many groups there are: the offset, by boot id, of hosts whose own wall clock is wrong.
    """
    groups: dict[tuple[str, ...], list[Process]] = {}
    for process in processes:
        boot, timens = (text_of(process.identity.get(name)) for name in ("boot", "timens"))
        # One that does not say where it runs is a group of its own.
        group = (boot, process.host, timens) if boot else ("", *map(str, process.key))
        groups.setdefault(group, []).append(process)
    put_right = clocks(len(groups))
    for (boot, *_), members in groups.items():
        offset = put_right.get(boot) or wall_offset(anchor for process in members for anchor in process.anchors)
        for process in members:
            process.offset_ns = offset


def find_lifetime(process: Process, last_open_ns: int) -> tuple[int, int]:
    """Its first and its last sign of life, ns on the wall clock; 0 where there is none.
    `last_open_ns`: when it entered the last of its open ranges, 0 for none.
    """
    anchors = process.clock.anchors
    last_ns = max([process.heartbeat_ns, *(a.monotonic_ns for a in anchors)])
    first_ns = anchors[0].monotonic_ns + process.offset_ns if anchors else None
    start_ns = whole_number(process.identity.get("start_ns")) if first_ns is None else first_ns
    return start_ns, max(last_ns + process.offset_ns if last_ns else 0, last_open_ns, start_ns)


def row_of(process: Process, last_open_ns: int, ending: tuple[str, str | None]) -> dict[str, Any]:
    """Its row in the table of processes.
    `last_open_ns`: when it entered the last of its open ranges, 0 for none; `ending`: its state, and how it came to it.
    """
    identity = process.identity
    start_ns, last_seen_ns = find_lifetime(process, last_open_ns)
    lived_ns = last_seen_ns - start_ns
    counted = {name: process.counters.get(name, 0) for name in COUNTERS}
    own_cost_ns, native = counted.pop("own_cost_ns"), identity.get("native")
    own = [f"{name} {version}" for name in ("python", "mstxkit") if (version := text_of(identity.get(name)))]
    versions = ", ".join(filter(None, [*own, text_of(identity.get("versions"))]))
    return {
        "rank": rank_of(process), "host": process.host, "pid": process.pid, "role": role_of(process),
        "part": part_of(process), "place": text_of(identity.get("place")) or None,
        "under": text_of(identity.get("under")) or None,
        "world_size": small_number(identity.get("world_size")),
        "start_ns": start_ns or None, "last_seen_ns": last_seen_ns or None,
        "native": bool(native) if native is not None else None, "clock_error_ns": process.clock.error_ns,
        "own_cost_ratio": own_cost_ns / lived_ns if lived_ns > 0 else None,
        "state": ending[0], "ending": ending[1], "attempt": process.attempt,
        "clock": CLOCKS.get(process.clock_kind), "process": process.name, "versions": versions or None, **counted,
    }  # fmt: skip


def part_of(process: Process) -> str | None:
    """What it is to its rank, where it ever learnt it."""
    return text_of(process.identity.get("part")) or None


def role_of(process: Process) -> str | None:
    """Its role, where it ever learnt one."""
    return text_of(process.identity.get("role")) or None


def settle_replicas(processes: Iterable[Process]) -> None:
    """`replica 0 teacher Worker-1` for what said `replica 0 Worker-1` of itself, and is below `replica 0 teacher`: its
    own variables say the number alone, and replicas of a teacher and of a student have the same numbers.
    """
    processes = list(processes)
    at_place = group_by(processes, lambda process: _place_of(process.host, process.identity, process.pid))
    for process in sorted(processes, key=_start_ns):
        part = text_of(process.identity.get("part"))
        replica = _REPLICA.match(part)
        server = None if replica is None else _server_above(process, replica[0], at_place)
        if replica is not None and server is not None and not f"{part} ".startswith(f"{server} "):
            process.identity["part"] = server + part[replica.end() :]


def _server_above(process: Process, replica: str, at_place: Mapping[_ReplicaPlace, list[Process]]) -> str | None:
    """The part of the next above that says more of this replica than its number."""
    above = process
    for _ in range(_DEEP):
        parents = at_place.get(_place_of(above.host, above.identity, small_number(above.identity.get("ppid")) or 0), [])
        before = [parent for parent in parents if _start_ns(parent) <= _start_ns(above) and parent is not above]
        if not before:
            return None
        above = max(before, key=_start_ns)
        part = text_of(above.identity.get("part"))
        if above.is_of_ray and part.startswith(f"{replica} "):
            return part
    return None


def _place_of(host: str, identity: Mapping[str, Any], pid: int) -> _ReplicaPlace:
    return host, text_of(identity.get("boot")), whole_number(identity.get("pidns")), pid


def _start_ns(process: Process) -> int:
    return whole_number(process.identity.get("start_ns"))
