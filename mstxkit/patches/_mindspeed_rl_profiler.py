"""MindSpeed-RL's own profiler beside mstxkit's sessions: never both at once, and each knows of the other.

Source: MindSpeed-RL 2.0.0 to 2.3.0 and master 05a90d7, utils/utils.py: `profiler_start` (:604) looks at stage and
iteration, asks `get_grpo_profiler` (:518) for a profiler, and returns None where it gets none, as its callers take it:
`profiler_step(None)` does nothing. A profiler of one stage records at once, until the next `profiler_step`. With
`stage: all` it is started when the worker is initialized and records from `profile_step_start` on, on its own. Making
one builds torch_npu's trace handler, which turns the output of a session that is open into another folder; so it is
not even made while there is one.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable

from .. import faults
from ..profiling import guard, others
from ._takes_over import is_taken_over

_SCHEDULE = ("skip_first", "wait", "warmup", "active")


# Profilers that were started, by id, until they have recorded: what takes back their announcement, and how many
# `profiler_step`s it is until then; None: not known, for as long as the profiler exists.
_followed: dict[int, tuple[Callable[[], None], int | None]] = {}


def made(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`get_grpo_profiler`: None while a session of mstxkit is open in this process, or where mstxkit takes over."""
    if is_taken_over("mindspeed_rl"):
        return None
    owner = guard.held()
    if owner is None:
        return upstream(*args, **kwargs)
    faults.warn_once(
        "mindspeed_rl.profiler",
        f"MindSpeed-RL's own profiler (profiler_config) is not started while mstxkit records here: {owner}",
    )
    return None


def started(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`profiler_start`: what it starts is announced until it has recorded, so that no session begins meanwhile."""
    profiler = upstream(*args, **kwargs)
    if profiler is not None:
        try:
            _follow(profiler)
        except Exception as exc:
            faults.note("mindspeed_rl.profiler", exc)
    return profiler


def _follow(profiler: Any) -> None:
    # First, as an object that cannot be watched cannot be announced: nobody would take it back.
    weakref.finalize(profiler, _done, id(profiler)).atexit = False
    steps = _steps(profiler)
    after = "when its worker is gone" if steps is None else f"after {steps} more of its profiler_step"
    undo = others.announce(
        "MindSpeed-RL",
        "MindSpeed-RL's own profiler is started or scheduled in this process (profiler_config.integrated); set "
        f"profile: false there, or ask again {after}",
    )
    _followed[id(profiler)] = undo, steps


def _steps(profiler: Any) -> int | None:
    """Until its schedule is over: it is made with repeat=1, and every `profiler_step` is one."""
    schedule = getattr(profiler, "schedule", None)
    counts = [getattr(schedule, name, None) for name in _SCHEDULE]
    return sum(counts) if all(type(count) is int for count in counts) else None  # type: ignore[arg-type]


def stepped(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`profiler_step`: one step of a profiler, which may be its last."""
    answer = upstream(*args, **kwargs)
    profiler = next(iter((*args, *kwargs.values())), None)
    undo, steps = _followed.get(id(profiler), (None, None))
    if undo is not None and steps is not None:
        _followed[id(profiler)] = undo, steps - 1
        if steps <= 1:
            _done(id(profiler))
    return answer


def _done(key: int) -> None:
    undo, _ = _followed.pop(key, (None, None))
    if undo is not None:
        undo()
