"""Who else profiles in this process, or may start to at any time: each with a sentence that says what to do.

Nothing is imported for it: what is not in `sys.modules` profiles nothing here.

Source: torch_npu 2.13.0 (`profiler/_non_intrusive_profile.py`, `analysis/prof_common_func/_utils.py`,
`_profiler_path_creator.py`), torch 2.13.0 `autograd/profiler.py`, mindspore 2.10.0 (`profiler/envprofiler.py`,
`platform/npu_profiler.py`, `profiler_interface.py`), verl 0.6.1 to 0.9.1 `utils/profiler/mstx_profile.py`,
MindSpeed-RL 05a90d7 `utils/utils.py`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from .. import faults


class Other(NamedTuple):
    """A profiler that is not mstxkit's, and has this process's device or may take it: `sentence` says what to do."""

    who: str
    sentence: str


_announced: dict[int, Other] = {}


def announce(who: str, sentence: str) -> Callable[[], None]:
    """Announce a profiler that is scheduled here and that nothing else shows yet: no session begins until the undo.

    For seams in frameworks: MindSpeed-RL's `profiler_start` returns a profiler that starts by itself at a later step.
    """
    other = Other(who, sentence)
    _announced[id(other)] = other

    def undo() -> None:
        _announced.pop(id(other), None)

    return undo


def others(environment: Mapping[str, str] | None = None) -> tuple[Other, ...]:
    """Everybody else who profiles this process or may start to at any time. Never raises.

    A session of mstxkit's own shows as what it is made with: ask before it starts. torch's
    and torch_npu's own are named only where no framework that uses them is found. Cost: microseconds.
    """
    outside = _in_environment(os.environ if environment is None else environment)
    inside = [*_announced.values(), *_look(_verl, _mindspore)]
    return (*outside, *(inside or _look(_torch_npu, _torch)))


def _look(*places_to_look: Callable[[], Other | None]) -> list[Other]:
    others_here = []
    for look in places_to_look:
        try:
            others_here.append(look())
        except Exception as exc:  # a version that keeps it elsewhere must not stop us
            faults.note("guard.others", exc)
    return [other for other in others_here if other is not None]


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
    name = "MSMONITOR_USE_DAEMON" if variables.get("MSMONITOR_USE_DAEMON") else "KINETO_USE_DAEMON"
    value = variables.get(name, "")
    if re.fullmatch(r"\s*\+?0*1\s*", value):  # torch_npu: int(value) == 1
        yield Other(
            "msMonitor",
            f"msMonitor's daemon (dynolog) may start a profiler in this process at any step ({name}={value}); unset "
            f"{name}, or profile with dyno instead",
        )
    path = variables.get("PROF_CONFIG_PATH")
    if path:
        yield Other(
            "torch_npu dynamic_profile",
            f"torch_npu's dynamic profiler follows {path}/profiler_config.json and may start at any step "
            "(PROF_CONFIG_PATH is set); unset PROF_CONFIG_PATH",
        )
    if _mindspore_starts(variables.get("MS_PROFILER_OPTIONS") or "{}"):
        sentence = "MindSpore profiles the whole run (MS_PROFILER_OPTIONS says start); unset MS_PROFILER_OPTIONS"
        yield Other("MindSpore", sentence)


def _mindspore_starts(text: str) -> bool:
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        return False  # MindSpore logs an error, and does not profile
    return isinstance(options, dict) and bool(options.get("start"))


def _verl() -> Other | None:
    profiler = getattr(sys.modules.get("verl.utils.profiler.mstx_profile"), "NPUProfiler", None)
    if not getattr(profiler, "_define_count", 0):
        return None
    return Other(
        "verl",
        f"verl's own profiler records this step{_into()} (global_profiler.steps); take the step out of "
        "global_profiler.steps, or ask again after it",
    )


def _mindspore() -> Other | None:
    interface = getattr(sys.modules.get("mindspore.profiler.profiler_interface"), "ProfilerInterface", None)
    sentence = "MindSpore's profiler is on in this process; ask again when it has stopped, or take it out"
    return Other("MindSpore", sentence) if getattr(interface, "is_initialized", False) else None


_TORCH = "a torch.profiler runs in this process; ask again when it has stopped, or take it out"


def _torch_npu() -> Other | None:
    """On any thread, while it warms up too: its folder is made when it begins, and done with when it ends."""
    creator = _path_creator()
    autograd = getattr(getattr(sys.modules.get("torch"), "_C", None), "_autograd", None)
    enabled = getattr(autograd, "_profiler_enabled", None)
    if not getattr(creator, "is_prof_inited", False) and (_torch() or enabled is None or not enabled()):
        return None
    if "torch_npu" not in sys.modules:
        return Other("torch", _TORCH)
    if "mindspeed_rl" in sys.modules:
        return Other(
            "MindSpeed-RL",
            f"torch_npu's profiler records in this process{_into()}, as MindSpeed-RL starts it for "
            "profiler_config.integrated; set profile: false there, or ask again after profile_step_end",
        )
    return Other(
        "torch_npu",
        f"torch_npu's profiler records in this process{_into()}; ask again when it has stopped, or take it out",
    )


def _torch() -> Other | None:
    is_on = getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False)
    return Other("torch", _TORCH) if is_on else None


def _path_creator() -> Any:
    """torch_npu's one object that knows the folder of the session."""
    made = getattr(sys.modules.get("torch_npu.profiler.profiler_interface"), "ProfPathCreator", None)
    return None if made is None else made()


def _into() -> str:
    creator = _path_creator()
    path = creator.get_prof_dir() if getattr(creator, "is_prof_inited", False) else None
    return f" into {path}" if path else ""
