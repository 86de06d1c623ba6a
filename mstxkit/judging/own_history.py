"""What is expected of those who have no other in their place: what they took so far, if all the others still do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..triggers.late_rank import middle_of

Vector = npt.NDArray[np.float64]
# So many steps make a history; how fast it follows, and how much of a change it takes for noise.
_STEPS, _FOLLOWS, _CLIP = 8, 0.05, 0.1


class OwnHistory:
    """Logarithms of times of members, or of places of the model, by column."""

    def __init__(self) -> None:
        self._usual: dict[int, tuple[int, Vector]] = {}

    def forget(self) -> None:
        """Members have come or gone."""
        self._usual.clear()

    def excess(self, column: int, times: Vector, is_learned: bool = True) -> Vector:
        """Logarithm of the time over what each usually takes, less what all take more; and learn from it. NaN: unknown.

        Args:
            column: Of the piece.
            times: Logarithms; NaN: not there.
            is_learned: Is nothing known to be wrong there?
        """
        count, usual = self._usual.get(column, (0, times))
        if len(usual) != len(times):
            count, usual = 0, times
        usual = np.where(np.isfinite(usual), usual, times)
        more = times - usual
        # Of two the one that has become slower less is taken for healthy.
        common = np.fmin.reduce(more) if np.isfinite(more).sum() == 2 else middle_of(more)
        rate = max(1 / (count + 1), _FOLLOWS) * (is_learned or not count)
        bounded = np.clip(more, -_CLIP, _CLIP) if count > _STEPS else more
        self._usual[column] = count + 1, usual + rate * np.where(np.isnan(more), 0.0, bounded)
        return np.asarray(more - common if count >= _STEPS else np.full(len(times), np.nan))
