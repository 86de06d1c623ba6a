"""Steps and stages of the Python twin, as a program asks for them."""

from __future__ import annotations

import operator
from typing import Any

from ...store import records
from . import banks, ranges, sinks, sites, sums, tracks, watch


def step(n: Any = None) -> int | None:
    """The next step, or step n, for this process: all its threads. Returns the step in force, None with MSTXKIT_OFF=1.

    A range keeps the step that is in force when it begins. What is no whole number from 0 on is counted as a fault and
    ignored.

    Args:
        n: Number of the step; None: one more than before, 0 at first.

    Example:
        >>> from mstxkit import step
        >>> step(), step(), step(10), step()
        (0, 1, 10, 11)
    """
    wanted = None if n is None else _as_step(n)  # outside of the lock: it may log
    with banks.lock:
        if n is None:
            wanted = 0 if tracks.step is None else min(tracks.step + 1, records.STEP_MAX)
        if wanted is not None and wanted != tracks.step:  # patched calls tell theirs again and again
            tracks.step = wanted
            tracks.renew()
            if ranges.is_recording:
                sums.step_is_over(sites.stages())
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
    """Give the enclosing task or thread a step of its own, and the tasks created inside.

    For trainers that have several steps in flight. Elsewhere `step` goes on to hold.

    Args:
        n: Number of the step, from 0 on.

    Example:
        >>> from mstxkit import at_step, current_step
        >>> with at_step(7):
        ...     current_step()
        7
    """

    __slots__ = ("_before", "_process", "_step")

    def __init__(self, n: Any) -> None:
        self._step = _as_step(n)
        self._before: int | None = None
        self._process = sinks.process

    def __enter__(self) -> int | None:
        self._before, self._process = tracks.at_here(), sinks.process
        if self._step is not None:
            tracks.set_at(self._step)
        return current_step()

    def __exit__(self, *error: object) -> None:
        if self._step is not None and self._process is sinks.process:  # a forked child is not inside of it
            tracks.set_at(self._before)


def carried() -> int | None:
    """Stage and step that the caller is inside of, for `carry` on another thread; None outside of any."""
    stage, at = tracks.stage_here(), tracks.at_here()
    return None if not stage and at is None else _packed(stage, current_step())


def carry(carried: int | None) -> int | None:
    """Be inside of these from now on, in the calling context; returns what to give to `carry` to leave them."""
    if carried is None:
        return None
    before = _packed(tracks.stage_here(), tracks.at_here())
    tracks.set_stage(carried & 0xFFFF)
    tracks.set_at(carried >> 16 & records.NO_STEP if carried >> 48 else None)
    return before


def _packed(stage: int, step: int | None) -> int:
    return stage | (0 if step is None else step << 16 | 1 << 48)


def current_step() -> int | None:
    """The step in force, that of `at_step` before that of `step`; None until one is set.

    Example:
        >>> from mstxkit import current_step, step
        >>> step(3)
        3
        >>> current_step()
        3
    """
    at = tracks.at_here()
    return tracks.step if at is None else at


def current_stage() -> str | None:
    """The key of the innermost stage that this task or thread is inside of, or None.

    None also while nothing records and nothing listens: a program must not decide by it what it computes.

    Example:
        >>> import mstxkit
        >>> with mstxkit.capture("runs/exp7"), mstxkit.stage("reward"):
        ...     mstxkit.current_stage()
        'reward'
    """
    return sites.stage_key(tracks.stage_here())


def stage_times(step: Any = None) -> dict[str, float]:
    """Stage to seconds in this process, of a step or of the last finished one."""
    if step is not None:
        step = _as_step(step)
        if step is None:
            return {}
    return sites.stage_times(step, current_step())


def stage_keys() -> list[str]:
    """The keys of all stages, in the order of their ids from 1."""
    return [stage.key for stage in sites.stages()]


def stage_waits() -> dict[str, str]:
    """Key of each stage whose ranges have said `waits_for`, to whom; "" where that was no text."""
    return dict(sites.waits)


def process_step() -> int | None:
    """The step in force, whatever `at_step` says."""
    return tracks.step


def take_summaries(everything: bool = False) -> bytes:
    """What is to be handed over of the stages of steps that are over: rows of 40 bytes, `store/summaries.py`.

    Args:
        everything: Also of the step in force, and of what is in no step: at the end.
    """
    with banks.lock:
        return sums.take(sites.stages(), tracks.step, bool(everything))
