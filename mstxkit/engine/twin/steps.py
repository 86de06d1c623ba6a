"""Steps and stages as a program asks for them."""

from __future__ import annotations

import operator
from typing import Any

from ...store import records
from . import banks, clock, interruptions, listeners, sites, sums, tracks
from .interruptions import begins_with_try


def step(n: Any = None) -> int | None:
    """The next step, or step n, for this process: all its threads."""
    wanted = None if n is None else _as_step(n)  # outside of the lock: it may log
    with banks.lock:
        if n is None:
            wanted = 0 if tracks.step == records.NO_STEP else min(tracks.step + 1, records.STEP_MAX)
        if wanted is not None and wanted != tracks.step:  # patched calls tell theirs again and again
            tracks.step = wanted
            if listeners.on & listeners.RECORD:
                sums.step_is_over(sites.stages())
        if wanted is not None and tracks.first_said is None and listeners.on & listeners.RECORD:
            tracks.first_said = [wanted, clock.now()]
        in_force = process_step()
    if wanted is not None:
        listeners.tell_step(wanted)
    return in_force


def _as_step(n: Any) -> int | None:
    """Step n; None, and a fault, where there is no such step."""
    if type(n) is int and 0 <= n <= records.STEP_MAX:
        return n
    try:
        wanted = operator.index(n)
        if 0 <= wanted <= records.STEP_MAX:
            return int(wanted)
        raise ValueError(f"step must be an int from 0 to {records.STEP_MAX}")
    except Exception as exc:
        interruptions.note("step", exc)
        return None


class at_step:
    """Give the enclosing task or thread a step of its own, and the tasks created inside."""

    def __init__(self, n: Any) -> None:
        self._step, self._process = _as_step(n), listeners.process
        self._before: int | None = None

    def __enter__(self) -> int | None:
        self._before, self._process = tracks.ambient.get()[1], listeners.process
        try:
            self._be_at(self._step)
            return current_step()
        except BaseException:
            self.__exit__()
            raise

    @begins_with_try
    def __exit__(self, *error: object) -> None:
        try:
            self._be_at(self._before)
        finally:
            self._be_at(self._before)  # where the first time was interrupted

    def _be_at(self, step: int | None) -> None:
        if self._step is not None and self._process is listeners.process:  # a forked child is not inside of it
            tracks.be_inside(tracks.stage_here(), step)


def carried() -> int | None:
    """Stage and step that the caller is inside of, for `carry` on another thread; None outside of any."""
    return None if tracks.stage_here() is None and tracks.ambient.get()[1] is None else _pack_place(current_step())


def carry(carried: int | None) -> int | None:
    """Be inside of these from now on, in the calling context; returns what to give to `carry` to leave them."""
    if carried is None:
        return None
    before, stage_id = _pack_place(tracks.ambient.get()[1]), carried & 0xFFFF
    stage = sites.stages()[stage_id - 1] if stage_id else None
    tracks.be_inside(stage, carried >> 16 & records.NO_STEP if carried >> 48 else None)
    return before


def _pack_place(step: int | None) -> int:
    stage = tracks.stage_here()
    return (0 if stage is None else stage.id) | (0 if step is None else step << 16 | 1 << 48)


def current_step() -> int | None:
    """The step in force, that of `at_step` before that of `step`; None until one is set."""
    at = tracks.ambient.get()[1]
    return process_step() if at is None else at


def current_stage() -> str | None:
    """The key of the innermost stage that this task or thread is inside of, or None."""
    return getattr(tracks.stage_here(), "key", None)


def stage_times(step: Any = None) -> dict[str, float]:
    """Stage to seconds in this process, of a step or of the last finished one.

    None: of the latest step before the one in force that has any, else of the latest that has any.
    """
    times = {stage.key: dict(stage.times) for stage in sites.stages()}
    if step is not None:
        wanted = _as_step(step)
    else:
        steps, in_force = {step for by_step in times.values() for step in by_step} - {records.NO_STEP}, current_step()
        finished = [step for step in steps if in_force is not None and step < in_force]
        wanted = max(finished or steps, default=records.NO_STEP)
    return {key: by_step[wanted] * 1e-9 for key, by_step in times.items() if wanted in by_step}


def process_step() -> int | None:
    """The step in force, whatever `at_step` says."""
    return None if tracks.step == records.NO_STEP else tracks.step


def take_summaries(everything: bool = False) -> bytes:
    """What is to be handed over of the stages of steps that are over: rows of 40 bytes, `store/summaries.py`."""
    with banks.Turn():
        return sums.take(sites.stages(), process_step(), bool(everything))
