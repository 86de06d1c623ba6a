"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from typing import Callable, TypeVar

T = TypeVar("T")


def until(found: Callable[[], T], within_s: float = 120.0) -> T:
    """What it gives once that is true; an error where it never is."""
    deadline = time.monotonic() + within_s
    while not (value := found()):
        assert time.monotonic() < deadline, f"it did not come to that: {found}"
        time.sleep(0.02)
    return value
