"""Steps and stages of the Python twin, as a program asks for them."""

from __future__ import annotations

import operator
from typing import Any

from ...store import records
from . import banks, ranges, sites, tracks, watch


def step(n: Any = None) -> int | None:
    """The next step, or step n, for this process; returns the step in force.

    A bad one is a counted fault, and ignored.
    """
    with banks.lock:
        if n is not None:
            wanted = _as_step(n)
        else:
            wanted = 0 if tracks.step is None else min(tracks.step + 1, records.STEP_MAX)
        if wanted is not None:
            tracks.step = wanted
            tracks.renew()
        in_force = tracks.step
    if wanted is not None:
        watch.stepped(wanted)
    return in_force


def _as_step(n: Any) -> int | None:
    try:
        wanted = operator.index(n)
        if 0 <= wanted <= records.STEP_MAX:
            return int(wanted)
        raise ValueError(f"step must be an int from 0 to {records.STEP_MAX}")
    except Exception as exc:
        ranges.fault("step", exc)
        return None


class at_step:
    """`with at_step(n)`: the step of the enclosing task only, and of tasks created inside."""

    __slots__ = ("_before", "_step")

    def __init__(self, n: Any) -> None:
        self._step = _as_step(n)
        self._before: int | None = None

    def __enter__(self) -> int | None:
        self._before = tracks.at_here()
        if self._step is not None:
            tracks.set_at(self._step)
        return current_step()

    def __exit__(self, *error: object) -> None:
        if self._step is not None:
            tracks.set_at(self._before)


def current_step() -> int | None:
    """The step in force, or None."""
    at = tracks.at_here()
    return tracks.step if at is None else at


def current_stage() -> str | None:
    """The key of the innermost stage, or None."""
    return sites.stage_key(tracks.stage_here())


def stage_times(step: Any = None) -> dict[str, float]:
    """Stage to seconds in this process, of a step or of the last finished one."""
    if step is not None:
        step = _as_step(step)
        if step is None:
            return {}
    return sites.stage_times(step, current_step())
