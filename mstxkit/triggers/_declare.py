"""What a trigger declares of itself: its name, what it answers, and settings with their allowed range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Trigger:
    """One question that is answered from values.

    Args:
        name: As in the settings: `slow_rank` of `slow_rank.effect`.
        answers: The question.
        settings: A frozen dataclass whose fields are made by `setting`.
    """

    name: str
    answers: str
    settings: type


def setting(default: Any, least: float, most: float, meaning: str) -> Any:
    """A field of a trigger's settings: its type is that of `default`, and `meaning` says what it does."""
    return field(default=default, metadata={"least": least, "most": most, "meaning": meaning})
