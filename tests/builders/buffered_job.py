"""Async jobs of which each side waits for the other: the same batches, whatever the numbers of trainers and rollouts.

The simulator's own async jobs have two roles that never meet, so that nothing says what other numbers would do. Here
rollouts make batch after batch, a share each, and trainers use them up, a share each; rollouts wait where too many
batches are ahead, trainers where none is whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator

import numpy as np
import numpy.typing as npt
from builders.simulated_job import GENERATE, RESHARD, TRAINER, StageShape, Team

from benchmarks.shapes.costs import training_cost
from mstxkit.judging.evidence import Peer, RoleStep
from mstxkit.reading import role_runs
from mstxkit.reading.role_runs import RoleRun
from mstxkit.testing.simulator import JobShape
from mstxkit.testing.simulator.work import SimulatedWork

Matrix = npt.NDArray[np.float64]


class BufferedJob:
    """One of them.

    Args:
        shape: Its `ranks` train and its `rollouts` generate.
        batch: Responses of a batch.
        usual: (trainers, rollouts) with which stages take their usual share of a step.
        seed: The same seed gives the same batches, whatever the numbers; noise of machines is drawn anew.
        ahead: So many batches may be begun beyond the one that is used.
    """

    def __init__(self, shape: JobShape, batch: int, usual: tuple[int, int], seed: int, ahead: int = 1) -> None:
        self._ahead = ahead
        self._batches = SimulatedWork(replace(shape, responses=batch), 1, np.random.default_rng([seed, 0]))
        noise = np.random.default_rng([seed, shape.ranks, shape.rollouts])
        self._makers = _Side(shape, "rollout", (GENERATE,), shape.ranks, shape.rollouts, batch / usual[1], noise)
        self._users = _Side(shape, "actor", (*TRAINER, RESHARD), 0, shape.ranks, batch / usual[0], noise)

    def steps(self, count: int) -> Iterator[RoleStep]:
        """So many steps of each role."""
        used = [0.0] * (self._ahead + 1)
        for _ in range(count):
            (batch,) = self._batches.lengths()
            made = self._makers.step_with(batch, used[-self._ahead - 1])
            yield made
            step = self._users.step_with(batch, float(np.nanmax(made.left_s)))
            used.append(self._users.ended_s)
            yield step._replace(collectives=None)


class _Side(Team):
    def __init__(
        self, shape: JobShape, role: str, stages: tuple[StageShape, ...], first: int, count: int, usual: float,
        random: np.random.Generator,
    ) -> None:  # fmt: skip
        ranks = range(first, first + count)
        peers = tuple(Peer(rank, f"host{rank // shape.ranks_per_host}", f"p{rank}") for rank in ranks)
        super().__init__(shape, role, stages, peers, (), random)
        self._usual, self._may_begin_s, self._batch = usual, 0.0, np.empty(0)

    def step_with(self, batch: Matrix, may_begin_s: float) -> RoleStep:
        """The next step, on that batch, and not before that moment."""
        self._batch, self._may_begin_s = batch, may_begin_s
        return self.next_step()

    def _lengths(self) -> Matrix:
        shares = np.array_split(self._batch, self.count)
        return np.array([np.pad(share, (0, len(shares[0]) - len(share))) for share in shares])

    def _begin_step(self) -> None:
        self.now = np.maximum(self.now, self._may_begin_s)

    def _cost(self, stage: StageShape, lengths: Matrix) -> Matrix:
        if stage.work == "responses":
            counts, longest, tokens = (lengths > 0).sum(axis=1), lengths.max(axis=1), lengths.sum(axis=1)
            self.tell(stage.key, tokens, counts.astype(float), longest)
            return self._generation_cost(lengths, counts, longest, tokens)
        if stage.work == "tokens":
            shared = np.minimum(lengths, 16_384.0).sum() / self.count * self.noise(0.05)
            self.tell(stage.key, shared)
            return training_cost(shared, 1650.0 * self._usual, self.shape.mismatch)
        return np.ones(self.count)

    def _generation_cost(self, lengths: Matrix, counts: Matrix, longest: Matrix, tokens: Matrix) -> Matrix:
        """As the simulator's, of shares of any size: a usual one costs about 1."""
        mismatch, usual = self.shape.mismatch, self._usual
        plain = 0.6 * longest / 5000 + 0.4 * tokens / (usual * 1650)
        running = (lengths > longest[:, None] / 2).sum(axis=1) / np.maximum(1, counts)
        square = (lengths**2).sum(axis=1) / (usual * 1650**2 * 1.9)
        cost: Matrix = plain * (1 + mismatch * 0.5 * (running - 0.25)) + mismatch * 0.1 * square
        return cost


def buffered_runs(
    trainers: int, rollouts: int, seed: int, usual: tuple[int, int] = (8, 8), steps: int = 60, mismatch: float = 0.3,
    ahead: int = 1, batch: int = 128,
) -> tuple[RoleRun, ...]:  # fmt: skip
    """Both roles of such a job, as the reader has them."""
    shape = JobShape(ranks=trainers, rollouts=rollouts, is_async=True, mismatch=mismatch)
    return role_runs.of_steps(list(BufferedJob(shape, batch, usual, seed, ahead).steps(steps)))
