"""A simulated job of whatever shape: its roles go through their steps, and what becomes of its faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ...judging.evidence import Peer, RoleStep
from ...judging.judged import RINGS, Want
from .faults import InjectedFault, undo_fault
from .processes import SimulatedProcesses
from .shape import JobShape
from .truth import StepTruth

CONTROLLER = "controller"
Steps = Iterator[tuple[SimulatedProcesses, RoleStep]]


class Simulation:
    """Steps of all roles of a job, in the order in which they are over. A shape says who there is and what they do.

    Args:
        shape: How many there are, how they vary, and what is seen of them.
        seed: The same seed gives the same steps.
        faults: What goes wrong.

    Attributes:
        teams: The processes of each role.
        random: For what none of them draws.
    """

    def __init__(self, shape: JobShape | None = None, seed: int = 0, faults: Sequence[InjectedFault] = ()) -> None:
        self.shape, self._seed, self._faults = shape or JobShape(), seed, tuple(faults)
        self.random = np.random.default_rng(seed)
        self.teams: list[SimulatedProcesses] = []
        self.build()

    def build(self) -> None:
        """Put its roles together."""
        raise NotImplementedError

    def play(self) -> Steps:
        """Go through the next step of each role: of whom each is, as it is over."""
        raise NotImplementedError

    def team(
        self, role: str, count: int, first: int = 0, places: Sequence[str] = (),
        waits_for: Mapping[str, str] | None = None,
    ) -> SimulatedProcesses:  # fmt: skip
        """The processes of a role, of ranks from `first` on; draws of a role are its own."""
        return self._add_team(role, self.peers(count, first, places), waits_for)

    def peers(self, count: int, first: int, places: Sequence[str] = ()) -> tuple[Peer, ...]:
        """So many ranks, on hosts in their order."""
        return tuple(
            Peer(rank, f"host{rank // max(1, self.shape.ranks_per_host)}", f"p{rank}", place=place)
            for rank, place in zip(range(first, first + count), places or [""] * count)
        )

    def controller(self, waits_for: Mapping[str, str] | None = None) -> SimulatedProcesses:
        """The process that calls the others, a role of its own."""
        peer = Peer(None, "host0", CONTROLLER, CONTROLLER, is_controller=True)
        return self._add_team(CONTROLLER, (peer,), waits_for)

    def _add_team(self, role: str, peers: tuple[Peer, ...], waits_for: Mapping[str, str] | None) -> SimulatedProcesses:
        random = np.random.default_rng([self._seed, len(self.teams)])
        team = SimulatedProcesses(self.shape, role, peers, random, self._faults, waits_for)
        self.teams.append(team)
        return team

    def steps(self, count: int) -> Iterator[RoleStep]:
        """So many steps of each role; fewer where one hangs."""
        waiting: list[tuple[float, int, RoleStep]] = []
        over: dict[int, float] = {}
        for _ in range(count):
            for team, step in self.play():
                at = self.teams.index(team)
                over[at] = float(np.nanmax(step.left_s))
                waiting.append((over[at], at, step))
            yield from self._find_over(waiting, min(over.values()))
        yield from self._find_over(waiting, np.inf)

    def _find_over(self, waiting: list[tuple[float, int, RoleStep]], until_s: float) -> Iterator[RoleStep]:
        """Those that are over by then, with what rings still hold."""
        waiting.sort(key=lambda entry: entry[:2])
        while waiting and waiting[0][0] <= until_s:
            _, at, step = waiting.pop(0)
            yield from self.teams[at].handed_over(step)

    def truths(self, count: int, without: Sequence[InjectedFault] | None = None) -> list[StepTruth]:
        """What the faults cost in so many steps of each role, role by role; wherever this job itself is by now.

        *Cost*: the job is simulated twice more.

        Args:
            count: Steps of each role; fewer where one hangs.
            without: Which faults are taken away; None: all of them.
        """
        gone = self._faults if without is None else tuple(without)
        healthy = [undo_fault(fault) if fault in gone else fault for fault in self._faults]
        unseen = replace(self.shape, has_rings=False)
        faulty, spared = (type(self)(unseen, self._seed, faults) for faults in (self._faults, healthy))
        return [  # an unseen controller has no steps
            StepTruth(team.role, step, with_s, without_s)
            for team, whole_s, shorter_s in zip(faulty.teams, faulty.lengths_s(count), spared.lengths_s(count))
            for step, (with_s, without_s) in enumerate(zip(whole_s, shorter_s))
        ]

    def lengths_s(self, count: int) -> list[list[float]]:
        """How long each of the next steps of each role lasts."""
        ended = [[team.ended_s] for team in self.teams]
        for _ in range(count):
            for team, _ in self.play():
                ended[self.teams.index(team)].append(team.ended_s)
            if any(team.hangs for team in self.teams):
                break
        return [[end - begin for begin, end in zip(ends, ends[1:])] for ends in ended]

    def grant(self, wants: Iterable[Want]) -> None:
        """Give what a judge asks for, as far as there are rings: with the next step of that role."""
        for want in wants:
            for team in self.teams:
                if want.kind == RINGS and want.role == team.role:
                    team.rings.is_asked = True
