"""What a trigger declares of itself: settings with their allowed range."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(default: Any, least: float, most: float, meaning: str) -> Any:
    """A field of a trigger's settings: its type is that of `default`, and `meaning` says what it does."""
    return field(default=default, metadata={"least": least, "most": most, "meaning": meaning})
