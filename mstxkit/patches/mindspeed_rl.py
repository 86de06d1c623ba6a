"""Ranges for MindSpeed-RL: GRPO, PPO and DAPO on Megatron workers, vLLM inside them, and the Ray actors around them.

Source: MindSpeed-RL branches 2.0.0, 2.1.0, 2.2.0, 2.3.0 and master 05a90d7; line numbers are master's. "2.2" in a
comment means: since 2.2.0. What upstream decorates itself (36 functions in 2.0.0 and 2.1.0, 47 since) is all here.

Steps: a worker's `self.iteration`, 0-based and taken up from the checkpoint, set in `_build_model_optimizer`
(actor_hybrid_worker.py:950, all versions; critic_worker.py:338, 2.2) and read at the entry of each stage; `update`
adds one to it. `prof_iteration`, upstream's number for its profiler, is 1-based and counts from the process's start.
"""

from ..patching.declare import Patch, Seam, Target, each
from ..pieces.kinds import PieceSampling
from ._megatron import CORE
from ._mindspeed_rl_ray import DOCKS, TRAINER

_ITERATION = "self.iteration"
_PROFILED = {"prof_iteration": "self.prof_iteration"}
_DISPATCH = {
    "consumer": "experience_consumer_stage", "count": "experience_count", "columns": "len(experience_columns)",
    "use_vllm": "use_vllm",
}  # fmt: skip
_DATA = {"count": "experience_count"}

# The seven stages of upstream's profiler, whole: upstream's own window leaves out resharding and on-/offloading.
# Source: actor_hybrid_worker.py:265, 396, 799 (all versions), 872 (2.2); integrated_worker.py:142 (all), which calls
# reference_worker.py:126 (2.0.0 and 2.1.0: reference_woker.py); critic_worker.py:153, 226 (2.2); vit_worker.py:122
# (2.2). A ReferenceWorker or VitWorker of its own knows no iteration.
_ACTOR = "mindspeed_rl.workers.actor_hybrid_worker:ActorHybridWorkerBase"
_CRITIC = "mindspeed_rl.workers.critic_worker:CriticWorkerBase"
_REFERENCES = tuple(f"mindspeed_rl.workers.reference_{spelled}:ReferenceWorkerBase" for spelled in ("worker", "woker"))
_STAGES = (
    Target(f"{_ACTOR}.generate_sequences", stage="actor_generate", step=_ITERATION, attributes=_PROFILED),
    Target(f"{_ACTOR}.compute_log_prob", stage="actor_compute_log_prob", step=_ITERATION, attributes=_PROFILED),
    Target(
        f"{_ACTOR}.update", stage="actor_update", step=_ITERATION,
        attributes={**_PROFILED, "skip_actor_log_prob": "skip_actor_log_prob"},
    ),
    Target(f"{_ACTOR}.compute_image_embeds", stage="actor_image_embeds", step=_ITERATION, attributes=_PROFILED),
    Target(
        "mindspeed_rl.workers.integrated_worker:IntegratedWorker.compute_ref_log_prob",
        stage="reference_compute_log_prob", step=_ITERATION, attributes=_PROFILED,
    ),
    *(Target(f"{where}.compute_ref_log_prob", stage="reference_compute_log_prob") for where in _REFERENCES),
    Target(f"{_CRITIC}.compute_values", stage="critic_compute_values", step=_ITERATION, attributes=_PROFILED),
    Target(f"{_CRITIC}.update", stage="critic_update", step=_ITERATION, attributes=_PROFILED),
    Target("mindspeed_rl.workers.vit_worker:VitWorkerBase.compute_image_embeds", stage="actor_image_embeds"),
)  # fmt: skip

# Reward and sampling: undecorated upstream, though profiler.md says otherwise; their processes know no iteration.
# Source: reward_worker.py:115 (2.0.0 and 2.1.0: reward_woker.py), rule_reward.py:65, dynamic_sampling.py:51 (2.2),
# rule_verifier.py:81 (decorated), compute_utils.py:61 (2.2) and 196 (decorated), both Ray tasks; 294 and on.
_COMPUTE = "mindspeed_rl.trainer.utils.compute_utils"
_REWARDERS = tuple(f"mindspeed_rl.workers.reward_{spelled}:RewardWorkerBase" for spelled in ("worker", "woker"))
_REWARD = (
    *(Target(f"{where}.compute_rm_score", stage="reward") for where in _REWARDERS),
    Target("mindspeed_rl.workers.rule_reward:RuleReward.compute_rm_score", stage="reward"),
    Target("mindspeed_rl.models.rule_verifier:compute_verifier_score"),
    Target("mindspeed_rl.workers.dynamic_sampling:DynamicSampling.dynamic_sampling", stage="dynamic_sampling"),
    Target(
        f"{_COMPUTE}:compute_advantage", stage="compute_advantage", process_role="advantage",
        attributes={**_DATA, "adv_estimator": "adv_estimator", "global_batch_size": "global_batch_size"},
    ),
    Target(
        f"{_COMPUTE}:apply_kl_penalty", stage="compute_kl", process_role="advantage",
        attributes={**_DATA, "penalty": "penalty"},
    ),
    *each(_COMPUTE, *(f"compute_{which}_data_metrics" for which in ("grpo", "dapo", "ppo")), attributes=_DATA),
)  # fmt: skip

# What a stage does with one dispatched batch. Source: models/actor.py:85-93, critic.py:69 (2.2), reference.py:52,
# reward.py:52, all decorated; base_training_engine.py:189, 472, 496: `update` calls `_forward_backward_batch` once per
# mini-batch and epoch, then takes the optimizer's step (:525): a mini-batch goes on until the next one, or the end of
# the model's part. Its micro-batches are run by Megatron's schedule (`_megatron.py`). There are no dummy batches: a
# worker asks for data until all is consumed (`all_consumed`), and calls the model only with some.
# The layer between (actor_rollout_hybrid.py:72, 95, 99) only calls the next one.
_HYBRID = "mindspeed_rl.models.actor_rollout_hybrid:ActorRolloutHybrid"
_ENGINE = "mindspeed_rl.models.base.base_training_engine:BaseTrainingEngine"
_PASSED = PieceSampling(ends_after=("mini_batch",))
_MODELS = (
    *each(
        "mindspeed_rl.models.actor:Actor", "compute_log_prob", "update_actor", "compute_image_embeds", sampling=_PASSED
    ),
    *each("mindspeed_rl.models.critic:Critic", "compute_values", "update_critic", sampling=_PASSED),
    Target("mindspeed_rl.models.reference:Reference.compute_log_prob", sampling=_PASSED),
    Target("mindspeed_rl.models.reward:Reward.compute_rm_score", sampling=_PASSED),
    *each(_HYBRID, "compute_log_prob", "update_actor", "compute_image_embeds", kind="delegate"),
    Target(
        f"{_ENGINE}._forward_backward_batch", boundary="mini_batch",
        sampling=PieceSampling(until_next=True, ends_after=("micro_batch",)), role="stage",
        attributes={"forward_only": "forward_only"},
    ),
    *each(_ENGINE, "forward", "update", tier="extra"),
    *CORE,
)  # fmt: skip

# Rollout. Source: actor_rollout_hybrid.py:76 (decorated; with async_engine it only makes the generator that
# `async_generate_sequences` is); actor_hybrid_worker.py:484, 575 (2.2), 667, 762 (master); vllm_engine.py:276-557.
# vLLM runs inside the worker: its own functions are those of the patches `vllm_ascend` and `sglang`.
_VLLM = "mindspeed_rl.models.rollout.vllm_engine:VLLMInferEngine"
_ROLLOUT = (
    Target(f"{_HYBRID}.generate_sequences", attributes={"prompts": "len(prompts_list)"}),
    Target(f"{_ACTOR}.sync_generate_process", attributes={**_DATA, "rows": "len(index)"}),
    Target(f"{_ACTOR}.async_generate_process", attributes={"rows": "len(index)"}),
    Target(f"{_ACTOR}.async_multi_turn_rollout", attributes={"rows": "len(indexes)"}),
    Target(f"{_ACTOR}.get_tool_response", max_per_s=100),
    Target(f"{_ACTOR}.get_partial_rollout_stop_signal", coalesce=True),  # asked once per decode step
    *each(_VLLM, "generate_sequences", "async_generate_sequences", attributes={"prompts": "len(idx_list)"}),
    *each(_VLLM, "init_cache_engine", "free_cache_engine"),
    Target(f"{_VLLM}._post_process_outputs", tier="extra"),
)

# Resharding. Only entering and leaving inference moves weights between the two layouts: that is the stage; the other
# modes load and offload within the stage they are in. Source: megatron_sharding_manager.py:101-203 (decorated;
# `exit_forward_mode` 2.2); actor_hybrid_worker.py:219, 241 (2.2; called on their own where DAPO filters groups);
# vllm_engine.py:361, 381; vllm_weight_container.py:179, 423, 487, 550, 573.
_SHARDING = "mindspeed_rl.workers.resharding.megatron_sharding_manager:MegatronShardingManager"
_CONTAINER = "mindspeed_rl.workers.resharding.vllm_weight_container:MegatronStyleVllmWeightContainer"
_RESHARDING = (
    *each(_SHARDING, "enter_infer_mode", "exit_infer_mode", stage="weight_sync"),
    *each(_SHARDING, "enter_forward_mode", "exit_forward_mode", "enter_train_mode", "exit_train_mode"),
    *each(_SHARDING, "onload_infer_params", "offload_infer_params"),
    *each(_ACTOR, "enter_infer_mode", "exit_infer_mode", step=_ITERATION),
    Target(f"{_VLLM}.sync_model_weights", attributes={"load_format": "load_format"}),
    Target(f"{_VLLM}.offload_model_weights"),
    Target(f"{_CONTAINER}.get_infer_params"),
    *each(_CONTAINER, *(f"_update_weight_buffers_{which}" for which in ("intra_pp", "inter_pp", "ep"))),
    *each(_CONTAINER, "_send_receive_experts", "_send_receive_redundancy_experts", tier="extra"),
)

# On- and offloading. Source: megatron_off_loader.py:136-290; in 2.0.0 and 2.1.0 in megatron_sharding_manager.py. All
# decorated. One call of `_move_to_device` per tensor of the optimizer's state, inside each other; one `swap_…` per
# parameter or buffer: counted, not recorded one by one.
_OFFLOADERS = tuple(
    f"mindspeed_rl.workers.resharding.{module}:MegatronOffLoader"
    for module in ("megatron_off_loader", "megatron_sharding_manager")
)
_OFFLOADING = tuple(
    target
    for where in _OFFLOADERS
    for target in (
        *each(where, "offload_param", "onload_param", role="stage", attributes={"with_ddp": "self.wrap_with_ddp"}),
        *each(where, "offload_grad", "onload_grad", "offload_optimizer", "onload_optimizer", role="stage"),
        Target(f"{where}._move_to_device", coalesce=True, max_depth=1),
        *each(where, "swap_tensors_to_host", "swap_tensors_to_device", coalesce=True),
    )
)

# Data in and out of a worker; they belong to the stage they are in. Source: base_worker.py:214 (polled in a loop),
# 346, 685, 825, 862 (2.1.0), all decorated; 367, 518 (2.2), 916 (2.1.0); zmq_communication.py:265, 388 (2.2);
# pad_process.py:13, 28 (2.2), 44, decorated; transfer_dock.py:1014, 1092 (2.2).
_BASE = "mindspeed_rl.workers.base_worker:BaseWorker"
_PAD = "mindspeed_rl.utils.pad_process"
_PACKING = ("pack_experience_columns", "unpack_pad_experience")
_TRANSFER = (
    Target(f"{_BASE}.dispatch_transfer_dock_data", role="stage", attributes=_DISPATCH),
    *each(
        _BASE, "collect_transfer_dock_data", "collect_transfer_dock_mm_data", role="stage",
        attributes={"rows": "len(index)", "use_vllm": "use_vllm"},
    ),
    Target(f"{_BASE}.all_consumed", coalesce=True),
    Target(f"{_BASE}.empty_cache"),
    Target(
        f"{_BASE}.dispatch_transfer_dock_data_zmq",
        attributes={"consumer": "para.experience_consumer_stage", "count": "para.experience_count"},
        tier="extra",  # all of `dispatch_transfer_dock_data`, where ZMQ is on
    ),
    Target(
        f"{_BASE}.broadcast_data_hccl",
        attributes={"columns": "len(data.experience_columns)", "use_vllm": "data.use_vllm"},
    ),
    Target(f"{_BASE}.get_batch_mm_data", attributes={"columns": "len(mm_columns)", "use_vllm": "use_vllm"}),
    Target("mindspeed_rl.utils.zmq_communication:ZmqServer.dispatch_transfer_docker_data"),
    Target("mindspeed_rl.utils.zmq_communication:ZmqClient.wait_publisher_message"),
    *each(
        _PAD, "padding_dict_to_tensor_dict", "remove_padding_tensor_dict_to_dict", "remove_padding_and_split_to_list"
    ),
    *each("mindspeed_rl.trainer.utils.transfer_dock", *_PACKING, tier="extra"),
    *each("mindspeed_rl.utils.transfer_queue.tq_utils", *_PACKING, tier="extra"),
)  # fmt: skip

# Life of a worker. Source: `initialize` and `save_ckpt` of each worker; integrated_worker.py:103, 228.
_LIFE = (
    *each(_ACTOR, "initialize", "_build_model_optimizer", "_build_rollout"),
    *each(_CRITIC, "initialize"),
    *each("mindspeed_rl.workers.integrated_worker:IntegratedWorker", "initialize", "load_checkpoint_with_path"),
    *(Target(f"{where}.initialize") for where in (*_REFERENCES, *_REWARDERS)),
    Target("mindspeed_rl.workers.vit_worker:VitWorkerBase.initialize"),
    Target(f"{_BASE}.setup_distributed_rank"),
    Target(f"{_ACTOR}.save_ckpt", stage="save_checkpoint", attributes={"iteration": "iteration"}),
    Target(f"{_CRITIC}.save_ckpt", stage="save_checkpoint", attributes={"iteration": "iteration"}),
)

# Upstream's profiler at work: its start and its stop, which may parse. Source: utils.py:518, 604, 636; called in all
# stages. Sessions of ours give way to it as to any other: `profiling/theirs.py`.
_UTILS = "mindspeed_rl.utils.utils"
_PROFILER = (
    Target(
        f"{_UTILS}:get_grpo_profiler", kind="around", value="mstxkit.patches._takes_over:mindspeed_rl_made",
        attributes={"role": "role"},
    ),
    Target(f"{_UTILS}:profiler_start", attributes={"role": "role", "prof_iteration": "profiler_iteration"}),
    Target(f"{_UTILS}:profiler_step", sampling=PieceSampling(ticks=True)),
)  # fmt: skip

PATCH = Patch(
    framework="mindspeed_rl",
    versions=">=2.0.0,<=2.3.0",
    # Source: utils.py:594, all versions: it begins a range by hand, without `finally`, whether or not anybody listens.
    seam=Seam(
        path="mindspeed_rl.utils.utils:mstx_timer_decorator", code_name="wrapper", file="mindspeed_rl/utils/utils.py"
    ),
    targets=(
        *(*_STAGES, *_REWARD, *_MODELS, *_ROLLOUT, *_RESHARDING, *_OFFLOADING),
        *(*_TRANSFER, *DOCKS, *_LIFE, *TRAINER, *_PROFILER),
    ),
    # Source: the classes under @ray.remote; scheduler_ms.py:19, 132.
    roles={
        "IntegratedWorker": "integrated", "ActorHybridWorker": "actor", "ReferenceWorker": "reference",
        "RewardWorker": "reward", "CriticWorker": "critic", "VitWorker": "vit", "RuleReward": "rule_reward",
        "DynamicSampling": "dynamic_sampling", "GRPOTransferDock": "transfer_dock",
        "MMGRPOTransferDock": "transfer_dock", "TransferQueueManager": "transfer_queue",
        "TransferQueueShard": "transfer_queue", "WorkerGroupRegisterCenterMS": "register_center",
        "WorkerGroupSchedulerMS": "scheduler",
    },
    notes=(
        "mindspeed_rl: into Ray workers without code, by configs/envs/runtime_env.yaml: worker_process_setup_hook: "
        '"mstxkit.bootstrap.ray.setup", and under env_vars: MSTXKIT_AUTOPATCH: "mindspeed_rl", MSTXKIT_RUN: <folder>',
        "mindspeed_rl: no step in dock, reward, sampling and advantage processes; PPO's clear_main bears the iteration "
        "whose data it clears, at the head of the next one",
        "mindspeed_rl: out of reach: worker processes of the rule verifier's pool, closures inside "
        "_forward_backward_batch",
    ),
)  # fmt: skip
