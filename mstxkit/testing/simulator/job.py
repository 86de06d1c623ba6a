"""A simulated job, step by step."""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence

import numpy as np

from ...judging.evidence import Peer, RoleStep
from ...judging.judged import RINGS, Want
from .faults import InjectedFault, undone
from .shape import GENERATE, RESHARD, SYNC, TRAINER, JobShape, StageShape
from .team import Team
from .truth import StepTruth


class SimulatedJob:
    """Steps of all roles of a job, in the order in which they are over.

    Rings are dumped as a real job dumps them: after 20 steps, then every 100 steps or 60 s, and when `grant` is called.
    Steps that a ring still holds are then yielded again, with their collectives.

    Args:
        shape: The job.
        seed: The same seed gives the same steps.
        faults: What goes wrong.
    """

    def __init__(self, shape: JobShape | None = None, seed: int = 0, faults: Sequence[InjectedFault] = ()) -> None:
        self.shape = shape = shape or JobShape()
        self._seed, self._faults = seed, tuple(faults)
        random = np.random.default_rng(seed)
        self._teams = [
            Team(shape, role, stages, peers, [f for f in faults if _is_of(f, stages)], random)
            for role, stages, peers in _roles(shape)
        ]

    def steps(self, count: int) -> Iterator[RoleStep]:
        """So many steps of each role; fewer where one hangs."""
        ended = False
        for _ in range(count):
            for team in self._teams:
                if ended:
                    return
                step = team.next_step()
                ended = team.hangs
                yield from team.handed_over(step)

    def truths(self, count: int, without: Sequence[InjectedFault] | None = None) -> list[StepTruth]:
        """What the faults cost in so many steps of each role, role by role; wherever this job itself is by now.

        *Cost*: the job is simulated twice more.

        Args:
            count: Steps of each role; fewer where one hangs.
            without: Which faults are taken away; None: all of them.
        """
        gone = self._faults if without is None else tuple(without)
        healthy = [undone(fault) if fault in gone else fault for fault in self._faults]
        faulty, spared = (SimulatedJob(self.shape, self._seed, faults) for faults in (self._faults, healthy))
        return [
            StepTruth(team.role, step, with_s, without_s)
            for team, whole_s, shorter_s in zip(faulty._teams, faulty._lengths_s(count), spared._lengths_s(count))
            for step, (with_s, without_s) in enumerate(zip(whole_s, shorter_s))
        ]

    def _lengths_s(self, count: int) -> list[list[float]]:
        """How long each step of each role lasts."""
        ended = [[team.ended_s] for team in self._teams]
        for _ in range(count):
            for team, ends in zip(self._teams, ended):
                team.next_step()
                ends.append(team.ended_s)
            if any(team.hangs for team in self._teams):
                break
        return [[end - begin for begin, end in zip(ends, ends[1:])] for ends in ended]

    def grant(self, wants: Iterable[Want]) -> None:
        """Give what a judge asks for, as far as there are rings: with the next step of that role."""
        for want in wants:
            for team in self._teams:
                if want.kind == RINGS and want.role == team.role:
                    team.is_asked = True


def _roles(shape: JobShape) -> Iterator[tuple[str, tuple[StageShape, ...], tuple[Peer, ...]]]:
    reshard = (RESHARD,) if shape.reshards else ()
    if not shape.is_async:
        yield "actor", SYNC + reshard, _peers(shape, shape.ranks, 0)
        return
    yield "rollout", (GENERATE,), _peers(shape, shape.rollouts, shape.ranks)
    yield "actor", TRAINER, _peers(shape, shape.ranks, 0)


def _peers(shape: JobShape, count: int, first: int) -> tuple[Peer, ...]:
    return tuple(
        Peer(rank, f"host{rank // max(1, shape.ranks_per_host)}", f"p{rank}") for rank in range(first, first + count)
    )


def _is_of(fault: InjectedFault, stages: tuple[StageShape, ...]) -> bool:
    return any(stage.key == fault.stage for stage in stages) or not fault.stage
