"""What calls of vLLM say of themselves: counts of the host only, no tensor is read.

Source: vLLM 0.11.0, 0.23.0 and 0.32.0.
"""

from __future__ import annotations

from multiprocessing import parent_process
from typing import Any, Callable

from ..host import identity, parts

_UNLIKE_VLLM = (AttributeError, KeyError, TypeError, ValueError)


def wrap_load(upstream: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`Worker.load_model`, `NPUWorker.load_model`: a process with a worker is a rollout, if vLLM has begun it.

    vLLM 0.11 to 0.32 begins engines and workers by multiprocessing, and over several hosts by Ray, as actors of the
    class `RayWorkerWrapper`. trl in colocate mode, and verl 0.6.1 and 0.7.0, load the worker in the trainer's own
    process, before it trains.
    """
    is_vllms_own = parent_process() is not None or parts.actor_class() == "RayWorkerWrapper"
    if is_vllms_own and not identity.has_role():
        identity.identify(role="rollout")
    return upstream(*args, **kwargs)


def count_scheduled(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> dict[str, int]:
    """What an engine step runs. A request is a prefill until it has its first token, as upstream counts it.

    Source: v1/core/sched/output.py (`SchedulerOutput`: dicts and lists of the host), v1/utils.py:830
    `compute_iteration_details` (0.32.0). 0.11.0 does not tell later parts of a long prompt from decoding.
    """
    try:
        tokens, new = scheduler_output.num_scheduled_tokens, scheduler_output.scheduled_new_reqs
        prefills = [request.req_id for request in new]
        cached = scheduler_output.scheduled_cached_reqs
        outputs = getattr(cached, "num_output_tokens", ())
        if 0 in outputs:
            prefills += [name for name, count in zip(cached.req_ids, outputs) if not count]
        return {
            "tokens": scheduler_output.total_num_scheduled_tokens, "requests": len(tokens), "new_requests": len(new),
            "prefills": len(prefills), "prefill_tokens": sum(tokens[name] for name in prefills),
        }  # fmt: skip
    except _UNLIKE_VLLM:
        return {}


def count_sampled(
    self: Any, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any
) -> dict[str, int]:
    """Of `Scheduler.update_from_output`: who runs and waits after the step, tokens that went in and came out.

    Source: v1/outputs.py `ModelRunnerOutput.sampled_token_ids`, a list for each request, on the host by then.
    """
    try:
        running, waiting = self.get_request_counts()
        tokens_in = scheduler_output.total_num_scheduled_tokens
        tokens_out = sum(map(len, model_runner_output.sampled_token_ids))
        return {"running": running, "waiting": waiting, "tokens_in": tokens_in, "tokens_out": tokens_out}
    except _UNLIKE_VLLM:
        return {}


def count_prompts(self: Any, prompts: Any, *args: Any, **kwargs: Any) -> dict[str, int]:
    """How many prompts `LLM.generate` or `LLM.chat` is given."""
    return {"sent": len(prompts) if type(prompts) in (list, tuple) else 1}


def name_method(self: Any, method: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
    """What all workers are asked for, by `EngineCore.collective_rpc`: a name, or a function."""
    return {"method": method if type(method) is str else getattr(method, "__name__", "")}
