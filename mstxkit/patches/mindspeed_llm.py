"""Ranges for MindSpeed-LLM: the Megatron (MCore) loop, the FSDP2 loop, post-training and inference.

Source: MindSpeed-LLM 2.1.0, 2.2.0, 2.3.0, 26.1.0 and master c77308a1, whose line numbers these are; Megatron-LM
core_r0.8.0 (under 2.1.0) and core_v0.12.1 (under all later ones). "26.1" in a comment means: since 26.1.0.

Steps: upstream's own numbers, resume-aware. MCore counts from 1, as in its log lines, checkpoints and
`--profile-step-start`. The number is a local variable of `train`, told only when an iteration ends: the next train step
is one more. FSDP2 counts from 0: `Trainer.global_step`, the finished updates.
"""

from ..patching.declare import Patch, Target, each
from ..patching.trainer_settings import of_megatron
from ..pieces.kinds import PieceSampling
from ._megatron import CORE as SCHEDULE
from ._megatron import SCHEDULES

_ITERATION = "iteration"
_SAVED = {"iteration": "iteration"}
_UPDATE = "self.global_step"

# The MCore loop. Source: mindspeed_llm/training/training.py: pretrain :455, train :580, and what it calls each
# iteration: train_step, training_log, evaluate_and_print_results, save_checkpoint_and_time, all but training_log copied
# by name from megatron/training/training.py (0.12.1: train_step :1213, training_log :1325, save_checkpoint_and_time
# :1640, evaluate_and_print_results :2260); training_log is LLM's own but in 2.2.0. LLM puts its `train` in the place of
# Megatron's (features_manager/megatron_basic/training_basic.py:141), and with layerwise disaggregated training (26.1)
# its own train_step. on_train_start is called with the iteration of the checkpoint, once, before the first step.
_LLM = "mindspeed_llm.training.training"
_MEGATRON = "megatron.training.training"
_LOOP = (
    Target(f"{_LLM}:pretrain", process_role="trainer"),
    *(Target(f"{module}:train", process_role="trainer", attributes=of_megatron) for module in (_LLM, _MEGATRON)),
    Target("megatron.training.one_logger_utils:on_train_start", step_after=_ITERATION),
    Target(f"{_MEGATRON}:train_step", stage="train_step"),
    Target("mindspeed_llm.core.layerwise_disaggregated_training.training:train_step", stage="train_step"),
    *(Target(f"{module}:training_log", step_after=_ITERATION) for module in (_LLM, _MEGATRON)),
    Target(f"{_MEGATRON}:evaluate_and_print_results", stage="evaluate", step_after=_ITERATION),
)

# Forward and backward of all micro-batches, then of one; optimizer. Source: Megatron 0.12.1
# core/pipeline_parallel/schedules.py:434, 672, 1719; forward_step :175, backward_step :352, globals that are looked up
# at each call; core/optimizer/optimizer.py:470, 830, 1123. MindSpeed 26.1.0 puts a `step` of its own in the place of
# ChainedOptimizer's (core/megatron_basic/count_zero_fix.py), which calls `step_with_ready_grads` (0.12.1:1057).
_OPTIMIZERS = "megatron.core.optimizer.optimizer"
_CORE = (
    *SCHEDULE,
    Target(f"{SCHEDULES}:backward_step", tier="extra", max_per_s=200),
    *each(
        _OPTIMIZERS, "MixedPrecisionOptimizer.step", "FP32Optimizer.step", "ChainedOptimizer.step",
        "ChainedOptimizer.step_with_ready_grads",
    ),
)  # fmt: skip

# Checkpoints. Source: megatron/training/checkpointing.py (0.12.1: :306, :1167), async_utils.py; 26.1 finalizes
# asynchronous ones at the head of each iteration (training.py:694) and can convert them (:829, checkpointing.py).
_CHECKPOINTS = (
    Target(f"{_MEGATRON}:save_checkpoint_and_time", stage="save_checkpoint", step_after=_ITERATION, attributes=_SAVED),
    Target(
        "megatron.training.checkpointing:save_checkpoint", stage="save_checkpoint", step_after=_ITERATION,
        attributes=_SAVED,
    ),
    Target("megatron.training.checkpointing:load_checkpoint"),
    Target("megatron.training.async_utils:maybe_finalize_async_save", attributes={"blocking": "blocking"}),
    Target("mindspeed_llm.training.checkpointing:_convert_weights_mg2hf", attributes=_SAVED),
)  # fmt: skip

# Batches and post-training: one call a micro-batch. Source: mindspeed_llm/training/utils.py:423, 566; the trainers in
# tasks/posttrain: sft, dpo and ldt_sft (26.1), simpo, orm and prm (2.1.0 and 2.2.0).
_TASKS = "mindspeed_llm.tasks.posttrain"
_POST_TRAINERS = (
    "sft.sft_trainer:SFTTrainer", "dpo.dpo_trainer:DPOTrainer", "ldt_sft.ldt_sft_trainer:LDTSFTTrainer",
    "dpo.simpo_trainer:SimPOTrainer", "orm.orm_trainer:ORMTrainer", "prm.prm_trainer:PRMTrainer",
)  # fmt: skip
_POSTTRAIN = (
    *each(f"{_TASKS}.base.base_trainer:BaseTrainer", "initialize", "train", process_role="trainer"),
    Target(f"{_TASKS}.ldt_sft.ldt_sft_trainer:LDTSFTTrainer.train", process_role="trainer"),
    *(
        Target(f"{_TASKS}.{trainer}.forward_step", tier="extra", boundary="micro_batch", max_per_s=200)
        for trainer in _POST_TRAINERS
    ),
    *each(
        "mindspeed_llm.training.utils", "get_batch_on_this_tp_rank", "get_finetune_data_on_this_tp_rank", tier="extra",
        max_per_s=200,
    ),
)  # fmt: skip

# PPO within one process (2.1.0 and 2.2.0), later left to MindSpeed-RL. Source: 2.2.0
# tasks/posttrain/trl_ppo/TrlPPOTrainer.py: `train` counts self.iteration from 1 and calls rl_steps, which rolls out and
# then calls train_step for the actor and for the critic; trl_ppo/utils.py.
_PPO = f"{_TASKS}.trl_ppo.TrlPPOTrainer:TrlPPOTrainer"
_TRL_PPO = (
    Target(f"{_PPO}.train", process_role="trainer"),
    Target(f"{_PPO}.rl_steps", step="self.iteration"),
    Target(f"{_PPO}.rollout", stage="actor_generate"),
    Target(f"{_TASKS}.trl_ppo.TrlPPOEngine:TrlPPOEngine.compute_advantages_and_returns", stage="compute_advantage"),
    Target(f"{_PPO}.train_step", stage="train_step"),
    Target(f"{_TASKS}.trl_ppo.utils:save_checkpoint_and_time", stage="save_checkpoint", attributes=_SAVED),
)

# The FSDP2 loop (26.1). Source: mindspeed_llm/fsdp2/train/trainer.py: train :141, in it for each update: a fetch of all
# its micro-batches :617 (:525 and :569 with context parallelism, which call it), training_step :463 for each of them
# (forward and backward), clip_grad_norm, optimizer.step :312, profiler, monitor and checkpoint. Clipping lies in
# fsdp2/distributed in 26.1.0, in fsdp2/optim since.
_TRAINER = "mindspeed_llm.fsdp2.train.trainer:Trainer"
_OPTIM, _OPTIMIZED = "mindspeed_llm.fsdp2.optim.optimizer", PieceSampling(ends_round_after=True)
_FSDP2 = (
    Target(f"{_TRAINER}.train", process_role="trainer"),
    Target(
        f"{_TRAINER}._get_batch_samples", step=_UPDATE, attributes={"micro_batches": "num_batches"},
        sampling=PieceSampling(ends_round=True),
    ),
    *each(_TRAINER, "_get_batch_samples_ulysses", "_get_batch_samples_megatron", tier="extra", step=_UPDATE),
    # A call is one micro-batch, the stage all of a step, to the end of the optimizer, as in MCore; where that is one
    # of torch's, to what comes after it: profiler, monitor, a checkpoint, the next fetch.
    Target(
        f"{_TRAINER}.training_step", stage="train_step", step=_UPDATE, boundary="micro_batch",
        sampling=PieceSampling(is_round=True),
    ),
    Target(f"{_TRAINER}._compute_loss", tier="extra", max_per_s=200),
    *(Target(f"mindspeed_llm.fsdp2.{folder}.clip_grad_norm:clip_grad_norm") for folder in ("optim", "distributed")),
    *each(_OPTIM, "MultiOptimizer.step", "FunctionalFusedAdamW.step", sampling=_OPTIMIZED),
    Target("mindspeed_llm.fsdp2.optim.muon:Muon.step", sampling=_OPTIMIZED),
    Target("torch.optim.adamw:AdamW.step", with_module=_OPTIM),  # one of several in a MultiOptimizer: it ends no round
    Target(
        "mindspeed_llm.fsdp2.utils.train_monitor:TrainMonitor.step", attributes={"finished": "current_step"},
        sampling=PieceSampling(ends_round=True),
    ),
    # Its step may parse a profile, which stops the loop.
    *each(
        "mindspeed_llm.fsdp2.utils.profiler:ProfilerManager", "start", "step", "stop",
        sampling=PieceSampling(ends_round=True),
    ),
)  # fmt: skip

# Source: fsdp2/checkpoint/checkpoint_manager.py:306; `save_async` only starts the writing.
_MANAGER = "mindspeed_llm.fsdp2.checkpoint.checkpoint_manager:CheckpointManager"
_FSDP2_CHECKPOINTS = (
    Target(
        f"{_MANAGER}.save", stage="save_checkpoint", attributes={"finished": "global_steps", "save_async": "save_async"}
    ),
    *each(_MANAGER, "load", "execute_save", "save_model_weights"),
)

# Where its own profiler is asked for, so that mstxkit can carry out its section instead: `_takes_over.py`.
_TAKES_OVER = "mstxkit.patches._takes_over"
_PROFILING = (
    Target(f"{_LLM}:is_profile_enabled", kind="wrap", value=f"{_TAKES_OVER}:mindspeed_llm_asked"),
    Target(
        "mindspeed_llm.fsdp2.utils.profiler:ProfilerConfig.is_profiling_rank", kind="wrap",
        value=f"{_TAKES_OVER}:mindspeed_llm_fsdp2_asked",
    ),
)  # fmt: skip

# Inference. Source: tasks/inference/module.py:75, 301, 572; deepseek4_module.py:93 (26.1);
# fsdp2/inference/engine/hf_engine.py:92 and on (26.1), whose chat is a coroutine and stream_chat an async generator.
_INFERENCE = "mindspeed_llm.tasks.inference"
_GENERATION = (
    Target(f"{_INFERENCE}.module:MegatronModuleForCausalLM.generate", stage="actor_generate"),
    Target(f"{_INFERENCE}.module:GPTModelInfer.generate"),
    Target(f"{_INFERENCE}.deepseek4_module:DeepSeek4ModelInfer.generate"),
    *each(
        "mindspeed_llm.fsdp2.inference.engine.hf_engine:HuggingfaceEngine", "chat", "stream_chat",
        stage="actor_generate", attributes={"messages": "len(messages)"},
    ),
)  # fmt: skip

PATCH = Patch(
    framework="mindspeed_llm",
    versions=">=2.1.0,<=26.1.0",
    targets=(
        *(*_LOOP, *_CORE, *_CHECKPOINTS, *_POSTTRAIN, *_TRL_PPO),
        *(*_FSDP2, *_FSDP2_CHECKPOINTS, *_PROFILING, *_GENERATION),
    ),
    notes=(
        "mindspeed_llm: started by torchrun: MSTXKIT_AUTOPATCH=mindspeed_llm in its environment, or mstxkit run -- "
        "torchrun …, reaches every rank",
        "mindspeed_llm: out of reach: forward_step and get_batch in pretrain_gpt.py, which run as __main__ (their work "
        "is in megatron's forward_step, tier extra), and what MindSpeed replaces by functions of its own, such as the "
        "schedules of ripipe and dualpipe",
    ),
)
