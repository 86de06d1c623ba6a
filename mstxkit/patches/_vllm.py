"""vLLM's V1 engine, whoever runs its model: what the patches `vllm` and `vllm_ascend` have in common.

Source: vLLM 0.11.0, 0.23.0 and 0.32.0, whose line numbers these are; vllm-ascend's worker has the methods of
vLLM's, by the same names.
"""

from __future__ import annotations

from ..patching.declare import AROUND, EXTRA, Target, each
from ..pieces.kinds import PieceSampling
from . import _vllm_calls as calls

GENERATE, SYNC = "actor_generate", "weight_sync"
_NEXT_ROUND = PieceSampling(ends_round=True)


def steps_of(worker: str, is_in_two: bool = True) -> tuple[Target, ...]:
    """One engine step is `execute_model`, and since 0.12 `sample_tokens` after it (`is_in_two`).

    Dummy, profiling and capture runs go past both. Source: v1/worker/gpu_worker.py:1295, 1304.
    """
    step = Target(
        f"{worker}.execute_model", stage=GENERATE, boundary="decode_step", attributes=calls.count_scheduled,
        dummy="scheduler_output.total_num_scheduled_tokens == 0", sampling=PieceSampling(until_next=is_in_two),
    )  # fmt: skip
    sample = Target(f"{worker}.sample_tokens", stage=GENERATE, sampling=PieceSampling(ends_after=("decode_step",)))
    return (step, sample) if is_in_two else (step,)


def rounds_of(worker: str) -> tuple[Target, ...]:
    """What ends a round of generation. Source: v1/worker/gpu_worker.py:294, 332; v1/worker/cpu_worker.py:179, 183."""
    return (
        Target(f"{worker}.sleep", attributes={"level": "level"}, sampling=_NEXT_ROUND),
        Target(f"{worker}.wake_up", sampling=_NEXT_ROUND),
    )


def life_of(worker: str) -> tuple[Target, ...]:
    """A worker between rounds of generation. Source: v1/worker/gpu_worker.py:587, 634, 908, 1365, 1431."""
    return (
        Target(f"{worker}.load_model", kind=AROUND, value="mstxkit.patches._vllm_calls:wrap_load"),
        *each(worker, "determine_available_memory", "compile_or_warm_up_model"),
        *rounds_of(worker),
        Target(f"{worker}.profile", attributes={"is_start": "is_start"}),
        Target(f"{worker}.execute_dummy_batch", tier=EXTRA, coalesce=True),  # of an idle rank, in a loop
    )


def updates_of(worker: str, *more: str) -> tuple[Target, ...]:
    """New weights, in parts: v1/worker/gpu_worker.py:629, 1507, 1550, 1587."""
    return each(worker, "start_weight_update", "update_weights", "finish_weight_update", *more, stage=SYNC)


# vLLM's own scopes: "prepare input", "forward", "post process", "sample_token", "draft_token".
# Since 0.12 `record_function_or_nullcontext(name)`, which every module imports by name, gives what
# `_PROFILER_FUNC(name)` gives as soon as that global is not None; it is None until the first call, which makes it
# `contextlib.nullcontext` unless a scope is asked for by environment. vLLM before that cache has the function alone.
# Source: v1/utils.py:781.
SCOPES = (
    Target(
        "vllm.v1.utils:_PROFILER_FUNC", name="scopes of vLLM", kind="value", value="mstxkit.marking.ranges:mstx_range"
    ),
    Target("vllm.v1.utils:record_function_or_nullcontext", kind="context", unless="vllm.v1.utils:_PROFILER_FUNC"),
)

# The engine's own process. Source: v1/core/sched/scheduler.py:591, 2026; v1/engine/core.py:657, 698, 959, 997, 1073.
_SCHEDULER, _CORE = "vllm.v1.core.sched.scheduler:Scheduler", "vllm.v1.engine.core:EngineCore"
ENGINE = (
    Target(f"{_SCHEDULER}.update_from_output", attributes=calls.count_sampled),
    Target(f"{_SCHEDULER}.schedule", tier=EXTRA),
    *each(_CORE, "step", "step_with_batch_queue", tier=EXTRA),
    Target(f"{_CORE}.collective_rpc", attributes=calls.name_method),
    Target(f"{_CORE}.sleep", attributes={"level": "level"}),
    Target(f"{_CORE}.wake_up"),
)
