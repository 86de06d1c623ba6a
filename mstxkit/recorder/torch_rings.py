"""The flight-recorder ring of torch or torch_npu, read where it is: what it holds, and what reading it would cost.

Nothing is imported: where torch.distributed is not loaded and set up, there is no ring. A reading holds the GIL all the
time (22 us an entry on x86; the binding does not release it), so its length is known before it is done.

Source: torch 2.13 `csrc/distributed/c10d/FlightRecorder.hpp` and `FlightRecorderDetail.hpp` (fields, ring, `dump_json`;
times by `c10::getTime`, which is CLOCK_REALTIME), `distributed_c10d.py` (`_world`); torch_npu 2.13
`csrc/distributed/TraceUtils.h`. What they hold on gloo, and what was measured: docs/internals/rings.md.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import time
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from .. import faults
from ..host import identity
from ..store import collectives
from ..store.values import list_of, table_of

_C10D = "torch.distributed.distributed_c10d"
is_set_up = identity.has_process_group
# The methods of `ProcessGroup`, in which all calls of torch.distributed end.
METHODS = (
    "allreduce", "allreduce_coalesced", "allgather", "all_gather_single", "_allgather_base", "allgather_coalesced",
    "all_gather_single_coalesced", "allgather_into_tensor_coalesced", "reduce_scatter", "reduce_scatter_single",
    "_reduce_scatter_base", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "alltoall",
    "alltoall_base", "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "barrier", "send", "recv",
)  # fmt: skip
_BYTES_OF = {"Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Bool": 1, "Byte": 1, "Char": 1}
# Backends in which the host itself carries what it sends.
_OF_HOSTS = ("gloo", "mpi")
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "")
_PAIR = re.compile(r"(\d{1,9}) ?(->|<-) ?(\d{1,9})", re.ASCII)
_ENTRIES_AT_MOST = 1 << 20
# Of a ring that we switch on: read in 12 ms on x86.
ENTRIES = 512


class RingKind(NamedTuple):
    """Where one of the rings is found."""

    module: str  # that holds its C part, if it is loaded
    function: str  # that dumps it, of `<module>._C._distributed_c10d`
    variables: tuple[str, ...]  # of the environment, that say its size; the first that is set counts
    size: int  # where none is


# A collective is in one of them. The first that is on counts: on an NPU torch's own ring is there, and empty.
KINDS = (
    RingKind("torch_npu", "_dump_hccl_trace_json", ("TORCH_HCCL_TRACE_BUFFER_SIZE",), 0),
    RingKind("torch", "_dump_fr_trace_json", ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), 2000),
    RingKind("torch", "_dump_nccl_trace_json", ("TORCH_NCCL_TRACE_BUFFER_SIZE",), 0),
)
PAIR = "send > receive"


class GroupOfRing(NamedTuple):
    """A process group: the number that all its members give it, its name, its ranks, how it is carried.

    Of a sender and a receiver, in this order, with PAIR as the backend.
    """

    number: int
    name: str
    ranks: tuple[int, ...]
    backend: str

    def as_json(self) -> dict[str, str]:
        """For the document beside the rows."""
        if self.backend == PAIR:
            return {"ranks": "{}>{}".format(*self.ranks)}
        ranks = collectives.ranks_as_text(self.ranks)
        return {"name": self.name[:80], "ranks": ranks, "backend": self.backend[:40]}


class ReadRing(NamedTuple):
    """What a ring held."""

    entries: list[dict[str, Any]]  # the oldest first
    held_ns: int  # how long the GIL was held for it at a time, at most
    cpu_ns: int  # the same in CPU time, which is as long where nobody else wants the core


class TorchRing:
    """The ring of this process that is on. `kind`: where it is. `dump`: its function: (with entries, only active ones)
    to JSON.
    """

    def __init__(self, kind: RingKind, dump: Callable[[bool, bool], bytes]) -> None:
        self.kind, self._dump = kind, dump
        self.size = _read_size(kind, os.environ)

    def count(self) -> int:
        """How many entries it holds at most now, from what groups say of themselves. Takes microseconds."""
        status = table_of(table_of(json.loads(self._dump(False, False))).get("pg_status"))
        numbers = (table_of(fields).get("last_enqueued_collective") for fields in status.values())
        return min(self.size, sum(int(text) for text in numbers if isinstance(text, str) and text.isdecimal()))

    def read(self) -> ReadRing:
        """All that it holds."""
        began = time.perf_counter_ns(), time.thread_time_ns()
        text = self._dump(True, False)
        dumped = time.perf_counter_ns(), time.thread_time_ns()
        entries = list_of(table_of(json.loads(text)).get("entries"))
        over = time.perf_counter_ns(), time.thread_time_ns()
        held, cpu = (max(dumped[clock] - began[clock], over[clock] - dumped[clock]) for clock in (0, 1))
        return ReadRing([entry for entry in entries if isinstance(entry, dict)], held, cpu)


def pick_variables(entries: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What must stand in the environment for rings to be on: only what nobody has decided yet. Says where that is late.
    `entries`: how many a ring holds; 1: as many as can be read in a quarter of what a reading may take.
    """
    wanted = str(ENTRIES if entries == 1 else entries)
    open_ = [kind for kind in KINDS[:2] if not any(name in environ for name in kind.variables)]
    if open_ and is_set_up():
        faults.say_once(
            "capture(rings=True) comes after the process group was made: its rings stay as they are. Capture first, or "
            f"set {' and '.join(kind.variables[0] for kind in open_)} to {wanted} for the job"
        )
        return {}
    return {kind.variables[0]: wanted for kind in open_}


def find_ring() -> TorchRing | None:
    """The ring that is on here; None where there is none, or it is switched off."""
    for kind in KINDS:
        c_part = getattr(getattr(sys.modules.get(kind.module), "_C", None), "_distributed_c10d", None)
        dump = getattr(c_part, kind.function, None)
        if dump is not None and _read_size(kind, os.environ) > 0:
            return TorchRing(kind, dump)
    return None


def _read_size(kind: RingKind, environ: Mapping[str, str]) -> int:
    text = next((environ[name] for name in kind.variables if name in environ), str(kind.size))
    try:
        return min(max(0, int(text)), _ENTRIES_AT_MOST)
    except ValueError:
        return 0


def list_groups() -> list[GroupOfRing]:
    """The process groups in which this rank is, as torch has them now."""
    c10d: Any = sys.modules.get(_C10D)
    world = getattr(c10d, "_world", None)
    names, members = getattr(world, "pg_names", {}), getattr(world, "pg_group_ranks", {})
    backends, where = getattr(world, "pg_map", {}), _name_world(c10d)
    return [
        _make_group(where, str(names.get(group, "")), ranks, str(backends.get(group, ("",))[0]))
        for group, ranks in list(members.items())
    ]


def _make_group(where: str, name: str, ranks: Iterable[int], backend: str) -> GroupOfRing:
    members = tuple(sorted(int(rank) for rank in ranks))
    return GroupOfRing(_number_of(f"{where}\n{name}\n{members}"), name, members, backend)


def _number_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).digest(), "little")


def as_called(group: Any, pair: tuple[bool, tuple[int, int]] | None = None) -> tuple[GroupOfRing, int]:
    """A group as Python code meets in it, numbered apart from that of the ring, whose number comes with it.
    `group`: torch's. `pair`: of a send or receive: does this rank send, and the peer, as the group counts its ranks,
    and the tag. Raises KeyError: torch knows no such group; ValueError: it is no such pair.
    """
    c10d: Any = sys.modules.get(_C10D)
    world, where = c10d._world, _name_world(c10d)
    name, members = str(world.pg_names[group]), world.pg_group_ranks[group]
    of_ring = _make_group(where, name, members, str(world.pg_map[group][0]) or "unknown")
    if pair is None:
        return of_ring._replace(number=_number_of(f"{of_ring.number}\ncalled")), of_ring.number
    is_send, (peer, tag) = pair
    own, other = int(c10d.get_rank()), next(rank for rank, place in members.items() if place == peer)
    sender, receiver = (own, other) if is_send else (other, own)
    return pair_of(of_ring, sender, receiver, tag), of_ring.number


def pair_of(group: GroupOfRing, sender: int, receiver: int, tag: int | str) -> GroupOfRing:
    """Who sends to whom in a group, with this tag, as a group of its own."""
    return GroupOfRing(_number_of(f"{group.number}\n{sender}>{receiver}\n{tag}"), group.name, (sender, receiver), PAIR)


def pair_in(name: str, ranks: Sequence[int]) -> tuple[int, int] | None:
    """Who sends to whom, by what a ring calls it: `nccl:send 0->1`, `nccl:recv 1<-0`, as a group counts its ranks."""
    match = _PAIR.search(name)
    if match is None or max(int(match[1]), int(match[3])) >= len(ranks):
        return None
    own, other = ranks[int(match[1])], ranks[int(match[3])]
    return (own, other) if match[2] == "->" else (other, own)


def runs_ahead(group: Any) -> bool:
    """Does a host that has called go on before the group's device is through?"""
    modules: Mapping[str, Any] = sys.modules
    accelerator = getattr(modules["torch"]._C, "_get_accelerator", None)
    if accelerator is not None and accelerator().type == "cpu":
        return False
    config = str(modules[_C10D]._world.pg_backend_config.get(group, ""))
    return any(word.rpartition(":")[2] not in _OF_HOSTS for word in config.split(","))


def _name_world(c10d: Any) -> str:
    """Which world: where its members met. Two jobs on one machine, or two replicas, have groups of the same names."""
    store: Any = getattr(c10d, "_get_default_store", lambda: None)()
    while getattr(store, "underlying_store", None) is not None:
        store = store.underlying_store
    host, port = str(getattr(store, "host", "")), str(getattr(store, "port", ""))
    path = str(getattr(store, "path", "")) if not port else ""
    return f"{identity.name_host() if host in _LOOPBACK and not path else host}:{port}{path}"


def find_rank() -> int | None:
    """This process's rank in its world."""
    c10d: Any = sys.modules.get(_C10D)
    return int(c10d.get_rank()) if is_set_up() else None


def number_operation(name: str) -> int:
    """`gloo:all_reduce`, `nccl:_reduce_scatter_base`, `HcclAllgather`: its place in `OPERATIONS`."""
    letters = re.sub("[^a-z]", "", name.rpartition(":")[2].lower())
    for place, word in enumerate(collectives.OPERATIONS[1:], 1):
        if word.replace("_", "") in letters:
            return place
    return 0


def size_kib(entry: Mapping[str, Any]) -> int:
    """What goes in, in KiB, rounded up."""
    sizes, kinds = entry.get("input_sizes"), entry.get("input_dtypes")
    if not isinstance(sizes, list) or not isinstance(kinds, list):
        return 0
    each = [1 if str(kind).startswith("Float8") else _BYTES_OF.get(str(kind), 8) for kind in kinds]
    counts = (math.prod(n if isinstance(n, int) else 0 for n in list_of(size)) for size in sizes)
    return -(-sum(count * width for count, width in zip(counts, each)) // 1024)
