"""Ranges for trl: the stages of its trainers of RL, and names and steps without a stage for SFT, DPO and Reward.

Source: trl 0.20.0, 0.24.0, 0.27.0, 1.0.0 and 1.16.0, `trainer/grpo_trainer.py` and `trainer/rloo_trainer.py`; on
transformers 5.10.4 and accelerate 1.15.0, whose `Trainer` and `Accelerator` run the loop. trl's `profiling_decorator`
reports times to wandb, MLflow and Trackio, makes no ranges, and stays as it is.

Steps: `self.state.global_step`, 0 during the first update and taken up from the checkpoint. An update fetches its
batches with `get_batch_samples`, and then has a `training_step` for each of them; what follows (saving, evaluation)
belongs to it, though `global_step` is one more by then.
"""

from __future__ import annotations

from typing import Any

from ..patching.declare import AROUND, Patch, Target, each
from ..pieces.kinds import PieceSampling
from .transformers import rest_of_update

_STEP, _BATCHES = "self.state.global_step", {"batches": "num_batches"}
_MINE = "mstxkit.patches._trl_update"


def _read_model(self: Any, model: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
    """Which model gives the log-probabilities."""
    return {"model": "reference" if model is vars(self).get("ref_model") else "actor"}


def _rl_train(where: str) -> Target:
    """Training with RL, from where until when accelerate's part is that of `actor_update`."""
    return Target(f"{where}.train", kind=AROUND, value=f"{_MINE}:wrap_train", process_role="trainer")


def _target_updates(where: str, **attributes: str) -> tuple[Target, ...]:
    """What the loop of such a training calls. `train_step` is an update, up to the end of the optimizer."""
    return (
        _rl_train(where),
        Target(f"{where}.get_batch_samples", step=_STEP, attributes=_BATCHES, sampling=PieceSampling(ends_round=True)),
        Target(
            f"{where}.training_step", stage="train_step", step=_STEP, boundary="micro_batch", attributes=attributes,
            sampling=PieceSampling(is_round=True),
        ),
        Target(f"{where}.evaluate", stage="evaluate"),
        Target(f"{where}._save_checkpoint", stage="save_checkpoint"),
    )  # fmt: skip


def _target_loss(where: str) -> Target:
    """Of a micro-batch. With the first begins `actor_update`, which ends with the optimizer or where others begin."""
    sampling = PieceSampling(until_next=True, is_round=True)
    return Target(f"{where}.compute_loss", stage="actor_update", boundary="micro_batch", sampling=sampling)


def _target_trainer(where: str) -> tuple[Target, ...]:
    """What GRPOTrainer and RLOOTrainer have in common, some of it from `transformers.Trainer`.

    Lines of grpo_trainer.py in 1.16.0: 1510, 1522, 2193, 1763, 1945, 2324, 1579, 1419, 2939, 3384.
    `training_step` is their own since 0.27.0, `_generate` and `_generate_single_turn` exist since 0.24.0,
    `_tool_call_loop` since 0.27.0, in GRPO only. The function for log-probabilities serves the old policy, the
    reference and the loss: its stage is that of what it is called in. So is that of the advantages, which have no
    function, in `_generate_and_score_completions`.
    """
    return (
        *_target_updates(where, micro_batch="self._step"),
        Target(f"{where}._prepare_inputs"),
        Target(f"{where}._generate_and_score_completions", attributes={"prompts": "len(inputs)"}),
        Target(f"{where}._generate", stage="actor_generate", attributes={"prompts": "len(prompts)"}),
        Target(f"{where}._generate_single_turn"),
        Target(f"{where}._tool_call_loop", attributes={"prompts": "len(prompts)"}),
        Target(
            f"{where}._calculate_rewards", stage="reward",
            attributes={"completions": "len(completions)", "functions": "len(self.reward_funcs)"},
        ),
        Target(f"{where}._get_per_token_logps_and_entropies", attributes=_read_model),
        _target_loss(where),
    )  # fmt: skip


_GRPO = "trl.trainer.grpo_trainer:GRPOTrainer"
_RLOO = "trl.trainer.rloo_trainer:RLOOTrainer"

# Trainers of RL with a loop, or an update, of their own. Source: 0.24.0 `trainer/`, 1.0.0 and 1.16.0 `experimental/`;
# 1.16.0 has no PPO. XPO and NashMD derive from OnlineDPO. PPO's step cannot be read: its loop is one function.
_ONLINE_DPO = tuple(f"trl.{at}.online_dpo_trainer:OnlineDPOTrainer" for at in ("trainer", "experimental.online_dpo"))
_PPO = tuple(f"trl.{at}.ppo_trainer:PPOTrainer" for at in ("trainer", "experimental.ppo"))
_ASYNC_GRPO = "trl.experimental.async_grpo.async_grpo_trainer:AsyncGRPOTrainer"


def _online_dpo(where: str) -> tuple[Target, ...]:
    """The parts of one `training_step`. Lines in 1.16.0: 947, 632, 799, 1058, 1104, 1363."""
    return (
        *_target_updates(where),
        *each(where, "_generate", "_generate_vllm", stage="actor_generate", attributes={"prompts": "len(prompts)"}),
        Target(f"{where}._move_model_to_vllm", stage="weight_sync"),
        Target(
            f"{where}._calculate_rewards_from_functions", stage="reward", attributes={"completions": "len(completions)"}
        ),
        Target(f"{where}._forward", kind=AROUND, value=f"{_MINE}:log_probabilities"),
    )


def _target_ppo(where: str) -> tuple[Target, ...]:
    """What of PPO's loop has a function. Source: ppo_trainer.py:477, 89 (0.24.0); the wrapper is for the loss only.

    One function, `get_reward`, gives values and rewards: it is neither stage.
    """
    module = where.partition(":")[0]
    return (
        _rl_train(where),
        Target(f"{module}:batch_generation", stage="actor_generate"),
        Target(f"{module}:PolicyAndValueWrapper.forward", stage="actor_update", sampling=PieceSampling(is_round=True)),
        Target(f"{where}._save_checkpoint", stage="save_checkpoint"),
    )


_OTHER_RL = (
    *(target for where in _ONLINE_DPO for target in _online_dpo(where)),
    *(target for where in _PPO for target in _target_ppo(where)),
    *(*_target_updates(_ASYNC_GRPO), _target_loss(_ASYNC_GRPO)),
)


def _target_supervised(kind: str) -> tuple[Target, ...]:
    """A trainer that generates nothing: nothing of it is a stage of RL. Source: sft_trainer.py:1560, 1691 (1.16.0)."""
    where = f"trl.trainer.{kind.lower()}_trainer:{kind}Trainer"
    return (
        Target(f"{where}.train", process_role="trainer"),
        Target(f"{where}.get_batch_samples", step=_STEP, attributes=_BATCHES),
        Target(f"{where}.training_step", step=_STEP),
        *each(where, "compute_loss", "evaluate", "_save_checkpoint"),
    )


_SUPERVISED = tuple(target for kind in ("SFT", "DPO", "Reward") for target in _target_supervised(kind))

# vLLM beside or inside the trainer. Source: grpo_trainer.py `_move_model_to_vllm` (up to 0.27.0), then
# generation/vllm_generation.py:481, 550 (1.0.0 and 1.16.0); extras/vllm_client.py `generate` (up to 0.27.0). What is
# `sent` is no work besides the trainer's `prompts`; with a server, all of it is sent by the main process (1.16.0:597).
_VLLM, _SENT = "trl.generation.vllm_generation:VLLMGeneration", {"sent": "len(prompts)"}
_GENERATION = (
    # Versions without `_generate` do it in `_generate_and_score_completions`: grpo_trainer.py:1543, 1570 (0.20.0).
    Target(
        "trl.trainer.grpo_trainer:unwrap_model_for_generation", kind="context", name="generate", stage="actor_generate",
        unless=f"{_GRPO}._generate",
    ),
    *(Target(f"{where}._move_model_to_vllm", stage="weight_sync") for where in (_GRPO, _RLOO)),
    Target(f"{_VLLM}.sync_weights", stage="weight_sync"),
    Target(f"{_VLLM}.generate", stage="actor_generate", attributes=_SENT),
    Target("trl.extras.vllm_client:VLLMClient.generate", stage="actor_generate", attributes=_SENT),
)  # fmt: skip

PATCH = Patch(
    framework="trl",
    versions=">=0.20.0,<=1.16.0",
    targets=(
        *_target_trainer(_GRPO), *_target_trainer(_RLOO), *_OTHER_RL, *_SUPERVISED, *rest_of_update("trl"),
        *_GENERATION,
    ),
    notes=(
        "trl: actor_update is the loss of each micro-batch, its backward pass, clipping and the optimizer's step; a "
        "profile holds that of a whole update, or its parts where other stages come between; of online DPO each call, "
        "of PPO a micro-batch; the loss of an evaluation counts too",
        "trl: only what a trainer of RL does is a stage: GRPO, RLOO, online DPO, async GRPO, what derives from them, "
        "and PPO, which has no steps, and whose values, rewards and references are no stage; SFT, DPO and Reward have "
        "names and steps, and no stage; other trainers have only backward pass, clipping and the optimizer's step",
    ),
)  # fmt: skip
