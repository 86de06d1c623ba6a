"""A framework whose own profiling section mstxkit carries out instead (`mstxkit: {takes_over: true}`): it starts none.

Source: MindSpeed-RL 05a90d7 `utils/utils.py:518`: all that profiles there asks `get_grpo_profiler`, and does nothing
with None. verl 0.6.1 to 0.9.1, utils/profiler/mstx_profile.py: `NPUProfiler.start` makes the profiler of a whole step
and counts it, unless `discrete`; then `NPUProfiler.annotate` makes one for each stage. Both by `get_npu_profiler`, and
call `start`, `step` and `stop` of it. `NPUProfiler.stop` does nothing while none is counted. MindSpeed-LLM 26.1.0:
MCore asks `is_profile_enabled` wherever it profiles (training/training.py:260), FSDP2 `is_profiling_rank` once.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from .. import faults

VARIABLE = "MSTXKIT_TAKES_OVER"  # as `escalation.duty.own_sections.TAKES_OVER`


def is_taken_over(framework: str) -> bool:
    """Does mstxkit carry out this framework's section? Logged once where it does."""
    if framework not in os.environ.get(VARIABLE, "").split(","):
        return False
    faults.warn_once(
        f"{framework} is taken over", f"mstxkit is active and carries out {framework}'s section; {framework} does not"
    )
    return True


class IdleProfiler:
    """In the place of a profiler: it records nothing."""

    def start(self) -> None:
        """Nothing."""

    step = stop = start


def mindspeed_rl_made(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`get_grpo_profiler`: of one role."""
    return None if is_taken_over("mindspeed_rl") else upstream(*args, **kwargs)


def verl_started(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`NPUProfiler.start`: of a whole step."""
    return None if is_taken_over("verl") else upstream(*args, **kwargs)


def verl_made(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`get_npu_profiler`: of one stage."""
    return IdleProfiler() if is_taken_over("verl") else upstream(*args, **kwargs)


def mindspeed_llm_asked(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`is_profile_enabled`, of MCore."""
    return not is_taken_over("mindspeed_llm") and upstream(*args, **kwargs)


def mindspeed_llm_fsdp2_asked(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`ProfilerConfig.is_profiling_rank`, of FSDP2."""
    return not is_taken_over("mindspeed_llm_fsdp2") and upstream(*args, **kwargs)
