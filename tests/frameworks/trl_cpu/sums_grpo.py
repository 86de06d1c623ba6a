"""GRPO of sums with trl and a server of vLLM: `sums_grpo.py MODEL [SERVER]` makes the model, or trains it.

Each request has a seed of its own, so that what is sampled depends neither on their order nor on how they are batched.
With SUMS_HOLD="0 FILE" the first update waits for that file, between its gradients and the optimizer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import sums
import sums_reward
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, TrainerCallback

STEPS = 3


class Held(TrainerCallback):  # type: ignore[misc]
    """In the middle of an update."""

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """It has gradients."""
        sums_reward.hold()


def make(model: Path) -> None:
    """A random one, and its tokenizer."""
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**{**sums.configuration(), **sums.FOR_VLLM})).save_pretrained(model)
    sums.tokenizer().save_pretrained(model)


def reward(completions: list[str], **_: object) -> list[float]:
    """Digits, and one first."""
    return [
        sum(char.isdigit() for char in text) / max(1, len(text)) + float(text[:1].isdigit()) for text in completions
    ]


def train(model: Path, server: str) -> None:
    """Prints what trl has logged of each step."""
    import trl_on_cpu
    from datasets import IterableDataset
    from trl import GRPOConfig, GRPOTrainer

    trl_on_cpu.send_over_gloo()
    questions = IterableDataset.from_generator(lambda: ({"prompt": f"{a}+{b}="} for a in range(8) for b in range(8)))
    settings = GRPOConfig(
        output_dir=str(model.parent / "trained"), use_vllm=True, vllm_mode="server", vllm_server_base_url=server,
        max_steps=STEPS, per_device_train_batch_size=8, num_generations=4, max_completion_length=12, use_cpu=True,
        bf16=False, learning_rate=1e-3, logging_steps=1, report_to=[], save_strategy="no", seed=1,
        generation_kwargs={"seed": 1},
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    trainer = GRPOTrainer(
        model=str(model), reward_funcs=reward, args=settings, train_dataset=questions, processing_class=tokenizer,
        callbacks=[Held()],
    )  # fmt: skip
    trainer.train()
    sys.stdout.write(json.dumps(trainer.state.log_history) + "\n")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    train(where, sys.argv[2]) if len(sys.argv) > 2 else make(where)
