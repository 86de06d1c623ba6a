"""Which ranks the words of a request mean: `host:node7`, `role:actor`, `dp:3`, `pp:last`, `peers:3`.

From what the run's processes have said of themselves. Who asks says it once, in the message; no rank finds it out for
itself, so that one that joins later takes the same ranks as all others. What is not known is an error that says why.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Callable, Collection, Iterable, Sequence

from .. import stages as stage_names
from ..errors import ConfigError, Problem
from ..host.parallel import MODEL_DIMENSIONS
from ..store import groups, layout
from ..store.fate import Heard
from ..store.groups import Group
from .machine.agreement import name_ranks

_FEW = 8
_SPEAK = "each does a second after its first stage: ask again then, or name ranks by their numbers"
# A second process of one rank and role has its pid at the end of its role (duty/post.py).
_OF_A_SECOND = re.compile(r"(?:.*_)?\d+")
_role, _host = attrgetter("acknowledgement.role"), attrgetter("acknowledgement.host")


def ranks_meant(
    words: str, heard: Sequence[Heard], stages: Collection[str], source: str = "request"
) -> tuple[int, ...]:
    """The ranks that groups mean, sorted: of processes in the roles of those that have entered one of these stages.

    `words` are as `store.groups` reads them, `stages` keys or aliases, `heard` is what the run's processes said last.
    Raises ConfigError: they are no groups, a rank has not spoken yet, or has not said what is needed, or there is none.
    """
    try:
        wanted, people = groups.groups_in(words), _People(heard, stages)
        return tuple(sorted({rank for group in wanted for rank in people.of(group)}))
    except ValueError as exc:
        why = f"{exc}; give numbers, {', '.join(groups.FORMS)}"
    except LookupError as exc:
        why = exc.args[0]
    raise ConfigError.of([Problem(source, None, "ranks", words, why, ())])


class _People:
    """The processes of a run that a request may be for. LookupError says why a group is not known."""

    def __init__(self, heard: Sequence[Heard], stages: Collection[str]) -> None:
        keys = {stage_names.canonical_key(stage) for stage in stages}
        roles = {_role(process) for process in heard if not keys.isdisjoint(process.keys)}
        self._speakers = [process for process in heard if not roles or _role(process) in roles]
        self._living = [process for process in self._speakers if process.is_alive is not False]
        in_order = sorted(self._living, key=lambda process: process.acknowledgement.written_ns)
        self._of_rank = {process.rank: process for process in in_order}  # of several the one that spoke last

    def of(self, group: Group) -> Iterable[int]:
        """The ranks in a group."""
        if group.kind == groups.RANKS:
            return range(group.first, group.last + 1)
        self._check_that_all_have_spoken()
        if group.kind == groups.HOST:
            wanted = re.sub(r"[^0-9A-Za-z_.]", "_", group.name)  # as `identity.name_host` has it
            return self._called(group, _host, lambda host: wanted in (host, host.split(".")[0]))
        if group.kind == groups.ROLE:
            wanted = layout.role_in_names(group.name)
            return self._called(group, _role, lambda role: role == wanted)
        if group.kind == groups.PEERS:
            return [rank for first in range(group.first, group.last + 1) for rank in (first, self._peer(first))]
        places = self._places(group.kind)
        size = max(size for _, size in places.values())
        if group.last >= size:
            raise LookupError(f"{group.kind} has the indices 0 to {size - 1} here, not {group.last}")
        if group.last < 0:
            return [rank for rank, (index, size) in places.items() if index == size - 1]
        return [rank for rank, (index, _) in places.items() if group.first <= index <= group.last]

    def _check_that_all_have_spoken(self) -> None:
        """Else a group would lack those that speak a moment later."""
        if not self._speakers:
            raise LookupError(f"no process of the run that could say so has spoken yet; {_SPEAK}")
        for role in {_role(process) for process in self._living}:
            alike = [process for process in self._speakers if _role(process) == role]
            size = max(process.standing.world_size for process in alike)
            missing = set(range(size)) - {process.rank for process in alike}
            if missing and not _OF_A_SECOND.fullmatch(role):
                who = f"{name_ranks(missing)}{f' of role {role}' if role else ''}"
                raise LookupError(f"nothing was heard of {who} yet, so that nobody knows where it belongs; {_SPEAK}")

    def _called(self, group: Group, name_of: Callable[[Heard], str], fits: Callable[[str], bool]) -> list[int]:
        ranks = [process.rank for process in self._living if fits(name_of(process))]
        if not ranks:
            names = sorted({name_of(process) for process in self._living} - {""})
            there = f"known: {', '.join(names[:_FEW])}{' …' if len(names) > _FEW else ''}" if names else "none is known"
            raise LookupError(f"no living process of the run has the {group.kind} {group.name!r}; {there}")
        return ranks

    def _peer(self, rank: int) -> int:
        """The next rank of the same data-parallel group: it computes the same on other data."""
        places = self._places(groups.DATA)
        if rank not in places:
            raise LookupError(f"no living process of the run has the rank {rank}")
        parts = {  # which part of the model each has
            other: tuple(process.standing.groups.get(dimension, (0, 1))[0] for dimension in MODEL_DIMENSIONS)
            for other, process in self._of_rank.items()
        }
        alike = {index: other for other, (index, _) in places.items() if parts[other] == parts[rank]}
        index, size = places[rank]
        nearest = (alike.get((index + ahead) % size) for ahead in range(1, size))
        peer = next((other for other in nearest if other is not None), None)
        if peer is None:
            raise LookupError(f"rank {rank} has no data-parallel peer: dp is {size} here")
        return peer

    def _places(self, dimension: str) -> dict[int, tuple[int, int]]:
        """Rank to its index and how many there are."""
        everybody = self._of_rank.items()
        if not everybody:
            raise LookupError("all processes of the run that could be in it have ended")
        silent = [rank for rank, process in sorted(everybody) if dimension not in process.standing.groups]
        if silent:
            reasons = (self._of_rank[rank].standing.why_no_group for rank in silent)
            names = sorted({name for process in self._living for name in process.standing.groups})
            there = f"known there: {', '.join(names)}" if names else f"nothing that has a {dimension} is set up there"
            why = next(filter(None, reasons), there)
            raise LookupError(
                f"the {dimension} of {name_ranks(silent)} is not known: {why}; name ranks by their numbers"
            )
        return {rank: process.standing.groups[dimension] for rank, process in everybody}
