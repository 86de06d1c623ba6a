"""Processes of one role in virtual time: what they may do in a step, each by its own clock.

A shape of a job plays a step by these: work, meet, send and receive, wait. What is drawn at random never depends on
when something happens, so that the same job without a fault differs from it by the fault alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from ...judging.evidence import MEET, RECEIVE, SEND, Peer, RoleStep, Work
from .faults import InjectedFault
from .rings import SimulatedRings
from .shape import JobShape
from .work import SimulatedWork

Vector = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
_ENTERED, _LEFT, _TOTAL, _COUNT, _OPENED, _TOKENS, _RESPONSES, _LONGEST_RESPONSE = range(8)
_POOL = 1 << 13
_ALL: Any = slice(None)


class Parcel(NamedTuple):
    """What some have sent to others, one each: from whom, to whom, and when it is there."""

    senders: Whole
    receivers: Whole
    there_s: Vector


class SimulatedProcesses:
    """The processes of one role.

    Attributes:
        role, peers: Who they are.
        now: (M,) when each is done with what it did last.
        number: Of the step that they are in.
        rings: Their flight recorders.
        hangs: Will there be no further step?
    """

    def __init__(
        self, shape: JobShape, role: str, peers: tuple[Peer, ...], random: np.random.Generator,
        faults: Sequence[InjectedFault] = (), waits_for: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.role, self.peers, self.shape, self.random = role, peers, shape, random
        self.count, self.number, self.hangs = len(peers), 0, False
        self.now = np.full(self.count, 1000.0)
        self.work_drawn, self.rings = SimulatedWork(shape, self.count, random), SimulatedRings(shape, peers)
        self._speeds = self.work_drawn.speeds(self.count)
        self._faults, self._waits_for = tuple(faults), dict(waits_for or {})
        self._stages: dict[str, Vector] = {}
        self._slower: dict[tuple[str, tuple[str, ...]], Vector] = {}
        self._pool, self._used = np.empty(0), 0

    @property
    def ended_s(self) -> float:
        """When the last of them is done."""
        return float(np.fmax.reduce(self.now))

    # What they do.

    @contextmanager
    def stage(self, name: str, who: Any = _ALL) -> Iterator[None]:
        """They are in that stage."""
        values = self._draw_values(name)
        values[_OPENED, who] = self.now[who]
        values[_ENTERED, who] = np.fmin(values[_ENTERED, who], self.now[who])
        yield
        took = self.now[who] - values[_OPENED, who]
        values[_LEFT, who] = self.now[who]
        values[_TOTAL, who] += took
        values[_COUNT, who] += 1

    def work(self, stage: str, usual_s: float | Vector, where: str = "before", who: Any = _ALL) -> None:
        """They compute, for about so long.

        Args:
            stage: For the faults that it has.
            usual_s: One for all, or of each of `who`.
            where: Which kinds of faults besides "compute" it may have: "before", "inside", "behind", "input" or "gap".
            who: Those alone.
        """
        slower = self._speeds[who] * self.slowness(stage, where, "compute", "drift")[who]
        self.now[who] += usual_s * slower * self.noise(self.shape.noise_ratio, who)

    def compute(self, stage: str, usual_s: float | Vector, where: str = "before", who: Any = _ALL) -> None:
        """A stage in which they only compute."""
        with self.stage(stage, who):
            self.work(stage, usual_s, where, who)

    def wait_until(self, moment_s: float | Vector, who: Any = _ALL) -> None:
        """They go on no earlier than then; who waited needs a moment to begin."""
        self.now[who] = np.maximum(self.now[who], moment_s) + self.random.exponential(2e-4, self.count)[who]

    def meet(self, stage: str, groups: Whole | None = None, link_s: float = 2e-4, who: Whole | None = None) -> None:
        """All of a group go on when the last of it has come, and what they exchange has gone through.

        Args:
            stage: In which.
            groups: (M,) whose number each has; None: all are one, 0.
            link_s: How long the exchange takes.
            who: Those alone.
        """
        groups = np.zeros(self.count, np.int64) if groups is None else groups
        members = np.arange(self.count) if who is None else who
        _, places = np.unique(groups[members], return_inverse=True)
        entered = self.now[members]
        times = link_s * self.factors(int(places.max()) + 1, 0.1)
        slowest, latest = np.ones(len(times)), np.full(len(times), -np.inf)
        np.maximum.at(slowest, places, self.slowness(stage, "link")[members])
        np.fmax.at(latest, places, entered)
        left = (latest + times * slowest)[places] + self.random.exponential(2e-5, len(members))
        self.now[members] = left
        self.rings.add(stage, MEET, members, groups[members], entered, left)

    def send(self, stage: str, senders: Whole, receivers: Whole, link_s: float = 2e-4) -> Parcel:
        """Hand something on; who sends goes on at once."""
        entered, is_slow = self.now[senders], self.slowness(stage, "link")
        self.now[senders] += 2e-5
        times = link_s * self.factors(len(senders), 0.1)
        times *= np.where(is_slow[receivers] > 1, np.maximum(1.0, is_slow[senders]), 1.0)
        self.rings.add(stage, SEND, senders, self.rings.pairs_of(senders, receivers), entered, self.now[senders])
        return Parcel(senders, receivers, entered + times)

    def receive(self, stage: str, parcel: Parcel) -> None:
        """Wait for what was sent."""
        senders, receivers, there = parcel
        entered = self.now[receivers]
        self.now[receivers] = np.maximum(entered, there) + 2e-5
        self.rings.add(stage, RECEIVE, receivers, self.rings.pairs_of(senders, receivers), entered, self.now[receivers])

    def tell(
        self, stage: str, tokens: Vector, responses: Vector | float = np.nan, longest_response: Vector | float = np.nan
    ) -> None:
        """How much they do there, more of it with each call."""
        values = self._draw_values(stage)
        for place, more in ((_TOKENS, tokens), (_RESPONSES, responses)):
            values[place] = np.where(np.isnan(values[place]), more, values[place] + more)
        values[_LONGEST_RESPONSE] = np.fmax(values[_LONGEST_RESPONSE], longest_response)

    def noise(self, ratio: float, who: Any = _ALL) -> Vector:
        """Factors around 1, of each; with a mismatch some of them lie far out."""
        return self.factors(self.count if who is _ALL else len(who), ratio)

    def factors(self, count: int, ratio: float) -> Vector:
        """So many of them."""
        if self._used + count > len(self._pool):  # drawn in advance: a pipeline asks for a few at a time
            self._pool, self._used = np.log(self.work_drawn.noise((max(_POOL, count),), 1.0)), 0
        self._used += count
        return np.exp(ratio * self._pool[self._used - count : self._used])

    # By faults.

    def slowness(self, stage: str, *kinds: str) -> Vector:
        """(M,) how much longer it takes there, in this step, for faults of these kinds."""
        factors = self._slower.get((stage, kinds))
        if factors is None:
            factors = self._slower[stage, kinds] = np.ones(self.count)
            for fault in (fault for kind in kinds for fault in self.faults_on(kind, stage)):
                factors[self.members(fault)] *= fault.factor_at(self.number)
        return factors

    def faults_on(self, kind: str, stage: str | None = None) -> list[InjectedFault]:
        """Those of a kind that are there in this step: in a stage, or wherever."""
        return [
            fault for fault in self._faults
            if fault.kind == kind and (stage is None or fault.stage in ("", stage)) and fault.is_on(self.number)
        ]  # fmt: skip

    def members(self, fault: InjectedFault) -> list[int]:
        """Who has it in this step; ranks of a role need not begin at 0."""
        return [at for at, peer in enumerate(self.peers) if fault.has(self.role, peer.rank, self.number)]

    # What is handed over.

    def close(self) -> RoleStep:
        """The step is over: all that was seen of it; the next one begins."""
        offsets, stages = np.zeros(self.count), tuple(self._stages)
        for fault in self.faults_on("clock"):  # by how much each clock is wrong: within its bound
            offsets[self.members(fault)] += fault.factor
        of = np.stack([self._stages[stage] for stage in stages], axis=2)
        total = np.where(of[_COUNT] > 0, of[_TOTAL], np.nan)
        count = np.where(np.isfinite(total), of[_COUNT], 0.0)
        step = RoleStep(
            self.role, self.number, self.peers, stages, of[_ENTERED] + offsets[:, None], of[_LEFT] + offsets[:, None],
            total, count, Work(of[_TOKENS], of[_RESPONSES], of[_LONGEST_RESPONSE]),
            np.full(self.count, self.shape.error_s), self.rings.of_step(stages, offsets), None,
            {stage: whom for stage, whom in self._waits_for.items() if stage in stages},
        )  # fmt: skip
        self.number, self._stages, self._slower = self.number + 1, {}, {}
        return step

    def handed_over(self, step: RoleStep) -> Iterator[RoleStep]:
        """What a judge gets when this step is over."""
        return self.rings.handed_over(step)

    def begin_again(self, number: int, peers: tuple[Peer, ...], after_s: float) -> None:
        """All are started again, by other names, and count from there."""
        self.peers, self.number, self.now = peers, number, np.full(self.count, self.ended_s + after_s)

    def _draw_values(self, stage: str) -> Vector:
        values = self._stages.get(stage)
        if values is None:
            values = np.full((8, self.count), np.nan)
            values[[_TOTAL, _COUNT]] = 0.0
            self._stages[stage] = values
        return values
