"""Dicts that are bounded: whoever came first is forgotten first."""

from __future__ import annotations

from typing import Any


def forget_oldest(entries: dict[Any, Any], at_most: int) -> None:
    """Leave so many of them, those that were put there last."""
    while len(entries) > at_most:
        del entries[next(iter(entries))]
