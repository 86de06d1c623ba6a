"""One role of a simulated job: its ranks go through the stages of a step, and wait for each other in collectives."""

from __future__ import annotations

from collections import deque
from typing import Iterator, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from ...judging.evidence import Collectives, Peer, RoleStep, Work
from .faults import InjectedFault
from .shape import GENERATE, JobShape, StageShape
from .work import SimulatedWork, generation_cost, training_cost

Vector = npt.NDArray[np.float64]
FIRST_RINGS, RINGS_EVERY, RINGS_EVERY_S = 20, 100, 60.0
# Of a stage with collectives: shares of its time that they take, and that comes after the last of them.
_LINK, _TAIL = 0.08, 0.08
_EXTRA = 1 / 3
_JITTER_RATE, _IDLE_RATE = 0.15, 0.15


class _Entry(NamedTuple):
    """What all did in one collective of each group."""

    stage: int
    entered_s: Vector
    left_s: Vector


class Team:
    """The ranks of one role.

    Attributes:
        role: Its name.
        is_asked: Are rings asked for?
        hangs: Will there be no further step?
    """

    def __init__(
        self, shape: JobShape, role: str, stages: tuple[StageShape, ...], peers: tuple[Peer, ...],
        faults: Sequence[InjectedFault], random: np.random.Generator,
    ) -> None:  # fmt: skip
        self.role, self.is_asked, self.hangs = role, False, False
        self._shape, self._stages, self._peers, self._faults, self._random = shape, stages, peers, faults, random
        self._count, self._number = len(peers), 0
        self._work = SimulatedWork(shape, self._count, random)
        self._speeds = self._work.speeds(self._count)
        self._now = np.zeros(self._count) + 1000.0
        self._ring: deque[tuple[RoleStep, list[_Entry]]] = deque(maxlen=shape.ring_steps)
        self._dumped_s, self._dumped = 0.0, False
        self._is_free = not any(stage.collectives for stage in stages)

    @property
    def ended_s(self) -> float:
        """When the step that was gone through last was over: for the last rank, or in the mean where nobody waits."""
        return float(np.nanmean(self._now) if self._is_free else np.fmax.reduce(self._now))

    # One step.

    def next_step(self) -> RoleStep:
        """Go through the next step."""
        number, count, shape = self._number, self._count, self._shape
        lengths = self._lengths(number)
        arrays = {
            name: np.full((count, len(self._stages)), np.nan) for name in ("entered", "left", "tokens", "n", "long")
        }
        entries: list[_Entry] = []
        self._begin_step(number)
        for at, stage in enumerate(self._stages):
            self._gap(stage, number)
            arrays["entered"][:, at] = self._now
            work = self._cost(stage, lengths, arrays, at)
            self._run(stage, at, work * stage.share * shape.step_s, number, entries)
            arrays["left"][:, at] = self._now
        step = self._as_step(number, arrays)
        self._ring.append((step, entries))
        self._number += 1
        return step

    def _factor(self, kinds: tuple[str, ...], stage: str, number: int) -> Vector:
        """(M,) how much longer it takes for faults of these kinds."""
        factors = np.ones(self._count)
        for fault in self._faults:
            if fault.kind in kinds and fault.stage == stage:
                factors[self._members(fault)] *= fault.factor_at(number)
        return factors

    def _faults_on(self, number: int, kind: str, stage: StageShape) -> list[InjectedFault]:
        """Those of a kind that a stage has in this step."""
        return [
            fault for fault in self._faults if (fault.kind, fault.stage) == (kind, stage.key) and fault.is_on(number)
        ]

    def _members(self, fault: InjectedFault) -> list[int]:
        """Of an async job, ranks of a role do not begin at 0."""
        return [place for place, peer in enumerate(self._peers) if peer.rank == fault.rank]

    def _extra_s(self, kind: str, stage: str, number: int) -> Vector:
        """(M,) seconds more, as a share of a third of the step."""
        return (self._factor((kind,), stage, number) - 1) * _EXTRA * self._shape.step_s

    def _lengths(self, number: int) -> npt.NDArray[np.float64]:
        lengths = self._work.lengths()
        for fault in self._faults:
            if fault.kind == "slow_sample" and fault.is_on(number):
                rank = self._random.integers(self._count)
                lengths[rank, 0] = lengths[rank, 0] if fault.factor == 1 else 16_384.0 * 2
            if fault.kind == "more_work" and fault.is_on(number):
                lengths[self._members(fault)] *= fault.factor
        return lengths

    def _begin_step(self, number: int) -> None:
        if self._is_free:
            idle = self._random.random(self._count) < _IDLE_RATE
            self._now = self._now + np.where(idle, self._random.exponential(0.2 * self._shape.step_s, self._count), 0.0)
        if self._shape.is_async and not self._is_free:  # for what is in the buffer
            self._now = self._now + self._random.exponential(0.05 * self._shape.step_s)

    def _gap(self, stage: StageShape, number: int) -> None:
        if self._shape.is_dispatched and not self._is_free:
            self._now = np.full(self._count, self._now.max() + 0.004)
        self._now = self._now + self._random.lognormal(np.log(0.002), 0.5, self._count)
        self._now = self._now + self._extra_s("gap", stage.key, number)

    def _cost(
        self, stage: StageShape, lengths: npt.NDArray[np.float64], arrays: dict[str, npt.NDArray[np.float64]], at: int
    ) -> Vector:
        """(M,) about 1; what is told of it goes into the arrays."""
        if stage.work == "responses":
            arrays["tokens"][:, at], arrays["long"][:, at] = lengths.sum(axis=1), lengths.max(axis=1)
            arrays["n"][:, at] = lengths.shape[1]
            return generation_cost(lengths, self._shape.mismatch)
        if stage.work == "tokens":  # shared out by length, but for what cannot be
            total = float(np.minimum(lengths, 16_384.0).sum()) / self._count
            tokens = total * self._work.noise((self._count,), 0.05)
            arrays["tokens"][:, at] = tokens
            return training_cost(tokens, 1650.0 * lengths.shape[1], self._shape.mismatch)
        return np.ones(self._count)

    def _run(self, stage: StageShape, at: int, usual_s: Vector, number: int, entries: list[_Entry]) -> None:
        noise = self._shape.noise_ratio
        slower = self._factor(("before", "input", "drift", "all"), stage.key, number)
        if self._faults_on(number, "all", stage):
            slower = np.full(self._count, slower.max())
        took = usual_s * self._speeds * slower * self._work.noise((self._count,), noise)
        took = took + self._extra_s("input", stage.key, number) + self._stalls(stage, number)
        if not stage.collectives:
            self._now = self._now + took
        else:
            self._meet(stage, at, took, number, entries)
        self._hang(stage, number)

    def _stalls(self, stage: StageShape, number: int) -> Vector:
        stalls = np.zeros(self._count)
        for fault in self._faults_on(number, "jitter", stage):
            if self._random.random() < _JITTER_RATE:
                stalls[self._random.integers(self._count)] += (fault.factor - 1) * self._shape.step_s
        return stalls

    def _hang(self, stage: StageShape, number: int) -> None:
        for fault in self._faults_on(number, "hang", stage):
            self.hangs = True
            self._now[self._members(fault)] = np.nan

    # Where they meet.

    def _meet(self, stage: StageShape, at: int, took: Vector, number: int, entries: list[_Entry]) -> None:
        inside, tail = took * (1 - _LINK - _TAIL), took * _TAIL
        inside = inside * self._factor(("inside",), stage.key, number)
        link_s = _LINK * stage.share * self._shape.step_s / stage.collectives
        groups = self._groups()
        links = self._faults_on(number, "link", stage)
        slow = groups[[member for fault in links for member in self._members(fault)]]
        for _ in range(stage.collectives):
            spread = self._work.noise((self._count,), self._shape.noise_ratio)
            entered = self._now + inside / stage.collectives * spread
            released = _latest_of(entered, groups)
            times = link_s * self._work.noise((int(groups.max()) + 1,), 0.1)
            times[slow] *= self._link_factor(stage, number)
            self._now = released + times[groups] + self._random.exponential(2e-5, self._count)
            entries.append(_Entry(at, entered, self._now.copy()))
        self._now = self._now + tail + self._extra_s("behind", stage.key, number)

    def _groups(self) -> npt.NDArray[np.int64]:
        size = self._shape.group_ranks or self._count
        return np.arange(self._count) // size

    def _link_factor(self, stage: StageShape, number: int) -> float:
        return max([f.factor_at(number) for f in self._faults if f.kind == "link" and f.stage == stage.key] or [1.0])

    # What is handed over.

    def _as_step(self, number: int, arrays: dict[str, npt.NDArray[np.float64]]) -> RoleStep:
        offset = self._offsets(number)[:, None]
        entered, left = arrays["entered"] + offset, arrays["left"] + offset
        there = np.isfinite(entered) & np.isfinite(left)
        total = left - entered
        values = {"weight_version": float(number)} if self._shape.is_async else {}
        return RoleStep(
            self.role, number, self._peers, tuple(stage.key for stage in self._stages), entered, left, total,
            total.copy(), total.copy(), there.astype(float), Work(arrays["tokens"], arrays["n"], arrays["long"]),
            np.full(self._count, self._shape.error_s), None, values,
        )  # fmt: skip

    def _offsets(self, number: int) -> Vector:
        """(M,) by how much each clock is wrong: within its bound."""
        offsets = np.zeros(self._count)
        for fault in self._faults:
            if fault.kind == "clock" and fault.is_on(number):
                offsets[self._members(fault)] += fault.factor
        return offsets

    def handed_over(self, step: RoleStep) -> Iterator[RoleStep]:
        """What a judge gets when this step is over."""
        if not self._is_dumping(step):
            yield self._but_who_left(step)
            return
        self._dumped_s, self._dumped, self.is_asked = float(np.nanmax(self._now)), True, False
        for before, entries in list(self._ring)[:-1]:
            yield self._but_who_left(before._replace(collectives=self._collectives(entries, before)))
        yield self._but_who_left(step._replace(collectives=self._collectives(self._ring[-1][1], step)))

    def _is_dumping(self, step: RoleStep) -> bool:
        if not self._shape.has_rings or self._is_free:
            return False
        if self.is_asked or step.step == FIRST_RINGS:
            return True
        is_time = self._dumped and float(np.nanmax(self._now)) - self._dumped_s >= RINGS_EVERY_S
        return step.step > FIRST_RINGS and (is_time or (step.step - FIRST_RINGS) % RINGS_EVERY == 0)

    def _collectives(self, entries: list[_Entry], step: RoleStep) -> Collectives:
        count, calls = self._count, len(entries)
        groups = self._groups()
        offset = np.tile(self._offsets(step.step), calls)
        left = np.concatenate([entry.left_s for entry in entries])
        return Collectives(
            np.tile(np.arange(count), calls), np.tile(groups, calls),
            np.repeat(np.arange(calls) + step.step * calls, count),
            np.concatenate([entry.entered_s for entry in entries]) + offset,
            left + offset if self._shape.knows_left else np.full(len(left), np.nan),
            np.repeat([entry.stage for entry in entries], count),
            self._ranks_of_groups(groups),
        )  # fmt: skip

    def _ranks_of_groups(self, groups: npt.NDArray[np.int64]) -> dict[int, tuple[int, ...]]:
        ranks: dict[int, list[int]] = {}
        for peer, group in zip(self._peers, groups.tolist()):
            ranks.setdefault(group, []).append(peer.rank or 0)
        return {group: tuple(members) for group, members in ranks.items()}

    def _but_who_left(self, step: RoleStep) -> RoleStep:
        """The step without the rank that has left."""
        leaves = self._shape.leaves_at
        generates = any(stage.key == GENERATE.key for stage in self._stages)
        if leaves < 0 or not generates or not leaves <= step.step < leaves + 20:
            return step
        rings = step.collectives
        if rings is not None:
            rings = rings.only(rings.member < self._count - 1)
        return step._replace(
            members=step.members[:-1], work=Work(*(part[:-1] for part in step.work)), collectives=rings,
            **{
                name: getattr(step, name)[:-1]
                for name in ("entered_s", "left_s", "total_s", "busy_s", "longest_s", "occurrences", "error_s")
            },
        )  # fmt: skip


def _latest_of(entered: Vector, groups: npt.NDArray[np.int64]) -> Vector:
    latest = np.full(int(groups.max()) + 1, -np.inf)
    np.fmax.at(latest, groups, entered)
    return latest[groups]
