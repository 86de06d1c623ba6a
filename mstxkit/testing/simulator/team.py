"""One role of a `SimulatedJob`: its ranks go through the stages of a step, and wait for each other in collectives."""

from __future__ import annotations

from typing import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...judging.evidence import Peer, RoleStep
from .faults import InjectedFault
from .processes import Processes, Vector, Whole
from .shape import GENERATE, JobShape, StageShape
from .work import generation_cost, training_cost

# Of a stage with collectives: shares of its time that they take, and that comes after the last of them.
_LINK, _TAIL = 0.08, 0.08
_EXTRA = 1 / 3
_JITTER_RATE, _IDLE_RATE = 0.15, 0.15


class Team(Processes):
    """The ranks of one role."""

    def __init__(
        self, shape: JobShape, role: str, stages: tuple[StageShape, ...], peers: tuple[Peer, ...],
        faults: Sequence[InjectedFault], random: np.random.Generator,
    ) -> None:  # fmt: skip
        super().__init__(shape, role, peers, random, faults)
        self._stages_shaped = stages
        self._is_free = not any(stage.collectives for stage in stages)

    @property
    def ended_s(self) -> float:
        """When the step that was gone through last was over: for the last rank, or in the mean where nobody waits."""
        return float(np.nanmean(self.now) if self._is_free else np.fmax.reduce(self.now))

    def factors(self, count: int, ratio: float) -> Vector:
        """Drawn as they are asked for, so that a seed means the same job as ever."""
        return self.work_drawn.noise((count,), ratio)

    # One step.

    def next_step(self) -> RoleStep:
        """Go through the next step."""
        lengths = self._lengths()
        self._begin_step()
        for shaped in self._stages_shaped:
            self._gap(shaped)
            with self.stage(shaped.key):
                usual_s = self._cost(shaped, lengths) * shaped.share * self.shape.step_s
                self._run(shaped, usual_s)
        return self.close({"weight_version": float(self.number)} if self.shape.is_async else {})

    def _factor(self, kinds: tuple[str, ...], stage: str) -> Vector:
        """(M,) how much longer it takes for faults of these kinds."""
        factors = np.ones(self.count)
        for fault in self._faults:
            if fault.kind in kinds and fault.stage == stage:
                factors[self._members(fault)] *= fault.factor_at(self.number)
        return factors

    def _faults_on(self, kind: str, stage: StageShape) -> list[InjectedFault]:
        """Those of a kind that a stage has in this step."""
        return [f for f in self._faults if (f.kind, f.stage) == (kind, stage.key) and f.is_on(self.number)]

    def _extra_s(self, kind: str, stage: str) -> Vector:
        """(M,) seconds more, as a share of a third of the step."""
        return (self._factor((kind,), stage) - 1) * _EXTRA * self.shape.step_s

    def _lengths(self) -> npt.NDArray[np.float64]:
        lengths = self.work_drawn.lengths()
        for fault in self._faults:
            if fault.kind == "slow_sample" and fault.is_on(self.number):
                rank = self.random.integers(self.count)
                lengths[rank, 0] = lengths[rank, 0] if fault.factor == 1 else 16_384.0 * 2
            if fault.kind == "more_work" and fault.is_on(self.number):
                lengths[self._members(fault)] *= fault.factor
        return lengths

    def _begin_step(self) -> None:
        if self._is_free:
            idle = self.random.random(self.count) < _IDLE_RATE
            self.now = self.now + np.where(idle, self.random.exponential(0.2 * self.shape.step_s, self.count), 0.0)
        if self.shape.is_async and not self._is_free:  # for what is in the buffer
            self.now = self.now + self.random.exponential(0.05 * self.shape.step_s)

    def _gap(self, stage: StageShape) -> None:
        if self.shape.is_dispatched and not self._is_free:
            self.now = np.full(self.count, self.now.max() + 0.004)
        self.now = self.now + self.random.lognormal(np.log(0.002), 0.5, self.count)
        self.now = self.now + self._extra_s("gap", stage.key)

    def _cost(self, stage: StageShape, lengths: npt.NDArray[np.float64]) -> Vector:
        """(M,) about 1; what is known of it is told."""
        unknown = np.full(self.count, np.nan)
        if stage.work == "responses":
            counts = np.full(self.count, float(lengths.shape[1]))
            self.tell(stage.key, lengths.sum(axis=1), counts, lengths.max(axis=1))
            return generation_cost(lengths, self.shape.mismatch)
        if stage.work == "tokens":  # shared out by length, but for what cannot be
            total = float(np.minimum(lengths, 16_384.0).sum()) / self.count
            tokens = total * self.noise(0.05)
            self.tell(stage.key, tokens, unknown, unknown)
            return training_cost(tokens, 1650.0 * lengths.shape[1], self.shape.mismatch)
        return np.ones(self.count)

    def _run(self, stage: StageShape, usual_s: Vector) -> None:
        slower = self._factor(("before", "input", "drift", "compute", "all"), stage.key)
        if self._faults_on("all", stage):
            slower = np.full(self.count, slower.max())
        took = usual_s * self._speeds * slower * self.noise(self.shape.noise_ratio)
        took = took + self._extra_s("input", stage.key) + self._stalls(stage)
        if not stage.collectives:
            self.now = self.now + took
        else:
            self._meet_often(stage, took)
        self._hang(stage)

    def _stalls(self, stage: StageShape) -> Vector:
        stalls = np.zeros(self.count)
        for fault in self._faults_on("jitter", stage):
            if self.random.random() < _JITTER_RATE:
                stalls[self.random.integers(self.count)] += (fault.factor - 1) * self.shape.step_s
        return stalls

    def _hang(self, stage: StageShape) -> None:
        for fault in self._faults_on("hang", stage):
            self.hangs = True
            self.now[self._members(fault)] = np.nan

    def _meet_often(self, stage: StageShape, took: Vector) -> None:
        inside, tail = took * (1 - _LINK - _TAIL), took * _TAIL
        inside = inside * self._factor(("inside",), stage.key)
        link_s = _LINK * stage.share * self.shape.step_s / stage.collectives
        for _ in range(stage.collectives):
            self.now = self.now + inside / stage.collectives * self.noise(self.shape.noise_ratio)
            self.meet(stage.key, self._groups(), link_s)
        self.now = self.now + tail + self._extra_s("behind", stage.key)

    def _groups(self) -> Whole:
        return np.arange(self.count) // (self.shape.group_ranks or self.count)

    # What is handed over.

    def handed_over(self, step: RoleStep) -> Iterator[RoleStep]:
        """What a judge gets when this step is over."""
        return (self._but_who_left(shown) for shown in super().handed_over(step))

    def _but_who_left(self, step: RoleStep) -> RoleStep:
        """The step without the rank that has left."""
        leaves = self.shape.leaves_at
        generates = any(stage.key == GENERATE.key for stage in self._stages_shaped)
        if leaves < 0 or not generates or not leaves <= step.step < leaves + 20:
            return step
        rings = step.collectives
        if rings is not None:
            rings = rings.only(rings.member < self.count - 1)
        return step._replace(
            members=step.members[:-1], work=type(step.work)(*(part[:-1] for part in step.work)), collectives=rings,
            **{
                name: getattr(step, name)[:-1]
                for name in ("entered_s", "left_s", "total_s", "busy_s", "longest_s", "occurrences", "error_s")
            },
        )  # fmt: skip
