"""Ranges for vLLM on Ascend: each engine step in the worker, what it consists of, sleep, wake-up and weight loading.

Source: vllm-ascend 0.11.0, 0.13.0, 0.18.0 and 0.23.0; vLLM as those versions import it (0.11 to 0.23). A worker is a
process of its own (verl since 0.7.1) or lives in the training worker (MindSpeed-RL, verl 0.6.1): there the stage and
the step are those of what encloses it. Nobody tells a worker process the step.
"""

from ..patching.declare import EXTRA, Patch, Target, each
from ._vllm import ENGINE, SCOPES, life_of, steps_of, updates_of

# Source: worker_v1.py:261 (0.11.0), worker.py:313 (0.13.0), 363 (0.18.0), 611 (0.23.0); weight updates 0.23.0.
_WORKER_V1 = "vllm_ascend.worker.worker_v1:NPUWorker"  # up to 0.12
_WORKER = "vllm_ascend.worker.worker:NPUWorker"  # since 0.13

# The pieces themselves; mostly what a scope holds already. Source: model_runner_v1.py in all four versions,
# `_model_forward` since 0.18.0, `_sample` and `_bookkeeping_sync` since 0.13.0. Scopes of its own up to 0.14:
# vllm_ascend/utils.py:531 in 0.11.0.
_RUNNER = "vllm_ascend.worker.model_runner_v1:NPUModelRunner"
_PIECES = (
    Target("vllm_ascend.utils:ProfileExecuteDuration.capture_async", kind="context"),
    *each(
        _RUNNER, "_prepare_inputs", "_model_forward", "_sample", "_bookkeeping_sync", "propose_draft_token_ids",
        "capture_model", "profile_run", tier=EXTRA,
    ),
)  # fmt: skip

PATCH = Patch(
    framework="vllm_ascend",
    versions=">=0.11.0,<=0.23.0",
    targets=(
        *steps_of(_WORKER_V1, is_in_two=False), *steps_of(_WORKER), *life_of(_WORKER_V1), *life_of(_WORKER),
        *updates_of(_WORKER), *_PIECES, *SCOPES, *ENGINE,
    ),
    notes=(
        "vllm_ascend: worker processes load mstxkit as those of vllm do",
        "vllm_ascend: its own profiler runs with msprof_tx off: ranges are in mstxkit's files, not in those traces",
    ),
)  # fmt: skip
