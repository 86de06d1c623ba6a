"""MindSpeed-RL's processes without an NPU: the transfer dock, or the queue in its place, and the trainer.

Source: as in `mindspeed_rl.py`.
"""

from ..patching import entry, trainer_settings
from ..patching.declare import Target, each
from . import _mindspeed_rl_steps as steps

_GET = {"consumer": "consumer", "count": "experience_count", "columns": "len(experience_columns)"}
_GROUP = {"workers": "len(self.actor_handlers)"}
_BLOCKING, _SAVED = {"blocking": "blocking"}, {"iteration": "iteration"}
_GROUP_CALL = {**_GROUP, **_BLOCKING}

# The dock's own process: up to 100 threads, and `all_consumed` polled by every worker. Source: transfer_dock.py:377,
# 480, 686, 791; mm_transfer_dock.py (2.1.0); since master a queue instead of the dock, where so configured:
# data_strategy.py:126, 186, tq_client.py:163, 269, tq_mgr.py, tq_data.py. No iteration there; `clear` is once in each.
_DOCK = "mindspeed_rl.trainer.utils.transfer_dock:GRPOTransferDock"
_MM_DOCK = "mindspeed_rl.trainer.utils.mm_transfer_dock:MMGRPOTransferDock"
_ADAPTER = "mindspeed_rl.trainer.utils.data_strategy:SyncTransferQueueAdapter"
_CLIENT = "mindspeed_rl.utils.transfer_queue.tq_client:TransferQueueClient"
_MANAGER = "mindspeed_rl.utils.transfer_queue.tq_mgr:TransferQueueManager"
_SHARD = "mindspeed_rl.utils.transfer_queue.tq_data:TransferQueueShard"
DOCKS = (
    Target(f"{_DOCK}.get_experience", attributes=_GET),
    *each(_DOCK, "put_experience", "put_prompts_experience", "clear"),
    *each(_DOCK, "all_consumed", "get_update_ready", coalesce=True),
    *each(_MM_DOCK, "get_experience", "get_experience_dict", attributes={"columns": "len(experience_columns)"}),
    *each(_MM_DOCK, "put_experience", "clear"),
    Target(f"{_ADAPTER}._get_experience", attributes=_GET),
    *each(_ADAPTER, "_put_experience", "_clear"),
    *each(_ADAPTER, "_all_consumed", "_get_update_ready", coalesce=True),
    Target(
        f"{_CLIENT}.get_experience", attributes={"consumer": "consumer", "count": "experience_count", "topic": "topic"},
        tier="extra",
    ),
    Target(f"{_CLIENT}.put_experience", attributes={"topic": "topic"}, tier="extra"),
    Target(f"{_MANAGER}.allocate_shard_and_indexes", attributes={**_GET, "topic": "topic"}),
    *each(_MANAGER, "clear_topic", "refine_topic_for_partial_rollout", attributes={"topic": "topic"}),
    *each(_MANAGER, "all_consumed", "get_partial_rollout_stop_signal", coalesce=True),
    *each(_SHARD, "_handle_get", "_handle_put", attributes={"topic": "topic"}),
)  # fmt: skip

# The trainer, in the `train` task: what it waits for, or with blocking=False what it submits; advantages and KL too are
# tasks of Ray (compute_utils.py:61, 194), so that it computes nothing in any stage. An iteration begins with
# `put_prompts_experience` (2.2; before it the dock's), `enter_infer_mode` (dapo) or a stage, and ends with the logger.
# Source: launcher.py:265-349, launcher_ms.py (2.1.0); grpo_trainer_hybrid.py:175, ppo:164 and dapo:231 (2.2);
# transfer_dock.py:1201 (2.2); loggers.py `Loggers.info`, called with the iteration at grpo:281, ppo:251, dapo:341.
# Settings: `__init__` calls `transfer_dock_init` (grpo:127, ppo:123, dapo:143) once base.py:50-78 has stored what it is
# given, `kwargs` with the rest of rl_config too; launcher.py:162-164 stores megatron_config and generate_config.
_STEPS = "mstxkit.patches._mindspeed_rl_steps"
_LAUNCHER = "mindspeed_rl.workers.scheduler.launcher:RayActorGroup"
_LAUNCHER_MS = "mindspeed_rl.workers.scheduler.launcher_ms:RayActorGroupMs"
_CALLS = (
    ("generate_sequences", "actor_generate"), ("compute_log_prob", "actor_compute_log_prob"),
    ("compute_ref_log_prob", "reference_compute_log_prob"), ("compute_rm_score", "reward"),
)  # fmt: skip
_SINCE_2_2 = (("compute_image_embeds", "actor_image_embeds"), ("compute_values", "critic_compute_values"))
_TRAINERS = tuple(
    f"mindspeed_rl.trainer.{name}_trainer_hybrid:Ray{name.upper()}Trainer" for name in ("grpo", "ppo", "dapo")
)
TRAINER = (
    *(
        target
        for group in (_LAUNCHER, _LAUNCHER_MS)
        for target in (
            *(Target(f"{group}.{name}", stage=stage, attributes=_GROUP_CALL, waits=True) for name, stage in _CALLS),
            Target(f"{group}.update", stage="actor_update", attributes=_GROUP, waits=True),
            Target(
                f"{group}.save_checkpoint", stage="save_checkpoint", step_after=steps.read_saved, attributes=_SAVED,
                waits=True,
            ),
            *each(group, "wait_all_ref_objs_run_over", "exit_infer_mode", attributes=_GROUP, waits=True),
            Target(f"{group}.enter_infer_mode", step=entry.step_to_come, attributes=_GROUP, waits=True),
            Target(f"{group}.get_iteration", kind="around", value=f"{_STEPS}:learn_resumed", waits=True),
            *each(group, "initialize_actor_handlers", "initialize", process_role="trainer", waits=True),
        )
    ),
    *(Target(f"{_LAUNCHER}.{name}", stage=stage, attributes=_GROUP_CALL, waits=True) for name, stage in _SINCE_2_2),
    Target(f"{_LAUNCHER}.update_actor", stage="actor_update", attributes=_GROUP, waits=True),
    Target(f"{_LAUNCHER}.update_critic", stage="critic_update", attributes=_GROUP_CALL, waits=True),
    *(
        target
        for trainer in _TRAINERS
        for target in (
            Target(
                f"{trainer}.fit", process_role="trainer",
                attributes={"global_batch_size": "self.global_batch_size", "n_samples": "self.n_samples_per_prompt"},
            ),
            Target(f"{trainer}.compute_advantage", stage="compute_advantage", attributes=_BLOCKING, waits=True),
            Target(f"{trainer}.save_checkpoint", step_after=steps.read_saved, attributes=_SAVED, waits=True),
            Target(f"{trainer}.transfer_dock_init", attributes=trainer_settings.of_trainer),
        )
    ),
    Target(f"{_TRAINERS[1]}.apply_kl_penalty", stage="compute_kl", attributes=_BLOCKING, waits=True),
    Target(f"{_TRAINERS[2]}.dynamic_sampling", stage="dynamic_sampling", waits=True),
    *each("mindspeed_rl.trainer.utils.data_strategy:DataStrategy", "put_experience", "clear_main", "get_metrics"),
    Target("mindspeed_rl.trainer.utils.transfer_dock:put_prompts_experience", step=entry.step_to_come),
    Target("mindspeed_rl.utils.loggers:Loggers.info", step_after=steps.read_logged, coalesce=True),
)  # fmt: skip
