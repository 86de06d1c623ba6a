"""A closer look because somebody asked for it by the number of a step; off by default."""

from __future__ import annotations

from dataclasses import dataclass

from ._declare import setting


@dataclass(frozen=True)
class OnRequest:
    """Which step was asked for?"""

    step: int = setting(-1, -1, 0xFFFFFFFE, "One light step of each role once this step is over; -1: none.")


TRIGGER = OnRequest


def is_asked(settings: OnRequest, step: int, last_step: int | None) -> bool:
    """Is this the first step at or past the one that was asked for?

    Args:
        settings: Of this trigger.
        step: The step that is over.
        last_step: The one before it; None at the beginning.
    """
    return 0 <= settings.step <= step and (last_step is None or last_step < settings.step)
