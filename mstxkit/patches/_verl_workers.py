"""verl's training workers: the stages of actor, reference, critic and reward model, where they run.

Names are those that `DistProfiler.annotate(role=…)` has for them in the newest version that holds them.
"""

from __future__ import annotations

from functools import partial

from ..patching.declare import AROUND, Target, by, method
from . import _verl_steps as steps

FSDP = "verl.workers.fsdp_workers"
MEGATRON = "verl.workers.megatron_workers"
ENGINE = "verl.workers.engine_workers"
TINKER = "verl.workers.engine_workers_tinker"
ROLES = "verl.workers.roles"
CRITIC = "mstxkit.patches._verl_critic"
# The driver's step, as an attribute only: where a worker learns no other, it would be stale until the next one.
SAVED = {"global_step": "global_step"}
# Weights go to the rollout at the end of step N, with N; what comes next belongs to N + 1, but in one-step-off.
_target_weights = partial(method, stage="weight_sync", step_after=steps.of_weights, role="actor", process_role="actor")


def _target_actor(worker: str) -> tuple[Target, ...]:
    """Actor, reference and weights of a worker that holds the actor, whatever it is built on."""
    return (
        Target(f"{worker}.update_actor", name="actor_update", stage="actor_update", **by("actor")),
        Target(
            f"{worker}.compute_log_prob", name="actor_compute_log_prob", stage="actor_compute_log_prob", **by("actor")
        ),
        Target(
            f"{worker}.compute_ref_log_prob", name="ref_compute_log_prob", stage="reference_compute_log_prob",
            **by("reference"),
        ),
        _target_save(worker, "actor", SAVED),
    )  # fmt: skip


def _target_save(worker: str, role: str, attributes: dict[str, str]) -> Target:
    return method(f"{worker}.save_checkpoint", stage="save_checkpoint", attributes=attributes, **by(role))


def _target_critic(worker: str) -> tuple[Target, ...]:
    return (
        method(f"{worker}.compute_values", stage="critic_compute_values", **by("critic")),
        Target(f"{worker}.update_critic", name="critic_update", stage="critic_update", **by("critic")),
    )


def _target_legacy(module: str, saved: dict[str, str], step: str | None = None) -> tuple[Target, ...]:
    """The workers of up to 0.7.1; `saved` and `step`: what can be read of the driver's step."""
    worker = f"{module}:ActorRolloutRefWorker"
    weights = f"{module}:AsyncActorRolloutRefWorker.update_weights"
    return (
        *_target_actor(worker),
        # fsdp 0.6.1:908 0.7.0:950 0.7.1:1045; megatron 0.6.1:670 0.7.0:768 0.7.1:794
        Target(
            f"{worker}.generate_sequences", name="rollout_generate", stage="actor_generate",
            role="rollout", step=step, process_role="actor",
        ),
        # fsdp 0.6.1:651 0.7.0:676; megatron 0.6.1:568 0.7.0:664
        # Since 0.7.1 it is the whole of update_weights, except for a rollout in the worker itself.
        method(f"{worker}.rollout_mode", stage="weight_sync", unless=weights, **by("actor")),
        # fsdp 0.6.1:734 0.7.0:759; megatron 0.6.1:602 0.7.0:700
        method(f"{worker}.trainer_mode", role="actor"),
        # fsdp 0.7.1:1735; megatron 0.7.1:988
        _target_weights(weights),
        *_target_critic(f"{module}:CriticWorker"),
        _target_save(f"{module}:CriticWorker", "critic", saved),
        method(f"{module}:RewardModelWorker.compute_rm_score", stage="reward", **by("reward")),
    )  # fmt: skip


# workers/fsdp_workers.py 0.6.1:865,958,999,1034 0.7.0:907,1000,1045,1077 0.7.1:999,1095,1147,1180;
# critic 0.6.1:1487,1507 0.7.0:1543,1563 0.7.1:1647,1667; reward model 0.6.1:1871 0.7.0:1931; gone in 0.8.0.
# The driver puts its step into meta_info.
LEGACY_FSDP = _target_legacy(FSDP, SAVED, step="prompts.meta_info['global_steps']")

# workers/megatron_workers.py 0.6.1:627,742,720,791 0.7.0:725,840,818,903 0.7.1:748,870,844,940; critic 0.6.1:1072,1089
# 0.7.0:1212,1229 0.7.1:1220,1237; reward model 0.6.1:1301 0.7.0:1453; gone in 0.8.0. GPUMemoryLogger, between
# `register` and the method, hides its parameters: no step can be read from generate_sequences. The critic's
# save_checkpoint (0.6.1:1131 0.7.0:1271) calls the parameter global_steps.
LEGACY_MEGATRON = _target_legacy(MEGATRON, {"global_step": "global_steps"})

# workers/roles/actor.py 0.6.1:108,141 and critic.py 0.6.1:134,162: what engine_workers became
LEGACY_ROLES = (*_target_actor(f"{ROLES}.actor:ActorWorker")[:2], *_target_critic(f"{ROLES}.critic:CriticWorker"))

# workers/engine_workers.py 0.7.0:529,523,517,539 0.7.1:603,595,588,613 0.8.0:652,644,637,662 0.9.0:705,697,690,715
# 0.9.1:713,703,696,723
ENGINE_WORKERS = (
    *_target_actor(f"{ENGINE}:ActorRolloutRefWorker"),
    # 0.7.1:618 0.8.0:667 0.9.0:720 0.9.1:728 (async)
    _target_weights(f"{ENGINE}:ActorRolloutRefWorker.update_weights"),
    # 0.7.0:560,544 (async): what update_weights and the checkpoint manager do later
    method(f"{ENGINE}:ActorRolloutRefWorker.wake_up", stage="weight_sync", **by("actor")),
    method(f"{ENGINE}:ActorRolloutRefWorker.sleep", role="actor"),
    # TrainingWorker knows no role: inside the actor's stages it inherits theirs; a critic's stages are its own calls.
    # 0.7.0:174 0.7.1:215 0.8.0:234 0.9.0:242 0.9.1:243
    method(f"{ENGINE}:TrainingWorker.train_mini_batch", role="stage", kind=AROUND, value=f"{CRITIC}:trained"),
    # 0.7.0:254 0.7.1:299 0.8.0:325 0.9.0:337 0.9.1:343: one mini-batch
    method(f"{ENGINE}:TrainingWorker.train_batch", role="stage", boundary="mini_batch"),
    # 0.7.0:304 0.7.1:354 0.8.0:380 0.9.0:392 0.9.1:398
    method(f"{ENGINE}:TrainingWorker.infer_batch", role="stage", kind=AROUND, value=f"{CRITIC}:inferred"),
    # 0.7.0:342 0.7.1:400 0.8.0:426 0.9.0:438 0.9.1:444: the actor's goes through it, a critic's starts here
    method(f"{ENGINE}:TrainingWorker.save_checkpoint", stage="save_checkpoint", attributes=SAVED),
    # workers/engine_workers_tinker.py 0.9.0:125,177 0.9.1:125,177
    method(f"{TINKER}:TinkerTrainingWorker.forward_backward", boundary="mini_batch"),
    method(f"{TINKER}:TinkerTrainingWorker.optimizer_step"),
)  # fmt: skip

WORKERS = (*LEGACY_FSDP, *LEGACY_MEGATRON, *LEGACY_ROLES, *ENGINE_WORKERS)
