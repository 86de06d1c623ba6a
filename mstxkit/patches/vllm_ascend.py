"""Ranges for vLLM on Ascend: each engine step in the worker, what it consists of, sleep, wake-up and weight loading.

Source: vllm-ascend 0.11.0, 0.13.0, 0.18.0 and 0.23.0; vLLM as those versions import it (0.11 to 0.23). A worker is a
process of its own (verl since 0.7.1) or lives in the training worker (MindSpeed-RL, verl 0.6.1): there the stage and
the step are those of what encloses it. Nobody tells a worker process the step.
"""

from ..patching.declare import AROUND, EXTRA, Patch, Target, each
from ..pieces.sampling import PieceSampling

_GENERATE = "actor_generate"
_SYNC = "weight_sync"

# One engine step is `execute_model`, and since 0.12 `sample_tokens` after it; dummy, profiling and capture runs go past
# both. Source: worker_v1.py:261 (0.11.0), worker.py:313 (0.13.0), 363 (0.18.0), 611 (0.23.0). `SchedulerOutput` is a
# plain dataclass of host integers: vLLM, vllm/v1/core/sched/output.py.
_BATCH = {
    "tokens": "scheduler_output.total_num_scheduled_tokens", "requests": "len(scheduler_output.num_scheduled_tokens)",
    "new_requests": "len(scheduler_output.scheduled_new_reqs)",
}  # fmt: skip
_WORKER_V1 = "vllm_ascend.worker.worker_v1:NPUWorker"  # up to 0.12
_WORKER = "vllm_ascend.worker.worker:NPUWorker"  # since 0.13
_STEPS = tuple(
    Target(
        f"{worker}.execute_model", stage=_GENERATE, boundary="decode_step",
        dummy="scheduler_output.total_num_scheduled_tokens == 0", sampling=sampling, attributes=_BATCH,
    )
    for worker, sampling in ((_WORKER_V1, PieceSampling()), (_WORKER, PieceSampling(until_next=True)))
)  # fmt: skip

# Life of a worker between rounds of generation. Source: as above; `update_weights` and what is around it 0.23.0.
_LIFE = (
    *(
        target
        for worker in (_WORKER_V1, _WORKER)
        for target in (
            Target(f"{worker}.load_model", kind=AROUND, value="mstxkit.patches._vllm_role:loaded"),
            *each(worker, "determine_available_memory", "compile_or_warm_up_model"),
            Target(f"{worker}.sleep", attributes={"level": "level"}, sampling=PieceSampling(ends_round=True)),
            Target(f"{worker}.wake_up", sampling=PieceSampling(ends_round=True)),
            Target(f"{worker}.profile", attributes={"is_start": "is_start"}),
            Target(f"{worker}.execute_dummy_batch", tier=EXTRA, coalesce=True),  # of an idle rank, in a loop
        )
    ),
    *each(_WORKER, "start_weight_update", "update_weights", "finish_weight_update", stage=_SYNC),
)

# vLLM's own scopes: "prepare input", "forward", "post process", "sample_token", "draft_token". Up to 0.14 they are
# `capture_async` (vllm_ascend/utils.py:531 in 0.11.0). Since 0.15 `record_function_or_nullcontext(name)`, which every
# module imports by name, gives what `_PROFILER_FUNC(name)` gives as soon as that global is not None; it is None until
# the first call, which makes it `contextlib.nullcontext` unless a scope is asked for by environment. vLLM before that
# cache has the function alone.
_SCOPES = (
    Target("vllm_ascend.utils:ProfileExecuteDuration.capture_async", kind="context"),
    Target(
        "vllm.v1.utils:_PROFILER_FUNC", name="scopes of vLLM", kind="value", value="mstxkit.marking.ranges:mstx_range"
    ),
    Target("vllm.v1.utils:record_function_or_nullcontext", kind="context", unless="vllm.v1.utils:_PROFILER_FUNC"),
)

# The pieces themselves; mostly what a scope above holds already. Source: model_runner_v1.py in all four versions,
# `_model_forward` since 0.18.0, `_sample` and `_bookkeeping_sync` since 0.13.0. Then the engine's own process: vLLM,
# vllm/v1/core/sched/scheduler.py and vllm/v1/engine/core.py.
_RUNNER = "vllm_ascend.worker.model_runner_v1:NPUModelRunner"
_PIECES = (
    *each(
        _RUNNER, "_prepare_inputs", "_model_forward", "_sample", "_bookkeeping_sync", "propose_draft_token_ids",
        "capture_model", "profile_run", tier=EXTRA,
    ),
    *each("vllm.v1.core.sched.scheduler:Scheduler", "schedule", "update_from_output", tier=EXTRA),
    *each("vllm.v1.engine.core:EngineCore", "step", "step_with_batch_queue", tier=EXTRA),
)  # fmt: skip

PATCH = Patch(
    framework="vllm_ascend",
    versions=">=0.11.0,<=0.23.0",
    targets=(
        *_STEPS,
        Target(f"{_WORKER}.sample_tokens", stage=_GENERATE, sampling=PieceSampling(ends_after=("decode_step",))),
        *_LIFE,
        *_SCOPES,
        *_PIECES,
    ),
    notes=(
        "vllm_ascend: worker processes load mstxkit by the entry point vllm.general_plugins (VLLM_PLUGINS may leave it "
        "out), or at their start by MSTXKIT_AUTOPATCH",
        "vllm_ascend: each engine step counts as generation, also of an engine that serves a reward model",
        "vllm_ascend: while it is patched, vLLM's scopes are ranges, not what VLLM_CUSTOM_SCOPES_FOR_PROFILING or "
        "VLLM_NVTX_SCOPES_FOR_PROFILING asks for",
        "vllm_ascend: its own profiler runs with msprof_tx off: ranges are in mstxkit's files, not in those traces",
    ),
)
