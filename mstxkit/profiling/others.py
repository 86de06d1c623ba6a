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
from typing import Any, Callable, Mapping, NamedTuple, Union

from .. import faults


class Other(NamedTuple):
    """A profiler that is not mstxkit's, and has this process's device or may take it.

    Args:
        who: Its name.
        sentence: What shows it, and what to do.
    """

    who: str
    sentence: str


Found = Union[Other, None]
_announced: dict[int, Other] = {}


def announce(who: str, sentence: str) -> Callable[[], None]:
    """Say of a profiler that is scheduled here, and that nothing else shows yet: sessions are refused until the undo.

    For seams in frameworks: MindSpeed-RL's `profiler_start` returns a profiler that starts by itself at a later step.

    Args:
        who: Its name.
        sentence: What it will do, and what the user can do.
    """
    other = Other(who, sentence)
    _announced[id(other)] = other

    def undo() -> None:
        _announced.pop(id(other), None)

    return undo


def others(environment: Mapping[str, str] | None = None) -> tuple[Other, ...]:
    """Everybody else who profiles this process or may start to at any time. Never raises.

    A session of mstxkit's own shows as what it is made with: ask before it starts. torch's
    and torch_npu's own are named only where no framework that uses them was found. Cost: microseconds.
    """
    variables = os.environ if environment is None else environment
    outside = [found for look in _IN_THE_ENVIRONMENT for found in [look(variables)] if found]
    inside = [*_announced.values(), *_look(_verl, _mindspore)]
    return tuple(outside + (inside or _look(_torch_npu, _torch)))


def _look(*places_to_look: Callable[[], Found]) -> list[Other]:
    found = []
    for look in places_to_look:
        try:
            other = look()
        except Exception as exc:  # a version that keeps it elsewhere must not stop us
            faults.note("guard.others", exc)
            continue
        found += [other] if other else []
    return found


def _msprof(variables: Mapping[str, str]) -> Found:
    if not variables.get("PROFILER_SAMPLECONFIG"):
        return None
    return Other(
        "msprof",
        "msprof started this program (PROFILER_SAMPLECONFIG is set) and owns the device: no profiler can be started "
        "inside it; start the program without msprof",
    )


def _msprof_dynamic(variables: Mapping[str, str]) -> Found:
    mode = variables.get("PROFILING_MODE")
    if mode is None:
        return None
    return Other(
        "msprof",
        f"PROFILING_MODE={mode!r} gives the device to msprof, and both torch_npu's and MindSpore's profiler refuse to "
        "start; unset PROFILING_MODE",
    )


def _daemon(variables: Mapping[str, str]) -> Found:
    name = "MSMONITOR_USE_DAEMON" if variables.get("MSMONITOR_USE_DAEMON") else "KINETO_USE_DAEMON"
    value = variables.get(name, "")
    if not re.fullmatch(r"\s*\+?0*1\s*", value):  # torch_npu: int(value) == 1
        return None
    return Other(
        "msMonitor",
        f"msMonitor's daemon (dynolog) may start a profiler in this process at any step ({name}={value}); unset "
        f"{name}, or profile with dyno instead",
    )


def _dynamic_config(variables: Mapping[str, str]) -> Found:
    path = variables.get("PROF_CONFIG_PATH")
    if not path:
        return None
    return Other(
        "torch_npu dynamic_profile",
        f"torch_npu's dynamic profiler follows {path}/profiler_config.json and may start at any step "
        "(PROF_CONFIG_PATH is set); unset PROF_CONFIG_PATH",
    )


def _mindspore_options(variables: Mapping[str, str]) -> Found:
    try:
        options = json.loads(variables.get("MS_PROFILER_OPTIONS") or "{}")
    except (ValueError, RecursionError):
        return None  # MindSpore logs an error, and does not profile
    if not isinstance(options, dict) or not options.get("start"):
        return None
    return Other(
        "MindSpore",
        "MindSpore profiles the whole run (MS_PROFILER_OPTIONS says start); unset MS_PROFILER_OPTIONS",
    )


_IN_THE_ENVIRONMENT = (_msprof, _msprof_dynamic, _daemon, _dynamic_config, _mindspore_options)


def _verl() -> Found:
    profiler = getattr(sys.modules.get("verl.utils.profiler.mstx_profile"), "NPUProfiler", None)
    if not getattr(profiler, "_define_count", 0):
        return None
    return Other(
        "verl",
        f"verl's own profiler records this step{_into()} (global_profiler.steps); take the step out of "
        "global_profiler.steps, or ask again after it",
    )


def _mindspore() -> Found:
    interface = getattr(sys.modules.get("mindspore.profiler.profiler_interface"), "ProfilerInterface", None)
    if not getattr(interface, "is_initialized", False):
        return None
    return Other(
        "MindSpore", "MindSpore's profiler is on in this process; ask again when it has stopped, or take it out"
    )


_TORCH = "a torch.profiler runs in this process; ask again when it has stopped, or take it out"


def _torch_npu() -> Found:
    """On any thread, while it warms up too: its folder is made when it begins, and done with when it ends."""
    creator = _path_creator()
    enabled = getattr(_autograd(), "_profiler_enabled", None)
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


def _torch() -> Found:
    if not getattr(sys.modules.get("torch.autograd.profiler"), "_is_profiler_enabled", False):
        return None
    return Other("torch", _TORCH)


def _autograd() -> Any:
    return getattr(getattr(sys.modules.get("torch"), "_C", None), "_autograd", None)


def _path_creator() -> Any:
    """torch_npu's one object that knows the folder of the session."""
    made = getattr(sys.modules.get("torch_npu.profiler.profiler_interface"), "ProfPathCreator", None)
    return None if made is None else made()


def _into() -> str:
    creator = _path_creator()
    path = creator.get_prof_dir() if getattr(creator, "is_prof_inited", False) else None
    return f" into {path}" if path else ""
