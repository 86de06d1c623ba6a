"""Ranges for vLLM's V1 engine: each engine step in the worker, the scheduler's counts, sleep, weights, who asks for it.

Source: vLLM 0.11.0, 0.23.0 and 0.32.0, whose line numbers these are. A worker is a process of its own, or lives
in that of the engine, which may be the program's own (VLLM_ENABLE_V1_MULTIPROCESSING=0). Nobody tells it the step.
"""

from ..patching.declare import EXTRA, Patch, Target, each
from . import _vllm_calls as calls
from ._vllm import ENGINE, SCOPES, life_of, rounds_of, steps_of, updates_of

# `CPUWorker` derives from `Worker`, and has these for itself. Source: v1/worker/cpu_worker.py:179, 204.
_WORKER, _CPU = "vllm.v1.worker.gpu_worker:Worker", "vllm.v1.worker.cpu_worker:CPUWorker"

# Who asks. A program only waits in it for its engine: the steps are the stage, and requests for it are theirs. Source:
# entrypoints/llm.py:418, 617; v1/engine/async_llm.py:698, of a server: one call a request.
_LLM = "vllm.entrypoints.llm:LLM"
_ASKING = (
    *each(_LLM, "generate", "chat", attributes=calls.count_prompts),
    Target(
        "vllm.v1.engine.async_llm:AsyncLLM.generate", tier=EXTRA, attributes={"request_id": "request_id"},
        max_per_s=100,
    ),
)  # fmt: skip

PATCH = Patch(
    framework="vllm",
    versions=">=0.11.0,<=0.32.0",
    targets=(
        *steps_of(_WORKER), *life_of(_WORKER), *each(_CPU, "determine_available_memory", "compile_or_warm_up_model"),
        *rounds_of(_CPU), *updates_of(_WORKER, "start_draft_weight_update", "reload_weights"),
        *ENGINE, *SCOPES, *_ASKING,
    ),
    notes=(
        "vllm: worker processes load mstxkit by the entry point vllm.general_plugins (VLLM_PLUGINS may leave it out), "
        "or at their start by MSTXKIT_AUTOPATCH",
        "vllm: each engine step counts as generation, also of an engine that serves a reward model",
        "vllm: while it is patched, its scopes are ranges, not what VLLM_CUSTOM_SCOPES_FOR_PROFILING or "
        "VLLM_NVTX_SCOPES_FOR_PROFILING asks for",
    ),
)  # fmt: skip
