"""When a profiler with a schedule records: how many of its steps it is until then, and how many it takes.

torch's `profile`, torch_npu's and MindSpore's all keep `schedule`, `step_num` and `current_action`. Only schedules of
these frameworks are asked about later steps: they are pure functions; one that a user wrote may not be.

Source: torch 2.13.0 `profiler/profiler.py`, torch_npu 2.13.0 `profiler/scheduler.py`, mindspore 2.10.0
`profiler/schedule.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_LOOKS_AHEAD = 2000
_OF_FRAMEWORKS = ("torch.profiler.profiler", "torch_npu.profiler.scheduler", "mindspore.profiler.schedule")
_IDLE = ("NONE", "DEVICE_STOPPED")


class StepWindow(NamedTuple):
    """Steps in which a profiler warms up or records."""

    begins_in: int = 0  # steps from now on; 0: it is on
    lasts: int | None = None  # steps, from now or from then on; None: until somebody stops it
    since: int = 0  # steps for which it has been on

    def words(self, step: int | None) -> str:
        """Which steps, where now is `step`; empty where nobody knows."""
        if step is None or (self.begins_in == 0 and self.lasts is None):
            return ""
        first = step + self.begins_in - self.since
        if self.lasts is None:
            return f"from step {first} on"
        last = step + self.begins_in + self.lasts - 1
        return f"step {first}" if last == first else f"steps {first} to {last}"


def planned(profiler: Any) -> StepWindow | None:
    """The one that is on, else the next one; None where there is none, or none that can be known before."""
    schedule, step = profiler.schedule, profiler.step_num
    is_on = _is_on(profiler.current_action)
    if not is_known(schedule):
        return StepWindow() if is_on else None
    begins_in = 0 if is_on else next((k for k in range(1, _LOOKS_AHEAD) if _is_on(schedule(step + k))), None)
    if begins_in is None:
        return None
    first = step + begins_in
    lasts = next((k for k in range(1, _LOOKS_AHEAD) if not _goes_on(schedule, first + k)), None)
    earlier = range(min(first, _LOOKS_AHEAD)) if is_on else ()
    since = next((k for k in earlier if not _goes_on(schedule, first - k)), len(earlier))
    return StepWindow(begins_in, lasts, since)


def is_known(schedule: Any) -> bool:
    """Is it one of a framework's own schedules, which has an end or a beginning?"""
    of = schedule if hasattr(schedule, "__qualname__") else type(schedule)
    return of.__module__ in _OF_FRAMEWORKS and not of.__qualname__.startswith("_")


def _goes_on(schedule: Any, step: int) -> bool:
    """Is this step in the same window as the one before it?"""
    before = schedule(step - 1)
    return _is_on(schedule(step)) and _is_on(before) and before.name != "RECORD_AND_SAVE"


def _is_on(action: Any) -> bool:
    return getattr(action, "name", None) not in (*_IDLE, None)
