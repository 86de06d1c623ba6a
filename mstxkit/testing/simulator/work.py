"""How much there is to do in a simulated step: responses with heavy tails, and how fast hosts are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .shape import JobShape

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
TYPICAL, CAP = 1200.0, 16_384.0


class SimulatedWork:
    """Responses of a step, rank by rank; what is cut off goes on in the next."""

    def __init__(self, shape: JobShape, ranks: int, random: np.random.Generator) -> None:
        self._shape, self._random, self._left = shape, random, np.zeros((ranks, shape.responses))
        self.hosts = np.clip(random.normal(0, 0.015, ranks // max(1, shape.ranks_per_host) + 1), -0.03, 0.03)

    def lengths(self) -> Matrix:
        """(ranks, responses) tokens of each response of the next step."""
        drawn = np.minimum(CAP, self._random.lognormal(np.log(TYPICAL), self._shape.tail, self._left.shape))
        if not self._shape.partial_tokens:
            return drawn
        whole = np.where(self._left > 0, self._left, drawn)
        now = np.minimum(whole, self._shape.partial_tokens)
        self._left = whole - now
        return now

    def speeds(self, ranks: int) -> Vector:
        """(ranks,) time over usual time of each host."""
        return 1 + self._shape.mismatch * self.hosts[np.arange(ranks) // max(1, self._shape.ranks_per_host)]

    def noise(self, size: tuple[int, ...], ratio: float) -> Matrix:
        """Factors around 1; with a mismatch some of them lie far out."""
        noise = self._random.normal(0, ratio, size)
        if self._shape.mismatch:
            heavy = np.clip(self._random.standard_t(3, size), -12, 12) * ratio * 0.6
            noise = np.where(self._random.random(size) < self._shape.mismatch, heavy, noise)
        factors: Matrix = np.exp(noise)
        return factors
