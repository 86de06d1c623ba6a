"""Ranges for trl's GRPO and RLOO trainers: generation, rewards, log-probabilities, loss, update, evaluation, saving.

Source: trl 0.20.0, 0.24.0, 0.27.0, 1.0.0 and 1.16.0, `trainer/grpo_trainer.py` and `trainer/rloo_trainer.py`; on
transformers 5.10.4 and accelerate 1.15.0, whose `Trainer` and `Accelerator` run the loop. trl's `profiling_decorator`
reports times to wandb, MLflow and Trackio, makes no ranges, and stays as it is.

Steps: `self.state.global_step`, 0 during the first update and taken up from the checkpoint. An update fetches its
batches with `get_batch_samples`, and then has a `training_step` for each of them; what follows (saving, evaluation)
belongs to it, though `global_step` is one more by then.
"""

from __future__ import annotations

from typing import Any

from ..patching.declare import Patch, Target
from ..pieces.sampling import PieceSampling

_STEP = "self.state.global_step"


def _whose(self: Any, model: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
    """Which model gives the log-probabilities."""
    return {"model": "reference" if model is vars(self).get("ref_model") else "actor"}


def _trainer(where: str) -> tuple[Target, ...]:
    """What GRPOTrainer and RLOOTrainer have in common, some of it from `transformers.Trainer`.

    Lines of grpo_trainer.py in 1.16.0: 1510, 1522, 2193, 1763, 1945, 2324, 1579, 1419, 2939, 3384.
    `training_step` is their own since 0.27.0, `_generate` and `_generate_single_turn` exist since 0.24.0,
    `_tool_call_loop` since 0.27.0, in GRPO only. The function for log-probabilities serves the old policy, the
    reference and the loss: its stage is that of what it is called in. So is that of the advantages, which have no
    function, in `_generate_and_score_completions`.
    """
    return (
        Target(f"{where}.train", process_role="trainer"),
        Target(
            f"{where}.get_batch_samples",
            step=_STEP,
            attributes={"batches": "num_batches"},
            sampling=PieceSampling(ends_round=True),
        ),
        Target(
            f"{where}.training_step",
            stage="train_step",
            step=_STEP,
            boundary="micro_batch",
            attributes={"micro_batch": "self._step"},
        ),
        Target(f"{where}._prepare_inputs"),
        Target(f"{where}._generate_and_score_completions", attributes={"prompts": "len(inputs)"}),
        Target(f"{where}._generate", stage="actor_generate", attributes={"prompts": "len(prompts)"}),
        Target(f"{where}._generate_single_turn"),
        Target(f"{where}._tool_call_loop", attributes={"prompts": "len(prompts)"}),
        Target(
            f"{where}._calculate_rewards",
            stage="reward",
            attributes={"completions": "len(completions)", "functions": "len(self.reward_funcs)"},
        ),
        Target(f"{where}._get_per_token_logps_and_entropies", attributes=_whose),
        Target(f"{where}.compute_loss", stage="actor_update"),
        Target(f"{where}.evaluate", stage="evaluate"),
        Target(f"{where}._save_checkpoint", stage="save_checkpoint"),
    )


_GRPO = "trl.trainer.grpo_trainer:GRPOTrainer"
_RLOO = "trl.trainer.rloo_trainer:RLOOTrainer"

# The rest of an update, in the training loop of `transformers.Trainer`. Source: accelerate 1.15.0, accelerator.py:2829,
# 2989, optimizer.py:152.
_ACCELERATOR = "accelerate.accelerator:Accelerator"
_UPDATE = (
    Target(f"{_ACCELERATOR}.backward", name="backward", stage="actor_update"),
    Target(f"{_ACCELERATOR}.clip_grad_norm_", name="clip_grad_norm", stage="actor_update"),
    Target("accelerate.optimizer:AcceleratedOptimizer.step", name="optimizer_step", stage="actor_update"),
)

# Generation of versions without `_generate`: in the middle of `_generate_and_score_completions`, inside this context.
# Source: grpo_trainer.py:1543, 1570 (0.20.0).
_OLD_GENERATION = (
    Target(
        "trl.trainer.grpo_trainer:unwrap_model_for_generation", kind="context", name="generate", stage="actor_generate",
        unless=f"{_GRPO}._generate",
    ),
)  # fmt: skip

# vLLM beside or inside the trainer. Source: grpo_trainer.py `_move_model_to_vllm` (up to 0.27.0), then
# generation/vllm_generation.py:481, 550 (1.0.0 and 1.16.0); extras/vllm_client.py `generate` (up to 0.27.0).
_VLLM = "trl.generation.vllm_generation:VLLMGeneration"
_ENGINE = (
    *(Target(f"{where}._move_model_to_vllm", stage="weight_sync") for where in (_GRPO, _RLOO)),
    Target(f"{_VLLM}.sync_weights", stage="weight_sync"),
    Target(f"{_VLLM}.generate", stage="actor_generate", attributes={"prompts": "len(prompts)"}),
    Target(
        "trl.extras.vllm_client:VLLMClient.generate", stage="actor_generate", attributes={"prompts": "len(prompts)"}
    ),
)

PATCH = Patch(
    framework="trl",
    versions=">=0.20.0,<=1.16.0",
    targets=(*_trainer(_GRPO), *_trainer(_RLOO), *_UPDATE, *_OLD_GENERATION, *_ENGINE),
    notes=(
        "trl: actor_update is the loss of each micro-batch, its backward pass, clipping and the optimizer's step; the "
        "loss of an evaluation counts too",
        "trl: other trainers than GRPO and RLOO have ranges only for backward pass, clipping and the optimizer's step",
    ),
)
