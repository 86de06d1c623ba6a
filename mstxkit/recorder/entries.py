"""Entries into collectives, sends and receives that Python code makes, and what it waits for in a stage to take it from
a queue or another process: kept as they are made, handed over soon after.

Hot path: no lock, no file, no tensor, no device; an entry is a list of numbers and the key of its stage. What group or
pair a call is of is found out at its first call; from then on it is counted, so that all members give it one number.

Source: torch 2.13, `distributed/distributed_c10d.py`: all its functions end in a method of `ProcessGroup`, also those
of `torch.distributed.pipelining`, FSDP2 and Megatron's `p2p_communication`, and wait by `Work.wait`.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import time
import weakref
import zlib
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, NamedTuple

from .. import faults
from ..engine.choose import engine
from ..host import identity
from ..store import collectives
from . import torch_rings
from .torch_rings import METHODS, GroupOfRing

# Entries that wait to be handed over, and groups and pairs that are counted.
_WAITING_AT_MOST, _CHANNELS_AT_MOST = 1 << 14, 128
# What was not waited for by then is handed over without an end.
_LEFT_WITHIN_NS = 10_000_000_000
# So many are packed before others may have the GIL.
_AT_ONCE = 64
# Who has got it so soon has not waited. Whose waits are for parts of its own: an engine's for its processes, a loader's
# for its workers. And whose code stands between a call and who makes it.
_WAITED_FROM_NS = 100_000
_OF_ITS_OWN = ("torch", "torch_npu", "vllm", "vllm_ascend", "sglang", "datasets", "multiprocessing")
_BETWEEN = ("mstxkit", "asyncio", "ray")
_SEQUENCE_BITS, _STAGES_AT_MOST = 32, 1 << 16 - collectives.OPERATION_BITS

Count = Callable[[], int]


class _Channel(NamedTuple):
    """A group as Python code meets in it, or who sends to whom in it; and its number in torch's ring."""

    group: GroupOfRing
    number_in_ring: int
    flags: int


_channels: list[_Channel] = []
_counts: dict[int, Count] = {}
# By what a call has at hand: the id of its group; of a pair with whether this rank sends, and the peer and the tag.
_by_call: dict[Any, Count] = {}
_living: dict[int, Any] = {}
# Each entry: operation, number, stage, entered, left, and when it was begun to wait; 0: it has not come to that.
_made: deque[list[Any]] = deque(maxlen=_WAITING_AT_MOST)
_takes: Count = itertools.count(1).__next__
_open: list[list[Any]] = []
# What is not a method of torch's groups, and where it is found.
_OTHERS = {
    "wait": ("torch.distributed.distributed_c10d", "Work"), "get": ("queue", "Queue"),
    "get_async": ("asyncio.queues", "Queue"), "get_from_process": ("multiprocessing.queues", "Queue"),
}  # fmt: skip
# By the id of the `Work` that is waited for.
_works: dict[int, list[Any]] = {}
_put, _is_on, _current_stage = _made.append, engine.is_on, engine.current_stage


def __getattr__(name: str) -> Any:
    """Of each method of METHODS, and of those in _OTHERS, the function that takes its place."""
    path, kind = _OTHERS.get(name, ("torch.distributed.distributed_c10d", "ProcessGroup"))
    module = sys.modules.get(path)
    if module is None or not (name in METHODS or name in _OTHERS):
        raise AttributeError(name)
    original = getattr(getattr(module, kind), name if name in METHODS else name.partition("_")[0])
    make: Any = {"wait": _wrap_wait, "get_async": _taking_async}.get(name, _taking_now)
    new = _wrap_entry(original, torch_rings.number_operation(name)) if name in METHODS else make(original)
    return globals().setdefault(name, functools.wraps(original)(new))


def _wrap_entry(original: Any, operation: int) -> Any:
    is_of_pair, is_send = operation >= collectives.SEND, operation == collectives.SEND

    def enter(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_on(None):
            return original(self, *args, **kwargs)
        key = (id(self), is_send, args[1:]) if is_of_pair else id(self)
        try:
            number = _by_call[key]()
        except (KeyError, TypeError):
            number = _count_calls(key, self)()
        entry = [operation, number, _current_stage(), monotonic_ns(), 0, 0]
        _put(entry)
        work = original(self, *args, **kwargs)
        if work is None:
            entry[4] = monotonic_ns()
        else:
            _works[id(work)] = entry
        return work

    return enter


def _wrap_wait(original: Any) -> Any:
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        entry = _works.pop(id(self), None)
        if entry is None:
            return original(self, *args, **kwargs)
        entry[5] = monotonic_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            entry[4] = monotonic_ns()

    return wait


def take_from(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call what waits for another process until something can be taken from it."""
    return _taking_now(original)(*args, **kwargs)


def _taking_now(original: Callable[..., Any]) -> Any:
    def get_here(*args: Any, **kwargs: Any) -> Any:
        if not _is_on(None):
            return original(*args, **kwargs)
        began_ns = monotonic_ns()
        try:
            return original(*args, **kwargs)
        finally:
            if monotonic_ns() - began_ns > _WAITED_FROM_NS:
                _waited_since(began_ns)

    return get_here


def _taking_async(original: Any) -> Any:
    async def get_here(self: Any) -> Any:
        began_ns = monotonic_ns()
        taken = await original(self)
        if monotonic_ns() - began_ns > _WAITED_FROM_NS and _is_on(None):
            _waited_since(began_ns)
        return taken

    return get_here


def _waited_since(began_ns: int) -> None:
    """Keep it, unless it was for a part of its own, in no stage, or in a thread that a pool lends. Never raises."""
    with faults.noted("entries"):
        frame, stage = sys._getframe(2), _current_stage()
        while (root := frame.f_globals.get("__name__", "").partition(".")[0]) in _BETWEEN and frame.f_back is not None:
            frame = frame.f_back
        pooled = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", ())
        if stage is not None and root not in _OF_ITS_OWN and threading.current_thread() not in pooled:
            _put([collectives.TAKE, _takes(), stage, began_ns, monotonic_ns(), 0])


def _count_calls(key: Any, group: Any) -> Count:
    """What numbers the calls of a group, or of a pair in it, from now on. Never raises."""
    try:
        called, number_in_ring = torch_rings.as_called(group, None if isinstance(key, int) else key[1:])
        count = _counts.get(called.number)  # of a group or pair that has come back, as a handle of its own
        if count is None and len(_channels) < _CHANNELS_AT_MOST:
            flags = collectives.CALLED | (collectives.HOST_ALONE if torch_rings.runs_ahead(group) else 0)
            _channels.append(_Channel(called, number_in_ring, flags))
            count = _counts[called.number] = itertools.count(len(_channels) << _SEQUENCE_BITS).__next__
        if id(group) not in _living:
            _living[id(group)] = weakref.ref(group, functools.partial(_forget_group, id(group)))
        return _by_call.setdefault(key, count or int)
    except KeyError:
        return int  # torch knows no such group, or not yet: 0 is no number
    except Exception as exc:
        faults.note_fault("entries", exc)
        return int


def _forget_group(number: int, _: object) -> None:
    """It is gone: another one may have its id."""
    _living.pop(number, None)
    for key in [key for key in list(_by_call) if number == (key[0] if isinstance(key, tuple) else key)]:
        _by_call.pop(key, None)


def list_groups() -> dict[str, dict[str, str]]:
    """Those of which anything was kept, by number, for the document beside the rows."""
    return {str(channel.group.number): channel.group.as_json() for channel in list(_channels)}


def forget_entries() -> None:
    """Nothing was entered yet: in a forked child all of it is its parent's."""
    for kept in (_made, _open, _works):
        kept.clear()


def take_entries(everything: bool = False) -> tuple[bytes, list[tuple[int, bool, int]]]:
    """Take what is over, by one thread at a time; what is still waited for only with `everything`, or after a while:
    whole rows; and of each the number of its group in torch's ring, is it a send or receive, and when it began.
    """
    rows, began = [], []
    entries = [*_open, *(_made.popleft() for _ in range(len(_made)))]
    _open.clear()
    stages = {key: number for number, key in enumerate(engine.stage_keys(), 1)} if entries else {}
    late_ns = monotonic_ns() - _LEFT_WITHIN_NS
    own_number = zlib.crc32(f"{identity.name_host()} {os.getpid()}".encode())
    alone = _Channel(GroupOfRing(own_number, "", (), ""), 0, collectives.CALLED)
    for place, entry in enumerate(entries):
        if place % _AT_ONCE == _AT_ONCE - 1:
            time.sleep(0)
        operation, number, stage, entered_ns, left_ns, waited_ns = entry
        if not (everything or left_ns or entered_ns < late_ns):
            _open.append(entry)
        elif number:
            of = _channels[(number >> _SEQUENCE_BITS) - 1] if operation != collectives.TAKE else alone
            waited_us = (left_ns - (waited_ns or entered_ns)) // 1000 if left_ns else 0
            does = operation | stages.get(stage, 0) % _STAGES_AT_MOST << collectives.OPERATION_BITS
            row = collectives.CollectiveEntry(of.group.number, number, entered_ns, left_ns, does, of.flags, waited_us)
            rows.append(row.pack())
            began.append((of.number_in_ring, operation >= collectives.SEND, entered_ns))
    for work in [work for work, entry in list(_works.items()) if entry[3] < late_ns]:
        _works.pop(work, None)
    return b"".join(rows), began
