"""Who else profiles in this process, or is about to: since when, in which steps, and what to do about it.

What a launcher owns from outside keeps every session out. All others have windows: a session waits for one that is on,
or that begins within its own steps; what begins unforeseen is given way to (`theirs.py`). Nothing is imported for it:
what is not in `sys.modules` profiles nothing here.

When a profiler with a schedule records: torch's `profile`, torch_npu's and MindSpore's all keep `schedule`, `step_num`
and `current_action`. Only schedules of these frameworks are asked about later steps: they are pure functions; one that
a user wrote may not be.

Source: torch_npu 2.13.0 (`profiler/dynamic_profile.py`, `analysis/prof_common_func/_utils.py`,
`_profiler_path_creator.py`, `scheduler.py`), torch 2.13.0 (`autograd/profiler.py`, `profiler/profiler.py`), mindspore
2.10.0 (`profiler/envprofiler.py`, `platform/npu_profiler.py`, `profiler_interface.py`, `schedule.py`), verl 0.6.1 to
0.9.1 `utils/profiler/mstx_profile.py`, MindSpeed-RL 05a90d7 `utils/utils.py`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from .. import faults
from ..engine.choose import engine
from . import theirs

_LOOKS_AHEAD = 2000
_OF_FRAMEWORKS = ("torch.profiler.profiler", "torch_npu.profiler.scheduler", "mindspore.profiler.schedule")
_IDLE = ("NONE", "DEVICE_STOPPED")


class Other(NamedTuple):
    """A profiler that is not mstxkit's, and has this process's device or is about to take it."""

    who: str
    sentence: str  # since when, and what to do
    waits_for: str = ""  # what a session waits for, in words; empty where that never ends
    begins_in: int = 0  # steps until it begins; 0: it is on, or may be at any moment


def find_others(environment: Mapping[str, str] | None = None) -> tuple[Other, ...]:
    """Everybody else who profiles this process, or may start to before this step is over, seen from this thread.

    A session of mstxkit's own shows as what it is made with: ask before it starts. torch's
    and torch_npu's own are named only where nothing else is found. Never raises. Cost: microseconds.
    """
    return _find_here(threading.get_ident(), os.environ if environment is None else environment)


def in_the_way() -> str:
    """What a session of this thread would have to wait for, in words; empty where nothing, or where no wait helps."""
    here = find_others()
    return "" if any(not other.waits_for for other in here) else "; ".join(other.waits_for for other in here)


def list_coming(thread: int | None) -> tuple[tuple[str, int], ...]:
    """Profiles that are on or planned, in words, and the steps until then. Any thread. Never raises.

    `thread` is the one that trains; None: not known.
    """
    on = [other for other in _find_here(thread, os.environ) if other.waits_for]
    later = [other for other in _find_scheduled(thread) if other.begins_in]
    return tuple((other.waits_for, other.begins_in) for other in _keep_once([*on, *later]))


def _find_here(thread: int | None, variables: Mapping[str, str]) -> tuple[Other, ...]:
    inside = [other for other in _find_scheduled(thread) if other.begins_in == 0]
    inside = inside or _look_around(_find_verl, _find_mindspore) or _look_around(_torch_npu, _find_torch)
    return (*_in_environment(variables), *_keep_once(inside))


def _find_scheduled(thread: int | None) -> list[Other]:
    """Profilers whose steps can be foreseen, and those that may begin on any thread but this one."""
    seen = [lambda each=each: _of_live(each, thread) for each in list(theirs.live.values())]
    return _look_around(*seen, _find_dynamic)


def _keep_once(others_here: list[Other]) -> list[Other]:
    """One of each owner, as it is seen first."""
    return list({other.who: other for other in reversed(others_here)}.values())


def _look_around(*places_to_look: Callable[[], Other | None]) -> list[Other]:
    others_here = []
    for look in places_to_look:
        try:
            others_here.append(look())
        except Exception as exc:  # a version that keeps it elsewhere must not stop us
            faults.note_fault("guard.others", exc)
    return [other for other in others_here if other is not None]


def _of_live(each: theirs.Theirs, thread: int | None) -> Other | None:
    """A session is ended on its own thread only: what may begin on another one is waited for beforehand."""
    profiler = each.profiler()
    if profiler is None:
        return None
    window = find_window(profiler)
    if window is not None and each.is_started:
        is_elsewhere = thread is not None and each.thread != thread and window.begins_in == 1
        return _describe_window(each.who, window._replace(begins_in=0) if is_elsewhere else window, each)
    is_over = each.is_started and is_known(profiler.schedule)
    if is_over or thread is None or each.thread == thread:
        return None
    return _describe_window(each.who, StepWindow(), each)


def _find_dynamic() -> Other | None:
    """torch_npu's dynamic profiler once it has read what to record; that may begin within a step, by an optimizer."""
    holder = getattr(sys.modules.get("torch_npu.profiler.dynamic_profile"), "_DynamicProfile", None)
    state = None if holder is None else holder._instance.get(holder._cls)
    if state is None or (state.prof is None and state.cfg_ctx is None):
        return None
    if state.prof is not None:
        return _describe_window(theirs.dynamic_name(), StepWindow(0, state.step_num or None))
    wanted = state.cfg_ctx
    begins_in = 1 if wanted.start() else wanted.start_step() - state.cur_step
    lasts = wanted.active() + wanted.warmup()
    return _describe_window(theirs.dynamic_name(), StepWindow(begins_in - 1, lasts)) if begins_in > 0 else None


def _describe_window(who: str, window: StepWindow, each: theirs.Theirs | None = None) -> Other:
    steps, since = window.words(engine.current_step()), ""
    if each is not None:
        at = time.strftime("%H:%M:%S UTC", time.gmtime(each.since_ns / 1e9))
        name = next((thread.name for thread in threading.enumerate() if thread.ident == each.thread), "that has ended")
        since = f"{'started' if each.is_started else 'made'} at {at} on thread {name}"
    begins = "is on" if window.begins_in == 0 else f"begins in {window.begins_in} steps"
    sentence = f"{who}'s profile {', '.join(filter(None, [begins, steps, since]))}; ask again after it, or take it out"
    return Other(who, sentence, ", ".join(filter(None, [f"{who}'s profile", steps or since])), window.begins_in)


def _in_environment(variables: Mapping[str, str]) -> Iterator[Other]:
    """Who the environment lets in."""
    if variables.get("PROFILER_SAMPLECONFIG"):
        yield Other(
            "msprof",
            "msprof started this program (PROFILER_SAMPLECONFIG is set) and owns the device: no profiler can be "
            "started inside it; start the program without msprof",
        )
    mode = variables.get("PROFILING_MODE")
    if mode is not None:
        yield Other(
            "msprof",
            f"PROFILING_MODE={mode!r} gives the device to msprof, and both torch_npu's and MindSpore's profiler refuse "
            "to start; unset PROFILING_MODE",
        )
    try:
        options = json.loads(variables.get("MS_PROFILER_OPTIONS") or "{}")
    except (ValueError, RecursionError):
        options = None  # MindSpore logs an error, and does not profile
    if isinstance(options, dict) and options.get("start"):
        sentence = "MindSpore profiles the whole run (MS_PROFILER_OPTIONS says start); unset MS_PROFILER_OPTIONS"
        yield Other("MindSpore", sentence)


def _find_verl() -> Other | None:
    profiler = getattr(sys.modules.get("verl.utils.profiler.mstx_profile"), "NPUProfiler", None)
    if not getattr(profiler, "_define_count", 0):
        return None
    return Other(
        "verl",
        f"verl's own profiler records this step{_find_target() or ''} (global_profiler.steps); take the step out of "
        "global_profiler.steps, or ask again after it",
        "verl's profile",
    )


def _find_mindspore() -> Other | None:
    interface = getattr(sys.modules.get("mindspore.profiler.profiler_interface"), "ProfilerInterface", None)
    sentence = "MindSpore's profiler is on in this process; ask again when it has stopped, or take it out"
    is_on = getattr(interface, "is_initialized", False)
    return Other("MindSpore", sentence, "MindSpore's profile") if is_on else None


_TORCH = "a torch.profiler runs in this process; ask again when it has stopped, or take it out"
_OF_TORCH = Other("torch", _TORCH, "torch's profile")


def _torch_npu() -> Other | None:
    """On any thread, while it warms up too: its folder is made when it begins, and done with when it ends."""
    target = _find_target()
    autograd = getattr(getattr(sys.modules.get("torch"), "_C", None), "_autograd", None)
    enabled = getattr(autograd, "_profiler_enabled", None)
    if target is None and (_find_torch() or enabled is None or not enabled()):
        return None
    if "torch_npu" not in sys.modules:
        return _OF_TORCH
    who, what_to_do = "torch_npu", "; ask again when it has stopped, or take it out"
    if "mindspeed_rl" in sys.modules:
        starts_it = ", as MindSpeed-RL starts it for profiler_config.integrated"
        who = "MindSpeed-RL"
        what_to_do = f"{starts_it}; set profile: false there, or ask again after profile_step_end"
    sentence = f"torch_npu's profiler records in this process{target or ''}{what_to_do}"
    return Other(who, sentence, f"{who}'s profile")


def _find_torch() -> Other | None:
    is_on = getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False)
    return _OF_TORCH if is_on else None


def _find_target() -> str | None:
    """Where torch_npu's profiler records, as a part of a sentence; None while it has no folder."""
    interface = sys.modules.get("torch_npu.profiler.profiler_interface")
    creator: Any = getattr(interface, "ProfPathCreator", lambda: None)()
    if not getattr(creator, "is_prof_inited", False):
        return None
    path = creator.get_prof_dir()
    return f" into {path}" if path else ""


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


def find_window(profiler: Any) -> StepWindow | None:
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
