"""verl's trainers: the process that drives a step, and its stages.

In every version a stage of the trainer is a `with marked_timer("gen", timing_raw):` block, mostly in one long method,
and its name is that of the metric `timing_s/gen`. So the blocks themselves are the targets.
"""

from ..patching import trainer_settings
from ..patching.declare import CONTEXT, VALUE, Target, by, method
from . import _verl_steps as steps

PROFILER = "verl.utils.profiler"
RAY_TRAINER = "verl.trainer.ppo.ray_trainer"
V1 = "verl.trainer.ppo.v1.trainer_base"
SYNC = "verl.trainer.main_ppo_sync"
BEFORE_V1 = (f"{RAY_TRAINER}:RayPPOTrainer", f"{SYNC}:PPOTrainer")
CLASSES = (*BEFORE_V1, f"{V1}:PPOTrainer")
MARKS, TAKES_OVER = "mstxkit.patches._verl_marks", "mstxkit.patches._takes_over"

# Blocks in which a trainer calls its workers and waits, and no more than hands batches on. The others are its own work:
# "adv", "reward" (up to 0.7.0 the reward function; a reward model is waited for in it), "dump_rollout_generations"; and
# "step", which is all of it. A validation counts as waiting: it generates. ray_trainer.py 0.6.1:1041-1251 to
# 0.9.1:1510-1736; v1/trainer_base.py 0.9.1:484-609, trainer_separate_async.py 0.9.1:258-390; separation,
# one_step_off_policy and fully_async_policy 0.9.1.
WAITS = (
    "gen", "gen_max", "generate_async", "old_log_prob", "ref", "values", "update_critic", "update_actor",
    "update_weights", "sync_rollout_weights", "timing_s/param_sync", "save_checkpoint", "testing",
    "rollouter/validate_time", "wait_for_enough_samples", "switch_wait", "switch_to_trainer", "switch_to_rollout",
    "stop_profile",
)  # fmt: skip

# utils/profiler/__init__.py, all versions: one of the three is `marked_timer`: nvtx_profile's where nvtx is installed,
# else mstx_profile's on an NPU, else performance's. None calls another. Every trainer copies it by `from x import y`.
# The block "start_profile" holds nothing but the call of `_start_profiling`, which knows the step: up to 0.8.0 no call
# before it does (ray_trainer.py 0.6.1:1014 to 0.9.1:1472, separation/ray_trainer.py 0.7.1:385 to 0.9.1:391).
BLOCKS = tuple(
    Target(f"{PROFILER}.{module}:marked_timer", kind=CONTEXT, waits=WAITS, leaves_out=("start_profile",))
    for module in ("performance", "mstx_profile", "nvtx_profile")
)

# utils/profiler/mstx_profile.py, all versions: NPUProfiler.annotate and marked_timer give verl's own marks by these.
# In a profiled step they would be there twice, as ours go into the same trace.
OWN_MARKS = (
    Target(f"{PROFILER}.mstx_profile:mark_start_range", kind=VALUE, value=f"{MARKS}:start_mark"),
    Target(f"{PROFILER}.mstx_profile:mark_end_range", kind=VALUE, value=f"{MARKS}:end_mark"),
)

# verl's own profiler, where mstxkit carries out its section instead.
OWN_PROFILER = (
    Target(f"{PROFILER}.mstx_profile:NPUProfiler.start", kind="around", value=f"{TAKES_OVER}:verl_started"),
    Target(f"{PROFILER}.mstx_profile:get_npu_profiler", kind="around", value=f"{TAKES_OVER}:verl_made"),
)

# Called once a step, before the block "step" opens, with the step from the checkpoint where training resumed.
STEPS = (
    # trainer/ppo/ray_trainer.py 0.6.1:897 0.7.0:1064 0.7.1:980 0.8.0:1110 0.9.0:1119 0.9.1:1119; the trainers of
    # separation, one_step_off_policy and fully_async_policy derive from it
    # trainer/main_ppo_sync.py 0.8.0:1170
    *(
        Target(
            f"{trainer}._start_profiling", name="start_profile", step="self.global_steps", waits=True, **by("trainer")
        )
        for trainer in BEFORE_V1
    ),
    # utils/skip/skip_manager.py 0.9.0:51 0.9.1:51; v1/trainer_base.py 0.9.1:455,521 and ray_trainer.py call it right
    # after `self.global_steps += 1`. (v1 calls its own _start_profiling inside the block "step": too late.)
    method("verl.utils.skip.skip_manager:SkipManager.set_step", step="step", **by("trainer")),
)

# Before training starts no block surrounds them: validation (val_before_train), loading, starting the workers.
AROUND = (
    *(
        Target(
            f"{trainer}._validate", name="validate", stage="evaluate", step=steps.of_validation, waits=True,
            **by("trainer"),
        )
        # ray_trainer.py 0.6.1:529 0.7.0:607 0.7.1:502 0.8.0:599 0.9.0:596 0.9.1:596; main_ppo_sync.py 0.8.0:858;
        # v1/trainer_base.py 0.9.0:959 0.9.1:1031
        for trainer in CLASSES
    ),
    # ray_trainer.py 0.6.1:837 to 0.9.1:1052; main_ppo_sync.py 0.8.0:744; v1/trainer_base.py 0.9.0:789 0.9.1:850
    *(
        Target(
            f"{trainer}._load_checkpoint", name="load_checkpoint", attributes=trainer_settings.of_config, waits=True,
            **by("trainer"),
        )
        for trainer in CLASSES
    ),
    # ray_trainer.py 0.6.1:670 to 0.9.1:772
    method(f"{RAY_TRAINER}:RayPPOTrainer.init_workers", waits=True, **by("trainer")),
)  # fmt: skip

# What the trainer itself computes inside the blocks.
INSIDE = (
    # ray_trainer.py 0.6.1:919 to 0.9.1:1182; main_ppo_sync.py 0.8.0:1276; v1/trainer_base.py 0.9.0:1453 0.9.1:1608
    *(Target(f"{trainer}._balance_batch", name="balance_batch", role="trainer") for trainer in CLASSES),
    # trainer/ppo/ray_trainer.py 0.6.1:181 0.7.0:186 0.7.1:129 0.8.0:185 0.9.1:187, in the block "adv"
    Target(f"{RAY_TRAINER}:compute_advantage", role="trainer"),
    # trainer/ppo/ray_trainer.py 0.6.1:121 0.7.0:126 0.7.1:69 0.8.0:76 0.9.1:78, in the block "adv"
    Target(f"{RAY_TRAINER}:apply_kl_penalty", stage="compute_kl", role="trainer"),
)

# trainer/fsdp_sft_trainer.py 0.6.1:466,526,537 0.7.0:473,533,544. (sft_trainer.py goes through TrainingWorker.)
_SFT = "verl.trainer.fsdp_sft_trainer:FSDPSFTTrainer"
SFT = (
    method(f"{_SFT}.training_step", stage="train_step", **by("trainer")),
    method(f"{_SFT}.validation_step", stage="evaluate", role="trainer"),
    method(f"{_SFT}.save_checkpoint", stage="save_checkpoint", role="trainer", attributes={"global_step": "step"}),
)  # fmt: skip

TRAINERS = (*BLOCKS, *OWN_MARKS, *OWN_PROFILER, *STEPS, *AROUND, *INSIDE, *SFT)
