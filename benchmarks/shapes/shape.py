"""What a shape of the matrix is besides a simulation: which faults it may have; and work that is drawn and told."""

from __future__ import annotations

from typing import ClassVar, Mapping, Sequence

import numpy as np

from mstxkit.judging.evidence import Peer
from mstxkit.testing.simulator import JobShape, Simulation
from mstxkit.testing.simulator.processes import SimulatedProcesses, Vector
from mstxkit.testing.simulator.work import CAP, TYPICAL

from .costs import generation_cost, training_cost


class Shape(Simulation):
    """A shape of the matrix.

    Attributes:
        at: Which faults it may have, and where: role and stage ("": all stages).
    """

    at: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def linked(self, rank: int) -> tuple[int, ...]:
        """Ranks that share a link with this one, and it; by itself: those that it meets."""
        return (rank,)

    def beside(self, rank: int, name: str, peers: Sequence[Peer]) -> tuple[int, ...]:
        """Of these members the ranks on the same "host", or with the same "place", as this one."""
        where = {peer.rank: getattr(peer, name) for peer in peers if peer.rank is not None}
        return tuple(other for other, of_other in where.items() if of_other == where[rank])


def generate(team: SimulatedProcesses, stage: str, usual_s: float, longer: float = 1.0) -> None:
    """A stage that generates responses of a heavy-tailed length, and says how many and how long they are."""
    lengths = team.work_drawn.lengths() * longer
    team.tell(stage, lengths.sum(axis=1), float(lengths.shape[1]), lengths.max(axis=1))
    team.compute(stage, usual_s * generation_cost(lengths, team.shape.mismatch) / _usual_cost(team.shape))


def _usual_cost(shape: JobShape) -> float:
    """Of generating, in the mean, where a rank has some 16 responses."""
    return float(0.6 * TYPICAL * np.exp(1.77 * shape.tail) / 5000 + 0.4 * _usual_tokens(shape) / 1650)


def _usual_tokens(shape: JobShape) -> float:
    return float(TYPICAL * np.exp(shape.tail**2 / 2))


def train_cost(team: SimulatedProcesses, stage: str, longer: Vector | float = 1.0) -> Vector:
    """(M,) about 1: what training on responses costs, shared out by their length; their tokens are told."""
    lengths = team.work_drawn.lengths()
    tokens = np.minimum(lengths, CAP).sum() / team.count * longer * team.noise(0.05)
    team.tell(stage, tokens)
    return training_cost(tokens, _usual_tokens(team.shape) * lengths.shape[1], team.shape.mismatch)
