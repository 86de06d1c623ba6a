"""Attempts of one job: which processes of a run belong to one start of it, and which to a later one.

A launcher that starts its processes anew counts (`restart`). Whoever captures first in a tree of processes draws a
token that the others inherit (`job`); hosts of one job that share no such process have one each. So tokens whose
processes lived at the same time are one attempt, and those that came after are the next.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from ..store.values import small_number, text_of

# A heartbeat comes once a second: a process lived on for so long after its last sign of life, perhaps.
_LIVED_ON_NS = 2_000_000_000


class _Start(NamedTuple):
    """All processes of one token and count."""

    first_ns: int
    last_ns: int
    restart: int
    members: list[int]


def number(processes: Sequence[tuple[Mapping[str, Any], int, int]]) -> list[int]:
    """The attempt of each process, from 0 on, in the order in which they began.

    Args:
        processes: Identity, first and last sign of life in ns, of each.
    """
    attempts = [0] * len(processes)
    current, over_ns, restart = -1, -1, -1
    for start in sorted(_starts(processes)):
        if current < 0 or start.first_ns > over_ns + _LIVED_ON_NS or start.restart > restart:
            current, over_ns, restart = current + 1, start.last_ns, start.restart
        over_ns, restart = max(over_ns, start.last_ns), max(start.restart, restart)
        for index in start.members:
            attempts[index] = current
    return attempts


def _starts(processes: Sequence[tuple[Mapping[str, Any], int, int]]) -> list[_Start]:
    starts: dict[tuple[str, int], _Start] = {}
    for index, (identity, first_ns, last_ns) in enumerate(processes):
        key = text_of(identity.get("job")), small_number(identity.get("restart")) or 0
        start = starts.setdefault(key, _Start(first_ns, last_ns, key[1], []))
        start.members.append(index)
        starts[key] = start._replace(first_ns=min(start.first_ns, first_ns), last_ns=max(start.last_ns, last_ns))
    return list(starts.values())
