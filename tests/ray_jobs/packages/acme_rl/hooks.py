"""Set-up hooks of a user's own."""

from __future__ import annotations

import os


def leave_a_mark() -> None:
    import ray

    os.environ["THEIR_HOOK"] = f"ran, connected: {ray.is_initialized()}"


def fail() -> None:
    raise RuntimeError("their hook fails")
