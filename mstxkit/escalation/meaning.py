"""Which ranks the words of a request mean: `host:node7`, `role:actor`, `dp:3`, `pp:last`, `peers:3`.

From what the run's processes have said of themselves. Who asks says it once, in the message; no rank finds it out for
itself, so that one that joins later takes the same ranks as all others. What is not known is an error that says why.
"""

from __future__ import annotations

import re
from typing import Callable, Collection, Iterable, Sequence

from .. import stages as stage_names
from ..errors import ConfigError
from ..host.parallel import MODEL_DIMENSIONS
from ..store import groups, layout
from ..store.groups import Group
from ..store.verdict import Heard

_FEW = 8
_SPEAK = "each does a second after its first stage: ask again then, or name ranks by their numbers"
# A second process of one rank and role has its pid at the end of its role (duty/post.py).
_OF_ITS_OWN = re.compile(r"(?:.*_)?\d+")


def ranks_meant(
    words: str, heard: Sequence[Heard], stages: Collection[str], source: str = "request"
) -> tuple[int, ...]:
    """The ranks that groups mean, sorted: of processes that work as those do that have entered one of these stages.

    Args:
        words: As `store.groups` reads them.
        heard: What the processes of the run said last.
        stages: Keys or aliases.

    Raises:
        ConfigError: they are no groups, a rank has not spoken yet, or has not said what is needed, or there is none.
    """
    try:
        wanted = groups.groups_in(words)
    except ValueError as exc:
        raise ConfigError(f"{source}: ranks={words!r}: {exc}; give numbers, {', '.join(groups.FORMS)}") from None
    try:
        people = _People(heard, stages)
        return tuple(sorted({rank for group in wanted for rank in people.of(group)}))
    except LookupError as exc:
        raise ConfigError(f"{source}: ranks={words}: {exc.args[0]}") from None


class _People:
    """The processes of a run that a request may be for. LookupError says why a group is not known."""

    def __init__(self, heard: Sequence[Heard], stages: Collection[str]) -> None:
        keys = {stage_names.canonical(stage) for stage in stages}
        runners = [one for one in heard if keys & {stage_names.canonical(stage) for stage in one.standing.stages}]
        roles = {one.acknowledgement.role for one in runners}
        self.speakers = [one for one in heard if not roles or one.acknowledgement.role in roles]
        self.living = [one for one in self.speakers if one.is_alive is not False]
        # Of several processes of one rank the one that spoke last.
        self._own = {one.rank: one for one in sorted(self.living, key=lambda one: one.acknowledgement.written_ns)}

    def of(self, group: Group) -> Iterable[int]:
        """The ranks in a group."""
        if group.kind == groups.RANKS:
            return range(group.first, group.last + 1)
        self._check_that_all_have_spoken()
        if group.kind == groups.HOST:
            wanted = re.sub(r"[^0-9A-Za-z_.]", "_", group.name)
            return self._called(group, lambda one: one.acknowledgement.host, lambda host: _is_host(host, wanted))
        if group.kind == groups.ROLE:
            role = layout.role_in_names(group.name)
            return self._called(group, lambda one: one.acknowledgement.role, lambda own: own == role)
        if group.kind == groups.PEERS:
            return [rank for first in range(group.first, group.last + 1) for rank in (first, self._peer(first))]
        return self._in_dimension(group)

    def _check_that_all_have_spoken(self) -> None:
        """Else a group would lack those that speak a moment later."""
        if not self.speakers:
            raise LookupError(f"no process of the run that could say so has spoken yet; {_SPEAK}")
        for role in {one.acknowledgement.role for one in self.living}:
            own = [one for one in self.speakers if one.acknowledgement.role == role]
            ranks = {one.rank for one in own}
            missing = set(range(max(one.standing.world_size for one in own))) - ranks
            if missing and not _OF_ITS_OWN.fullmatch(role):
                of_role = f" of role {role}" if role else ""
                raise LookupError(
                    f"{_named(missing)}{of_role} has not spoken yet, so that nobody knows where it belongs; {_SPEAK}"
                )

    def _called(self, group: Group, name_of: Callable[[Heard], str], fits: Callable[[str], bool]) -> list[int]:
        ranks = [one.rank for one in self.living if fits(name_of(one))]
        if not ranks:
            there = sorted({name_of(one) for one in self.living} - {""})
            known = f"known: {', '.join(there[:_FEW])}{' …' if len(there) > _FEW else ''}" if there else "none is known"
            raise LookupError(f"no living process of the run has the {group.kind} {group.name!r}; {known}")
        return ranks

    def _in_dimension(self, group: Group) -> list[int]:
        places, kind = self._places(group.kind), group.kind
        size = max(size for _, size in places.values())
        if group.last >= size:
            raise LookupError(f"{kind} has the indices 0 to {size - 1} here, not {group.last}")
        if group.last < 0:
            return [rank for rank, (index, size) in places.items() if index == size - 1]
        return [rank for rank, (index, _) in places.items() if group.first <= index <= group.last]

    def _peer(self, rank: int) -> int:
        """The next rank of the same data-parallel group: it computes the same on other data."""
        places = self._places(groups.DATA)
        if rank not in places:
            raise LookupError(f"no living process of the run has the rank {rank}")
        part = self._part(rank)
        alike = {index: other for other, (index, _) in places.items() if self._part(other) == part}
        index, size = places[rank]
        nearest = (alike.get((index + ahead) % size) for ahead in range(1, size))
        peer = next((other for other in nearest if other is not None), None)
        if peer is None:
            raise LookupError(f"rank {rank} has no data-parallel peer: dp is {size} here")
        return peer

    def _part(self, rank: int) -> tuple[object, ...]:
        """Which part of the model it has."""
        return tuple(self._own[rank].standing.groups.get(dimension, (0, 1))[0] for dimension in MODEL_DIMENSIONS)

    def _places(self, dimension: str) -> dict[int, tuple[int, int]]:
        own = self._own
        unknown = [rank for rank, one in sorted(own.items()) if dimension not in one.standing.groups]
        if not own:
            raise LookupError("all processes of the run that could be in it have ended")
        if unknown:
            reasons = filter(None, (own[rank].standing.why_no_group for rank in unknown))
            why = next(reasons, _no_such(dimension, own.values()))
            where = f"does not say where it stands in {dimension}"
            raise LookupError(f"{_named(unknown)} {where}: {why}; name ranks by their numbers")
        return {rank: one.standing.groups[dimension] for rank, one in own.items()}


def _no_such(dimension: str, people: Iterable[Heard]) -> str:
    known = sorted({name for one in people for name in one.standing.groups})
    return f"known there: {', '.join(known)}" if known else f"nothing that has a {dimension} is set up there"


def _is_host(host: str, wanted: str) -> bool:
    """Is this the host, by its whole name or the part before the first dot?"""
    return wanted in (host, host.split(".")[0])


def _named(ranks: Collection[int]) -> str:
    more = f" and {len(ranks) - _FEW} more" if len(ranks) > _FEW else ""
    return f"rank {', '.join(map(str, sorted(ranks)[:_FEW]))}{more}"
