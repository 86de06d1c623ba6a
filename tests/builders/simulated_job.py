"""The simulated job of one or two roles that `JobShape` describes whole: trainers that generate too, or async ones."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.shapes.costs import generation_cost, training_cost
from mstxkit.judging.evidence import Peer, RoleStep, Work
from mstxkit.testing.simulator.faults import InjectedFault
from mstxkit.testing.simulator.processes import SimulatedProcesses, Vector
from mstxkit.testing.simulator.shape import JobShape
from mstxkit.testing.simulator.simulation import Simulation, Steps

# Of a stage with collectives: shares of its time that they take, and that comes after the last of them.
_LINK, _TAIL = 0.08, 0.08
_EXTRA = 1 / 3
_JITTER_RATE, _IDLE_RATE = 0.15, 0.15
_BACK_AFTER = 20


class StageShape(NamedTuple):
    """A stage: its share of the step, how many collectives are in it (0: nobody waits), and what it works on."""

    key: str
    share: float
    collectives: int = 0
    work: str = ""


GENERATE = StageShape("actor_generate", 0.40, 0, "responses")
SYNC = (
    StageShape("load_batch", 0.03),
    GENERATE,
    StageShape("reward", 0.06, 0, "tokens"),
    StageShape("actor_compute_log_prob", 0.14, 2, "tokens"),
    StageShape("actor_update", 0.28, 4, "tokens"),
)
RESHARD = StageShape("weight_sync", 0.06, 2)
TRAINER = tuple(stage for stage in SYNC if stage.key != GENERATE.key)


class SimulatedJob(Simulation):
    """Steps of the roles of a `JobShape`, in turns. Rollouts and trainers of an async one never wait for each other."""

    def build(self) -> None:
        """One role, or two."""
        shape, reshard = self.shape, (RESHARD,) if self.shape.reshards else ()
        roles = [("rollout", (GENERATE,), shape.rollouts, shape.ranks), ("actor", TRAINER, shape.ranks, 0)]
        for role, stages, count, first in roles if shape.is_async else [("actor", SYNC + reshard, shape.ranks, 0)]:
            self.teams.append(Team(shape, role, stages, self.peers(count, first), self._faults, self.random))

    def play(self) -> Steps:
        """A step of each role."""
        for team in self.teams:
            assert isinstance(team, Team)
            yield team, team.next_step()

    def steps(self, count: int) -> Iterator[RoleStep]:
        """So many steps of each role; fewer where one hangs."""
        for _ in range(count):
            for team, step in self.play():
                yield from team.handed_over(step)
                if team.hangs:
                    return


class Team(SimulatedProcesses):
    """The ranks of one role of it: they go through the stages of a step, and wait for each other in collectives."""

    def __init__(
        self, shape: JobShape, role: str, stages: tuple[StageShape, ...], peers: tuple[Peer, ...],
        faults: Sequence[InjectedFault], random: np.random.Generator,
    ) -> None:  # fmt: skip
        super().__init__(shape, role, peers, random, faults)
        self._plan, self._groups = stages, np.arange(self.count) // (shape.group_ranks or self.count)
        self._is_free = not any(stage.collectives for stage in stages)

    @property
    def ended_s(self) -> float:
        """When the step that was gone through last was over: for the last rank, or in the mean where nobody waits."""
        return float(np.nanmean(self.now) if self._is_free else np.fmax.reduce(self.now))

    def factors(self, count: int, ratio: float) -> Vector:
        """Drawn as they are asked for, so that a seed means the same job as ever."""
        return self.work_drawn.noise((count,), ratio)

    def next_step(self) -> RoleStep:
        """Go through the next step."""
        lengths = self._lengths()
        self._begin_step()
        for stage in self._plan:
            if self.shape.is_dispatched and not self._is_free:
                self.now = np.full(self.count, self.now.max() + 0.004)
            self.now = (
                self.now + self.random.lognormal(np.log(0.002), 0.5, self.count) + self._extra_s("gap", stage.key)
            )
            with self.stage(stage.key):
                self._go_through(stage, self._cost(stage, lengths) * stage.share * self.shape.step_s)
        return self.close()

    def _extra_s(self, kind: str, stage: str) -> Vector:
        """(M,) seconds more, as a share of a third of the step."""
        return (self.slowness(stage, kind) - 1) * _EXTRA * self.shape.step_s

    def _lengths(self) -> npt.NDArray[np.float64]:
        lengths = self.work_drawn.lengths()
        for fault in self.faults_on("slow_sample"):
            rank = self.random.integers(self.count)
            lengths[rank, 0] = lengths[rank, 0] if fault.factor == 1 else 16_384.0 * 2
        for fault in self.faults_on("more_work"):
            lengths[self.members(fault)] *= fault.factor
        return lengths

    def _begin_step(self) -> None:
        if self._is_free:
            idle = self.random.random(self.count) < _IDLE_RATE
            self.now = self.now + np.where(idle, self.random.exponential(0.2 * self.shape.step_s, self.count), 0.0)
        elif self.shape.is_async:  # for what is in the buffer
            self.now = self.now + self.random.exponential(0.05 * self.shape.step_s)

    def _cost(self, stage: StageShape, lengths: npt.NDArray[np.float64]) -> Vector:
        """(M,) about 1; what is known of it is told."""
        count = float(lengths.shape[1])
        if stage.work == "responses":
            self.tell(stage.key, lengths.sum(axis=1), count, lengths.max(axis=1))
            return generation_cost(lengths, self.shape.mismatch)
        if stage.work == "tokens":  # shared out by length, but for what cannot be
            tokens = float(np.minimum(lengths, 16_384.0).sum()) / self.count * self.noise(0.05)
            self.tell(stage.key, tokens)
            return training_cost(tokens, 1650.0 * count, self.shape.mismatch)
        return np.ones(self.count)

    def _go_through(self, stage: StageShape, usual_s: Vector) -> None:
        slower = self.slowness(stage.key, "before", "input", "drift", "compute", "all")
        took = usual_s * self._speeds * slower * self.noise(self.shape.noise_ratio) + self._extra_s("input", stage.key)
        for fault in self.faults_on("jitter", stage.key):
            if self.random.random() < _JITTER_RATE:
                took[self.random.integers(self.count)] += (fault.factor - 1) * self.shape.step_s
        if stage.collectives:
            self._meet_often(stage, took)
        else:
            self.now = self.now + took
        for fault in self.faults_on("hang", stage.key):
            self.hangs = True
            self.now[self.members(fault)] = np.nan

    def _meet_often(self, stage: StageShape, took: Vector) -> None:
        inside = took * (1 - _LINK - _TAIL) * self.slowness(stage.key, "inside")
        link_s = _LINK * stage.share * self.shape.step_s / stage.collectives
        for _ in range(stage.collectives):
            self.now = self.now + inside / stage.collectives * self.noise(self.shape.noise_ratio)
            self.meet(stage.key, self._groups, link_s)
        self.now = self.now + took * _TAIL + self._extra_s("behind", stage.key)

    def handed_over(self, step: RoleStep) -> Iterator[RoleStep]:
        """What a judge gets when this step is over; while a rank has left, without it."""
        leaves = self.shape.leaves_at if GENERATE in self._plan else -1
        for shown in super().handed_over(step):
            yield _without_last(shown) if 0 <= leaves <= shown.step < leaves + _BACK_AFTER else shown


def _without_last(step: RoleStep) -> RoleStep:
    kept, rings = len(step.members) - 1, step.collectives
    names = ("members", "entered_s", "left_s", "total_s", "occurrences", "error_s")
    return step._replace(
        work=Work(*(part[:kept] for part in step.work)), **{name: getattr(step, name)[:kept] for name in names},
        collectives=None if rings is None else rings.only(rings.member < kept),
    )  # fmt: skip
