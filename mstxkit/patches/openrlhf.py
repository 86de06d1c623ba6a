"""Ranges for OpenRLHF: the Ray actor that drives PPO and its kin, those that hold models, vLLM's engines beside them.

Source: openrlhf 0.11.2, `trainer/`, whose line numbers these are.

Steps: an update's number as the driver logs it after the update ("Global step 1"), from the checkpoint where training
resumed. Its rollout comes before `train_step`, or in an actor of its own, which is told no step, nor is who holds a
model.
"""

from ..patching.declare import EXTRA, Patch, Target, by, each
from ..pieces.kinds import PieceSampling

# Who drives an update: ppo_trainer.py:197, 213, 266, 300, 337, 384, 503, 582; samples_generator.py:61, 89;
# experience_maker.py:113, 238. The asynchronous trainer (ppo_trainer_async.py:100, 202) waits at a lock before
# `broadcast_to_vllm`, and has an actor that generates. Before its first one each calls `restore_best_checkpoint_state`.
_TRAINER, _ASYNC = "openrlhf.trainer.ppo_trainer", "openrlhf.trainer.ppo_trainer_async"
_DRIVER, _PARTS = f"{_TRAINER}:BasePPOTrainer", "openrlhf.trainer.ppo_utils"
_SAMPLES = f"{_PARTS}.samples_generator:SamplesGenerator"
_EXPERIENCE = f"{_PARTS}.experience_maker:RemoteExperienceMaker"
_DRIVING = (
    Target(f"{_TRAINER}:PPOTrainer.fit", process_role="trainer"),
    Target(f"{_ASYNC}:TrainingActor.fit", process_role="trainer"),
    Target(f"{_ASYNC}:GenerateSamplesActor.fit", process_role="rollouter"),
    Target(f"{_DRIVER}.restore_best_checkpoint_state", step_after="checkpoint_states['global_step']"),
    Target(f"{_SAMPLES}.generate_samples", stage="actor_generate", waits=True),
    Target(f"{_DRIVER}.train_step", stage="train_step", attributes={"samples": "len(rollout_samples)"}),
    Target(f"{_EXPERIENCE}.make_experience", waits=True),
    Target(f"{_EXPERIENCE}.compute_advantages_and_returns", stage="compute_advantage"),
    Target(f"{_DRIVER}.ppo_train", waits=True),
    Target(f"{_DRIVER}.broadcast_to_vllm", stage="weight_sync", waits=True),
    Target(f"{_DRIVER}.save_logs_and_checkpoints", step_after="global_step", waits=True),
    Target(f"{_TRAINER}:PPOTrainer.evaluate", stage="evaluate", step_after="global_step", waits=True),
    Target(f"{_DRIVER}.save_best_checkpoint", waits=True),
)

# Who holds a model: a rank each. `execute_batch` (launcher.py:67) calls `forward` for each of its micro-batches, `fit`
# calls `training_step`: forward, backward and DeepSpeed's step, which updates at the last of several.
# Source: ppo_actor.py:259, 598, 618, 646, 655, 661; ppo_critic.py:121, 260, 284, 307, 320; launcher.py:127, 183;
# utils/deepspeed/deepspeed.py:177, 183.
_RAY = "openrlhf.trainer.ray"
_ACTOR, _CRITIC = f"{_RAY}.ppo_actor:PolicyModelActor", f"{_RAY}.ppo_critic:CriticModelActor"
_HOLDING = (
    Target(
        f"{_RAY}.launcher:BaseModelActor.execute_batch", attributes={"method": "method_name"},
        sampling=PieceSampling(ends_round=True, ends_round_after=True),
    ),
    *(
        Target(
            f"{holder}.forward", stage=stage, boundary="micro_batch", sampling=PieceSampling(is_round=True), **by(role)
        )
        for holder, stage, role in (
            (_ACTOR, "actor_compute_log_prob", "actor"), (_CRITIC, "critic_compute_values", "critic"),
            (f"{_RAY}.launcher:ReferenceModelActor", "reference_compute_log_prob", "reference"),
            (f"{_RAY}.launcher:RewardModelActor", "reward", "reward"),
        )
    ),
    Target(f"{_ACTOR}.fit", stage="actor_update", **by("actor")),
    Target(f"{_CRITIC}.fit", stage="critic_update", **by("critic")),
    Target(f"{_RAY}.ppo_actor:ActorPPOTrainer.training_step", boundary="micro_batch", role="stage"),
    Target(f"{_RAY}.ppo_critic:CriticPPOTrainer.training_step", boundary="micro_batch", role="stage"),
    *each("openrlhf.utils.deepspeed.deepspeed:DeepspeedStrategy", "backward", "optimizer_step", role="stage"),
    Target(f"{_ACTOR}.broadcast_to_vllm", stage="weight_sync", **by("actor")),
    Target(f"{_ACTOR}.save_checkpoint", stage="save_checkpoint", **by("actor")),
    Target(f"{_CRITIC}.save_checkpoint", stage="save_checkpoint", **by("critic")),
    *each(_ACTOR, "reload_states", "offload_states", role="actor"),
    *each(_CRITIC, "reload_states", "offload_states", role="critic"),
)  # fmt: skip

# Who has an engine of vLLM, whose steps the patch `vllm` has. A call of `generate_responses` is all answers to a
# prompt; weights come parameter by parameter. Source: vllm_engine.py:115, 121, 136, 139, 153, 183.
_ENGINE = f"{_RAY}.vllm_engine:RolloutRayActor"
_ROLLOUT = (
    Target(f"{_ENGINE}.generate_responses", stage="actor_generate", role="rollout", process_role="agent_loop"),
    Target(f"{_ENGINE}.generate", tier=EXTRA, max_per_s=200),
    *each(_ENGINE, "sleep", "wake_up"),
    *each(_ENGINE, "update_weight", "update_weight_cuda_ipc", coalesce=True),
)

PATCH = Patch(
    framework="openrlhf",
    versions="0.11.2",
    targets=(*_DRIVING, *_HOLDING, *_ROLLOUT),
    notes=("openrlhf: who holds a model is told no step, and its ranges have none",),
)
