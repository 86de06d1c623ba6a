"""A framework whose own profiling section mstxkit carries out instead (`mstxkit: {takes_over: true}`): it starts none.

Source: MindSpeed-RL 05a90d7 `utils/utils.py:518`: all that profiles there asks `get_grpo_profiler`, and does nothing
with None. verl 0.6.1 to 0.9.1, utils/profiler/mstx_profile.py: `NPUProfiler.start` makes the profiler of a whole step
and counts it, unless `discrete`; then `NPUProfiler.annotate` makes one for each stage. Both by `get_npu_profiler`, and
call `start`, `step` and `stop` of it. `NPUProfiler.stop` does nothing while none is counted. MindSpeed-LLM 26.1.0:
MCore asks `is_profile_enabled` wherever it profiles (training/training.py:260), FSDP2 `is_profiling_rank` once.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable

from .. import faults

VARIABLE = "MSTXKIT_TAKES_OVER"  # as `escalation.duty.own_sections.TAKES_OVER`


class IdleProfiler:
    """In the place of a profiler: it records nothing."""

    def start(self) -> None:
        """Nothing."""

    step = stop = start


def _unless_taken_over(framework: str, instead: Any, upstream: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """`instead` where mstxkit carries out this framework's section, which is logged once."""
    if framework not in os.environ.get(VARIABLE, "").split(","):
        return upstream(*args, **kwargs)
    faults.warn_once(
        f"{framework} is taken over", f"mstxkit is active and carries out {framework}'s section; {framework} does not"
    )
    return instead


# `get_grpo_profiler`, of one role; `NPUProfiler.start`, of a whole step; `get_npu_profiler`, of one stage;
# `is_profile_enabled`, of MCore; `ProfilerConfig.is_profiling_rank`, of FSDP2.
mindspeed_rl_made = partial(_unless_taken_over, "mindspeed_rl", None)
verl_started = partial(_unless_taken_over, "verl", None)
verl_made = partial(_unless_taken_over, "verl", IdleProfiler())
mindspeed_llm_asked = partial(_unless_taken_over, "mindspeed_llm", False)
mindspeed_llm_fsdp2_asked = partial(_unless_taken_over, "mindspeed_llm_fsdp2", False)
