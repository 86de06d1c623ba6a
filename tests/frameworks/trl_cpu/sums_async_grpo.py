"""AsyncGRPO of sums with trl and a server of vLLM: `sums_async_grpo.py MODEL SERVER` trains a model of `sums_grpo.py`.

trl generates while it trains, and so speed decides which weights an answer has. Here each answer waits until the server
has those of the step before its own, as accelerate wants the next step's batch before it gives a batch out: an
environment's `reset`, which trl calls before each answer, returns then. One request at a time.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import requests
import sums_grpo
import torch
from transformers import AutoTokenizer, TrainerCallback

PROMPTS, ANSWERS = 2, 4
HELD_AT_MOST_S = 900
SENT = "SUMS_SENT"
# How trl finds an answer in what was generated: all of it is the answer.
ANSWER = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<a>",
    "fields": {"content": {"close": "<eos>", "content": "text"}},
}
# trl imports this file in the process that generates, and draws the seed of each request there.
random.seed(1)


class Turn:
    """An answer's, in the process that generates: it has no tools, and waits."""

    def reset(self, step: int, **_: object) -> None:
        """Until the server has the weights of the step before this one."""
        deadline_s = time.monotonic() + HELD_AT_MOST_S
        while int(Path(os.environ[SENT]).read_text()) < step - 1:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the weights before step {step} did not come")
            time.sleep(0.05)


class Sent(TrainerCallback):  # type: ignore[misc]
    """Says which step's weights the server has; the last one of a step to be called."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """They were sent just now."""
        self._say(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Nobody waits any more."""
        self._say(sys.maxsize)

    def _say(self, step: int) -> None:
        new = Path(f"{os.environ[SENT]}.new")
        new.write_text(str(step))
        new.replace(os.environ[SENT])


def reward(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
    """That of GRPO, of messages."""
    return sums_grpo.reward([messages[-1]["content"] for messages in completions])


def train(model: Path, server: str) -> None:
    """Prints what trl has logged of each step, and how sure of its next token each side is in the end."""
    import trl_on_cpu
    from datasets import Dataset

    trl_on_cpu.train_async_on_cpu()
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

    questions = [[{"role": "user", "content": f"{a}+{b}="}] for a in range(8) for b in range(8)]
    rows = Dataset.from_dict({"prompt": questions, "step": [number // PROMPTS for number in range(len(questions))]})
    settings = AsyncGRPOConfig(
        output_dir=str(model.parent / "trained"), vllm_server_base_url=server, max_steps=sums_grpo.STEPS,
        per_device_train_batch_size=PROMPTS * ANSWERS, num_generations=ANSWERS, max_completion_length=12,
        max_inflight_tasks=1, token_budget=0, use_cpu=True, bf16=False, gradient_checkpointing=False,
        learning_rate=1e-3, report_to=[], save_strategy="no", seed=1,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.response_template = ANSWER
    trainer = AsyncGRPOTrainer(
        model=str(model), reward_funcs=reward, args=settings, train_dataset=rows, processing_class=tokenizer,
        environment_factory=Turn, callbacks=[sums_grpo.Held()],
    )  # fmt: skip
    trainer.add_callback(Sent())
    prompt = tokenizer.apply_chat_template(questions[0], add_generation_prompt=True, return_dict=False)
    sure = {"untrained": served(server, model, prompt)}
    trainer.train()
    sure |= {"trained": sure_of_next(trainer.model, prompt), "server": served(server, model, prompt)}
    sys.stdout.write(json.dumps([*trainer.state.log_history, sure]) + "\n")


def sure_of_next(model: Any, prompt: list[int]) -> float:
    """The logarithm of what the likeliest token has."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return float(model.eval()(torch.tensor([prompt])).logits[0, -1].log_softmax(-1).max())


def served(server: str, model: Path, prompt: list[int]) -> float:
    """The same, of the server's weights."""
    asked = {"model": str(model), "prompt": prompt, "max_tokens": 1, "logprobs": 1}
    said = requests.post(f"{server}/v1/completions", json=asked, timeout=HELD_AT_MOST_S).json()
    return max(said["choices"][0]["logprobs"]["top_logprobs"][0].values())


if __name__ == "__main__":
    os.environ[SENT] = f"{sys.argv[1]}.sent"
    Path(os.environ[SENT]).write_text("0")
    train(Path(sys.argv[1]), sys.argv[2])
