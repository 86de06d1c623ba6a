"""Frameworks that carry out the profiling section of their own configuration by themselves, in this process.

Nothing is imported for it: what is not in `sys.modules` carries out nothing here.

Source: MindSpeed-RL 05a90d7 `utils/utils.py`, verl 0.6.1 to 0.9.1 `utils/profiler` (both act wherever they train);
MindSpeed-LLM 26.1.0 `training/training.py` (only with `--profile`, which Megatron's arguments hold) and
`fsdp2/utils/arguments.py` (the command line, whose first word may name a file, has `training.profile`); torch_npu
2.13.0 `profiler/_non_intrusive_profile.py` (PROF_CONFIG_PATH) and `dynamic_profile.py`; mindspore 2.10.0
`profiler/envprofiler.py` (MS_PROFILER_OPTIONS) and `profiler/dynamic_profiler.py` (where a `DynamicProfilerMonitor`
exists).
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import partial
from typing import Callable

from ...profiling import theirs
from ..planning import KEPT_FROM_THEIR_OWN


def _is_loaded(module: str, variable: str | None = None) -> bool:
    """Is a module loaded that carries its section out, with the variable set without which it does not?"""
    return module in sys.modules and (variable is None or bool(os.environ.get(variable)))


def _has_llm_asked() -> bool:
    """Is MindSpeed-LLM's own profiler asked for? That it is loaded says nothing."""
    if "mindspeed_llm" not in sys.modules:
        return False
    parsed = vars(sys.modules.get("megatron.training.global_vars", object)).get("_GLOBAL_ARGS")
    if parsed is not None:
        return bool(vars(parsed).get("profile"))
    words = sys.argv[1:]
    asked = [word.partition("=")[2] or after for word, after in zip(words, [*words[1:], ""]) if _FSDP2.match(word)]
    if not asked and words and words[0].endswith((".yaml", ".yml")):
        with suppress(OSError), open(words[0], encoding="utf-8", errors="replace") as file:
            asked = _IN_FILE.findall(file.read(1 << 20))
    return "--profile" in words or "true" in (word.lower() for word in asked[-1:])


_FSDP2, _IN_FILE = re.compile(r"--training\.profile(=|$)"), re.compile(r"^\s+profile\s*:\s*(\w+)", re.M)

# By flavour of configuration: does its framework carry it out here?
_ACTS: dict[str, Callable[[], bool]] = {
    "mindspeed_rl": partial(_is_loaded, "mindspeed_rl"),
    "verl": partial(_is_loaded, "verl"),
    "mindspeed_llm": _has_llm_asked,
    "mindspeed_llm_fsdp2": _has_llm_asked,
    "torch_npu": partial(_is_loaded, "torch_npu", "PROF_CONFIG_PATH"),
    "mindspore": theirs.mindspore_monitor_exists,
    "mindspore_env": partial(_is_loaded, "mindspore", "MS_PROFILER_OPTIONS"),
}
# What `takes_over: true` hands on to every process: flavours, with commas.
TAKES_OVER = "MSTXKIT_TAKES_OVER"


def carried_out_by_itself(flavour: str) -> str:
    """Why mstxkit stays out of the way of this section's framework here, and what to do; empty where it does not."""
    acts = _ACTS.get(flavour)
    if acts is None or not acts():
        return ""
    taking_over = "give the file a section mstxkit: {takes_over: true}, or "
    how = taking_over if flavour in KEPT_FROM_THEIR_OWN else ""
    return (
        f"{flavour} is active: it carries out its own section here, and mstxkit stays out of its way; to let mstxkit "
        f"do it, {how}switch the framework's own off"
    )
