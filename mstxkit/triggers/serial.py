"""What one member, or a few, do alone in a stage while all others wait for them."""

from __future__ import annotations

from dataclasses import dataclass

from ._declare import setting


@dataclass(frozen=True)
class Serial:
    """When is a stage of a few said to keep all others waiting?"""

    impact: float = setting(0.02, 0.0, 1, "Share of the step that it costs, at least.")
    steps: int = setting(8, 1, 1000, "Steps in which it did, at least.")
    alone: float = setting(0.125, 0.0, 0.5, "Share of the members that are in it, at most; one always may be.")


TRIGGER = Serial
