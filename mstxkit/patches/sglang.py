"""Ranges for SGLang: each batch in the scheduler and its forward passes, weight updates, memory release and resume.

Source: SGLang 0.5.4.post1, 0.5.9, 0.5.11 and 0.5.23. A scheduler process, one per rank of tensor parallelism, holds
scheduler and model runner; nobody tells it the step. Its own `scheduler_stage_method` (0.5.23) keeps metrics and NVTX
ranges, none of mstx, and stays as it is.
"""

from ..patching.declare import Patch, Target, each
from ..pieces.kinds import PieceSampling

_GENERATE = "actor_generate"
_SYNC = "weight_sync"
_MANAGERS = "sglang.srt.managers"

# One batch: scheduled, run, its tokens handed on. `reqs` is a plain list of the dataclass ScheduleBatch, as are both
# queues: `running` decode, or will when a prefill is through. Choosing a batch and receiving requests are polled.
# Source: scheduler.py:1579, 1883, 2008, 1026 (0.5.4.post1); 3894, 4614, 5074 (0.5.23), where receiving has moved to
# scheduler_components/request_receiver.py:80.
_REQUESTS = {"requests": "len(batch.reqs)", "mode": "batch.forward_mode._name_"}
_QUEUES = {"running": "len(self.running_batch.reqs)", "waiting": "len(self.waiting_queue)"}
_SCHEDULER = f"{_MANAGERS}.scheduler:Scheduler"
_BATCHES = (
    Target(
        f"{_SCHEDULER}.run_batch", stage=_GENERATE, process_role="rollout", attributes={**_REQUESTS, **_QUEUES},
        sampling=PieceSampling(across="decode_step"),
    ),
    Target(f"{_SCHEDULER}.process_batch_result", stage=_GENERATE, attributes=_REQUESTS),
    *each(_SCHEDULER, "get_next_batch_to_run", "recv_requests", coalesce=True),
    Target(f"{_MANAGERS}.scheduler_components.request_receiver:SchedulerRequestReceiver.recv_requests", coalesce=True),
)  # fmt: skip

# One forward pass, whose number the runner counts itself, before the entry of the next. `forward_mode` is an IntEnum:
# `_name_` is where a member keeps DECODE, EXTEND and so on.
# Source: model_runner.py:2047 (0.5.4.post1), 2387 (0.5.9), 3123 (0.5.11), 1813 (0.5.23); forward_batch_info.py.
_RUNNER = "sglang.srt.model_executor.model_runner:ModelRunner"
_FORWARD = (
    Target(
        f"{_RUNNER}.forward", stage=_GENERATE, boundary="decode_step",
        dummy="forward_batch.forward_mode._name_ == 'IDLE' or self.is_draft_worker",
        attributes={
            "forward_pass": "self.forward_pass_id", "mode": "forward_batch.forward_mode._name_",
            "requests": "forward_batch.batch_size", "is_draft": "self.is_draft_worker",
        },
    ),
    Target(f"{_RUNNER}.sample", stage=_GENERATE),
)  # fmt: skip

# Between rounds of generation. The scheduler binds these methods when it is made.
# Source: scheduler_update_weights_mixin.py (up to 0.5.11), scheduler_components/weight_updater.py (0.5.23);
# `pause_generation` and `continue_generation` since 0.5.9, the two ends of an update in several parts 0.5.23.
_UPDATERS = (
    f"{_MANAGERS}.scheduler_update_weights_mixin:SchedulerUpdateWeightsMixin",
    f"{_MANAGERS}.scheduler_components.weight_updater:SchedulerWeightUpdaterManager",
)
_UPDATES = tuple(f"update_weights_from_{source}" for source in ("tensor", "distributed", "ipc", "disk"))
_NEXT_ROUND = PieceSampling(ends_round=True)
_BETWEEN = (
    *(
        target
        for updater in _UPDATERS
        for target in (
            *each(updater, *_UPDATES, stage=_SYNC),
            *each(updater, "release_memory_occupation", "resume_memory_occupation", sampling=_NEXT_ROUND),
        )
    ),
    *each(_UPDATERS[1], "begin_weight_update", "end_weight_update", stage=_SYNC),
    *each(_SCHEDULER, "flush_cache", "continue_generation"),
    Target(f"{_SCHEDULER}.pause_generation", sampling=_NEXT_ROUND),
)

PATCH = Patch(
    framework="sglang",
    versions=">=0.5.4,<=0.5.23",
    targets=(*_BATCHES, *_FORWARD, *_BETWEEN),
    notes=(
        "sglang: scheduler processes load mstxkit by the entry point sglang.srt.plugins since 0.5.11 (SGLANG_PLUGINS "
        "may leave it out), or at their start by MSTXKIT_AUTOPATCH",
        "sglang: each batch counts as generation, also of an engine that serves a reward model",
        "sglang: a scheduler made before autopatch() keeps its weight updates, which it has bound, without ranges",
    ),
)
