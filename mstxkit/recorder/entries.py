"""Entries into collectives, sends and receives that Python code makes: kept as they are made, handed over soon after.

Hot path: no lock, no file, no tensor, no device; an entry is a list of numbers and the key of its stage. What group or
pair a call is of is found out at its first call; from then on it is counted, so that all members give it one number.

Source: torch 2.13, `distributed/distributed_c10d.py`: all its functions end in a method of `ProcessGroup`, also those
of `torch.distributed.pipelining`, FSDP2 and Megatron's `p2p_communication`, and wait by `Work.wait`.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
import weakref
from collections import deque
from time import monotonic_ns
from typing import Any, Callable, NamedTuple

from .. import faults
from ..engine.choose import engine
from ..store import collectives
from . import torch_rings
from .torch_rings import METHODS, GroupOfRing

# Entries that wait to be handed over, and groups and pairs that are counted.
_WAITING_AT_MOST, _CHANNELS_AT_MOST = 1 << 14, 128
# What was not waited for by then is handed over without an end.
_LEFT_WITHIN_NS = 10_000_000_000
# So many are packed before others may have the GIL.
_AT_ONCE = 64
_SEQUENCE_BITS = 32
# Places of an entry: the last two are 0 until they are known.
_OPERATION, _NUMBER, _STAGE, _ENTERED, _LEFT, _WAITED = range(6)

Count = Callable[[], int]


class _Channel(NamedTuple):
    """A group as Python code meets in it, or who sends to whom in it; and its number in torch's ring."""

    group: GroupOfRing
    number_in_ring: int
    flags: int


class _Kept:
    """What is known of this process."""

    def __init__(self) -> None:
        self.channels: list[_Channel] = []
        self.counts: dict[int, Count] = {}
        # By what a call has at hand: the id of its group, and of a pair the peer in that group, and the tag.
        self.by_call: dict[Any, Count] = {}
        self.living: dict[int, Any] = {}
        self.made: deque[list[Any]] = deque(maxlen=_WAITING_AT_MOST)
        self.open: list[list[Any]] = []
        # By the id of the `Work` that is waited for.
        self.works: dict[int, list[Any]] = {}


_kept = _Kept()
_by_call, _works, _put = _kept.by_call, _kept.works, _kept.made.append
_is_on, _current_stage = engine.is_on, engine.current_stage


def __getattr__(name: str) -> Any:
    """Of each method of METHODS, and of `Work.wait`, the function that takes its place."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not (name in METHODS or name == "wait"):
        raise AttributeError(name)
    original = getattr(c10d.Work if name == "wait" else c10d.ProcessGroup, name)
    make = {"send": _of_pair, "recv": _of_pair, "wait": _waiting}.get(name, _meeting)
    made = functools.wraps(original)(make(original, collectives.OPERATIONS.index(METHODS.get(name, "other"))))
    return globals().setdefault(name, made)


def _meeting(original: Any, operation: int) -> Any:
    def meet(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_on(None):
            return original(self, *args, **kwargs)
        try:
            number = _by_call[id(self)]()
        except KeyError:
            number = _counted(id(self), self)()
        entry = [operation, number, _current_stage(), monotonic_ns(), 0, 0]
        _put(entry)
        work = original(self, *args, **kwargs)
        if work is None:
            entry[4] = monotonic_ns()
        else:
            _works[id(work)] = entry
        return work

    return meet


def _of_pair(original: Any, operation: int) -> Any:
    is_send = operation == collectives.SEND

    def hand_over(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_on(None):
            return original(self, *args, **kwargs)
        key = id(self), is_send, args[1:]  # the tensors, then the peer and the tag
        try:
            number = _by_call[key]()
        except KeyError:
            number = _counted(key, self)()
        entry = [operation, number, _current_stage(), monotonic_ns(), 0, 0]
        _put(entry)
        work = original(self, *args, **kwargs)
        _works[id(work)] = entry
        return work

    return hand_over


def _waiting(original: Any, _: int) -> Any:
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


def _counted(key: Any, group: Any) -> Count:
    """What numbers the calls of a group, or of a pair in it, from now on. Never raises.

    Args:
        key: The id of the group; of a pair with whether this rank sends, and the peer and the tag.
    """
    try:
        count = _count_of(group, None if isinstance(key, int) else key[1:])
        if id(group) not in _kept.living:
            _kept.living[id(group)] = weakref.ref(group, functools.partial(_forget_group, id(group)))
    except KeyError:
        count = _uncounted  # torch knows no such group, or not yet
    except Exception as exc:
        faults.note("entries", exc)
        count = _uncounted
    return _kept.by_call.setdefault(key, count)


def _count_of(group: Any, pair: Any) -> Count:
    """Of a group or pair that has come back, as a handle of its own, the one that it had."""
    called, number_in_ring = torch_rings.as_called(group, pair)
    if called.number not in _kept.counts:
        if len(_kept.channels) >= _CHANNELS_AT_MOST:
            return _uncounted
        flags = collectives.CALLED | (collectives.HOST_ALONE if torch_rings.runs_ahead(group) else 0)
        _kept.channels.append(_Channel(called, number_in_ring, flags))
        _kept.counts[called.number] = itertools.count(len(_kept.channels) << _SEQUENCE_BITS).__next__
    return _kept.counts[called.number]


def _uncounted() -> int:
    return 0


def _forget_group(number: int, _: object) -> None:
    """It is gone: another one may have its id."""
    _kept.living.pop(number, None)
    for key in [key for key in list(_kept.by_call) if number == (key[0] if isinstance(key, tuple) else key)]:
        _kept.by_call.pop(key, None)


def groups() -> dict[str, dict[str, str]]:
    """Those of which anything was kept, by number, for the document beside the rows."""
    return {str(channel.group.number): channel.group.as_json() for channel in list(_kept.channels)}


def forget() -> None:
    """Nothing was entered yet: in a forked child all of it is its parent's."""
    _kept.made.clear()
    _kept.open.clear()
    _kept.works.clear()


class TakenEntries(NamedTuple):
    """What is to be handed over.

    Args:
        rows: Whole rows.
        began_ns: The number of its group in torch's ring, is it a send or receive, and when was it entered, of each.
    """

    rows: bytes
    began_ns: list[tuple[int, bool, int]]


def take(everything: bool = False) -> TakenEntries:
    """Take what is over, by one thread at a time; what is still waited for only with `everything`, or after a while."""
    made, rows, began = _kept.made, [], []
    entries, _kept.open = [*_kept.open, *(made.popleft() for _ in range(len(made)))], []
    stages = {key: number for number, key in enumerate(engine.stage_keys(), 1)} if entries else {}
    late_ns = monotonic_ns() - _LEFT_WITHIN_NS
    for place, entry in enumerate(entries):
        if place % _AT_ONCE == _AT_ONCE - 1:
            time.sleep(0)
        if not (everything or entry[_LEFT] or entry[_ENTERED] < late_ns):
            _kept.open.append(entry)
            continue
        channel = entry[_NUMBER] >> _SEQUENCE_BITS
        if channel:
            of = _kept.channels[channel - 1]
            rows.append(_row(entry, of, stages))
            began.append((of.number_in_ring, entry[_OPERATION] >= collectives.SEND, entry[_ENTERED]))
    for work in [work for work, entry in list(_works.items()) if entry[_ENTERED] < late_ns]:
        _works.pop(work, None)
    for key in [key for key, count in list(_by_call.items()) if count is _uncounted]:
        _by_call.pop(key, None)  # it may be known by now
    return TakenEntries(b"".join(rows), began)


def _row(entry: list[Any], channel: _Channel, stages: dict[str, int]) -> bytes:
    operation, number, stage, entered_ns, left_ns, waited_ns = entry
    waited_us = (left_ns - (waited_ns or entered_ns)) // 1000 if left_ns else 0
    return collectives.CollectiveEntry(
        channel.group.number, number, entered_ns, left_ns, collectives.in_stage(operation, stages.get(stage, 0)),
        channel.flags, waited_us,
    ).pack()  # fmt: skip
