"""Frameworks that carry out the profiling section of their own configuration by themselves, in this process.

Nothing is imported for it: what is not in `sys.modules` carries out nothing here.

Source: MindSpeed-RL 05a90d7 `utils/utils.py`, verl 0.6.1 to 0.9.1 `utils/profiler`, MindSpeed-LLM c77308a1 (both act
wherever they train); torch_npu 2.13.0 `profiler/_non_intrusive_profile.py` (PROF_CONFIG_PATH) and
`dynamic_profile.py`; mindspore 2.10.0 `profiler/envprofiler.py` (MS_PROFILER_OPTIONS) and
`profiler/dynamic_profiler.py` (where a `DynamicProfilerMonitor` exists).
"""

from __future__ import annotations

import os
import sys

from ...profiling import theirs
from ..planning import KEPT_FROM_THEIR_OWN

# By flavour of configuration: the modules that carry it out where they are loaded, and the variable without which not.
_ACTS = {
    "mindspeed_rl": ("mindspeed_rl", None),
    "verl": ("verl", None),
    "mindspeed_llm": ("mindspeed_llm", None),
    "mindspeed_llm_fsdp2": ("mindspeed_llm", None),
    "torch_npu": ("torch_npu", "PROF_CONFIG_PATH"),
    "mindspore": ("mindspore", None),
    "mindspore_env": ("mindspore", "MS_PROFILER_OPTIONS"),
}
# What `takes_over: true` hands on to every process: flavours, with commas.
TAKES_OVER = "MSTXKIT_TAKES_OVER"


def carried_out_by_itself(flavour: str) -> str:
    """Why mstxkit stays out of the way of this section's framework here, and what to do; empty where it does not."""
    module, variable = _ACTS.get(flavour, ("", None))
    if module not in sys.modules or (variable is not None and not os.environ.get(variable)):
        return ""
    if flavour == "mindspore" and not theirs.mindspore_monitor_exists():
        return ""
    taking_over = "give the file a section mstxkit: {takes_over: true}, or "
    how = taking_over if flavour in KEPT_FROM_THEIR_OWN else ""
    return (
        f"{flavour} is active: it carries out its own section here, and mstxkit stays out of its way; to let mstxkit "
        f"do it, {how}switch the framework's own off"
    )
