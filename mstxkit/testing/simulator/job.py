"""The simulated job of one or two roles that `JobShape` describes whole: trainers that generate too, or async ones."""

from __future__ import annotations

from typing import Iterator

from ...judging.evidence import Peer, RoleStep
from .faults import InjectedFault
from .processes import Processes
from .shape import GENERATE, RESHARD, SYNC, TRAINER, JobShape, StageShape
from .simulation import Simulation
from .team import Team


class SimulatedJob(Simulation):
    """Steps of the roles of a `JobShape`. Rollouts and trainers of an async one do not wait for each other."""

    def build(self) -> None:
        """One role, or two."""
        for role, stages, peers in _roles(self.shape):
            faults = [fault for fault in self._faults if _is_of(fault, stages)]
            self.teams.append(Team(self.shape, role, stages, peers, faults, self.random))

    def play(self) -> Iterator[tuple[Processes, RoleStep]]:
        """A step of each role."""
        for team in self.teams:
            assert isinstance(team, Team)
            yield team, team.next_step()

    def steps(self, count: int) -> Iterator[RoleStep]:
        """So many steps of each role, in turns; fewer where one hangs."""
        ended = False
        for _ in range(count):
            for team, step in self.play():
                if ended:
                    return
                ended = team.hangs
                yield from team.handed_over(step)


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
