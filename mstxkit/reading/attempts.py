"""Attempts of one job: which processes of a run belong to one start of it, and which to a later one.

A launcher that starts its processes anew counts (`restart`), but each host's for itself: torchrun counts only on the
host where a process failed. Whoever captures first in a tree of processes draws a token that the others inherit
(`job`); hosts of one job that share no such process have one each. Where their launcher says which job they are of,
`launch` is the same on all of them. So tokens whose processes lived at the same time are one attempt, those that came
after are the next, and where a rank comes again that had ended, it is the next one too.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..host import parts
from ..store.values import small_number, text_of

# A heartbeat comes once a second: a process lived on for so long after its last sign of life, perhaps.
_LIVED_ON_NS = 2_000_000_000
_Place = tuple[int, str, str]  # a rank's own process: rank, role, part


class _Member(NamedTuple):
    """One process of those whose attempts are asked for."""

    first_ns: int
    last_ns: int
    which: int
    place: _Place | None


class _Start(NamedTuple):
    """Processes of one token that were started together."""

    first_ns: int
    restart: int
    token: str
    launch: str
    members: list[_Member]


def number_attempts(processes: Sequence[tuple[Mapping[str, Any], int, int]]) -> list[int]:
    """The attempt of each process, from 0 on, in the order in which they began.
    `processes`: identity, first and last sign of life in ns, of each.
    """
    attempts, current, restart, over_ns = [0] * len(processes), 0, 0, -1
    ends: dict[_Place, int] = {}
    launches: set[str] = set()
    for at, start in enumerate(sorted(_find_starts(processes))):
        own = ((member.place, member.first_ns) for member in start.members if member.place is not None)
        has_a_rank_again = any(first_ns > ends.get(place, first_ns) for place, first_ns in own)
        is_of_one_launch = bool(start.launch) and start.launch in launches
        is_later = start.first_ns > over_ns + _LIVED_ON_NS and not is_of_one_launch
        if at and (has_a_rank_again or start.restart > restart or is_later):
            current, over_ns, ends, launches = current + 1, -1, {}, set()
            # Where a rank comes again, somebody has counted it, here or on another host.
            restart = max(restart + 1, start.restart) if has_a_rank_again else start.restart
        restart, over_ns = max(restart, start.restart), max(over_ns, *(member.last_ns for member in start.members))
        launches.add(start.launch)
        for member in start.members:
            attempts[member.which] = current
            if member.place is not None:
                ends[member.place] = max(member.last_ns, ends.get(member.place, 0))
    _tell_apart(processes, attempts)
    return attempts


def _tell_apart(processes: Sequence[tuple[Mapping[str, Any], int, int]], attempts: list[int]) -> None:
    """Where a rank had two lives one after the other in an attempt all the same, the later is of a later attempt."""
    ended: dict[_Place, int] = {}  # the highest attempt of a life that had ended
    going_on: dict[_Place, list[tuple[int, int]]] = {}
    for which in sorted(range(len(processes)), key=lambda which: processes[which][1:]):
        identity, first_ns, last_ns = processes[which]
        place = _place_of(identity)
        if place is None:
            continue
        lives = going_on.setdefault(place, [])
        while lives and lives[0][0] < first_ns:
            ended[place] = max(ended.get(place, 0), heappop(lives)[1])
        attempts[which] = max(attempts[which], ended.get(place, -1) + 1)
        heappush(lives, (last_ns, attempts[which]))


def _find_starts(processes: Sequence[tuple[Mapping[str, Any], int, int]]) -> Iterator[_Start]:
    by_token: dict[tuple[str, int], list[_Member]] = {}
    launches: dict[tuple[str, int], str] = {}
    for index, (identity, first_ns, last_ns) in enumerate(processes):
        key = text_of(identity.get("job")), small_number(identity.get("restart")) or 0
        launches[key] = text_of(identity.get("launch")) or launches.get(key, "")
        by_token.setdefault(key, []).append(_Member(first_ns, last_ns, index, _place_of(identity)))
    for (token, restart), members in by_token.items():
        for later, together in enumerate(_split_starts(sorted(members, key=lambda member: member[:3]))):
            yield _Start(together[0].first_ns, restart + later, token, launches[token, restart], together)


def _split_starts(members: list[_Member]) -> Iterator[list[_Member]]:
    """Of one token, by first sign of life: those before a rank came again, and those from there on."""
    together: list[_Member] = []
    ends: dict[_Place, int] = {}
    for member in members:
        if member.place is not None and member.first_ns > ends.get(member.place, member.first_ns):
            yield together
            together, ends = [], {}
        together.append(member)
        if member.place is not None:
            ends[member.place] = max(member.last_ns, ends.get(member.place, 0))
    yield together


def _place_of(identity: Mapping[str, Any]) -> _Place | None:
    """What no other process of an attempt is at the same time; None for who is no rank's own process."""
    rank = small_number(identity.get("rank"))
    if rank is None or text_of(identity.get("under")) in (*parts.BESIDE, parts.RAY_DRIVER):
        return None
    return rank, text_of(identity.get("role")), text_of(identity.get("part"))
