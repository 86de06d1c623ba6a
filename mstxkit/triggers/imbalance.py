"""Who has more work than the others step after step: its time is explained by that, and its machine is not slow."""

from __future__ import annotations

from dataclasses import dataclass

from ._declare import setting


@dataclass(frozen=True)
class Imbalance:
    """When is work shared out badly?"""

    effect: float = setting(0.15, 0.01, 10, "Time that its work takes more than the others', as a share.")
    impact: float = setting(0.03, 0.0, 1, "Share of the step that this is at least.")
    steps: int = setting(8, 1, 1000, "Steps in which it was seen, at least.")
    # More work than the others have takes at most so much more of its logarithm than the regression foresees.
    curvature: float = setting(0.5, 0.0, 10, "By how much more than was learned work may cost (exponent).")


TRIGGER = Imbalance
