"""GRPO from random weights on the CPU, every stage of it a range: the loop that `mstxkit demo` runs, in one file.

Run it on any machine with torch, on as many ranks as you like:

    MSTXKIT_RUN=runs/first torchrun --standalone --nproc-per-node 2 -m mstxkit.demo.loop
    mstxkit report runs/first

What to look for: `stage` names a phase of the step, `mstx_range` and `mstx_timer` what happens inside it, `step`
numbers the iterations, `capture` records it all. Stages carry MindSpeed-RL's names where it has them.
The parts that are no news to an RL engineer (network, loss, dock, weight slices) are small modules next to this one.
"""

from __future__ import annotations

import argparse
import copy
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Sequence

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: see `leave_ranks`
from torch import Tensor

from mstxkit import capture, mark, mstx_range, mstx_timer, stage, step
from mstxkit.demo.dock import TransferDock
from mstxkit.demo.policy import (
    PolicyNet,
    clipped_policy_loss,
    group_relative_advantages,
    kl_to_reference,
    response_log_probs,
    sample_responses,
)  # fmt: skip
from mstxkit.demo.resharding import ShardedWeights, mean_gradient
from mstxkit.demo.task import draw_prompts, fraction_correct


@dataclass(frozen=True)
class TrainingSettings:
    """What a training is made of. Counts are per rank and step."""

    seed: int = 0
    steps: int = 120
    prompts: int = 16
    group: int = 8
    mini_batches: int = 4
    learning_rate: float = 1e-3
    clip: float = 0.2
    kl_weight: float = 0.002
    gradient_limit: float = 1.0

    @property
    def rows(self) -> int:
        """Responses per rank and step."""
        return self.prompts * self.group


@dataclass(frozen=True)
class StepResult:
    """How one step went, over all ranks: mean reward from 0 to 1, KL to the reference in nats a token."""

    step: int
    reward: float
    kl: float


class Trainer:
    """One rank of the training. All ranks begin with the same weights and draw prompts of their own."""

    def __init__(self, settings: TrainingSettings) -> None:
        self.settings = settings
        torch.manual_seed(settings.seed)
        self.policy = PolicyNet()
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        self.rollout = copy.deepcopy(self.policy).requires_grad_(False)
        self.weights = ShardedWeights(self.policy, settings.learning_rate)
        self.dock = TransferDock(settings.rows)
        self.random = torch.Generator().manual_seed(1000 * settings.seed + dist.get_rank())

    def train(self, every: int, curve: Path | None) -> None:
        """All steps. Rank 0 prints every so many, and writes each to the file `curve` as a line of JSON."""
        mark("training starts", seed=self.settings.seed, ranks=dist.get_world_size())
        for number in range(self.settings.steps):
            step(number)
            progress = self.train_step(number)
            if curve and dist.get_rank() == 0:
                with curve.open("a") as lines:
                    lines.write(json.dumps(vars(progress)) + "\n")
            if every and number % every == 0 and dist.get_rank() == 0:
                bar = "█" * round(40 * progress.reward)
                print(f"step {number:4d}  reward {progress.reward:.3f}  kl {progress.kl:6.3f}  {bar}", flush=True)

    def train_step(self, number: int) -> StepResult:
        """One step through all stages."""
        self.dock = TransferDock(self.settings.rows)
        self.enter_infer_mode()
        self.generate_sequences()
        self.compute_log_prob()
        self.compute_ref_log_prob()
        self.compute_rm_score()
        kl = self.update()
        return self.progress(number, kl)

    def enter_infer_mode(self) -> None:
        """Hand the weights over: from the slices that train, one on each rank, to the whole model that generates."""
        with stage("resharding") as running:
            running.set(bytes=self.weights.gather_into(self.rollout))

    def generate_sequences(self) -> None:
        """Sample a group of responses for each prompt, by the model that generates."""
        settings = self.settings
        with stage("actor_generate", prompts=settings.prompts, group=settings.group) as running:
            prompts = draw_prompts(settings.prompts, self.random).repeat_interleave(settings.group, dim=0)
            with mstx_range("sample_responses"):
                responses = sample_responses(self.rollout, prompts, self.random)
            running.set(tokens=responses.numel())
            self.collect_transfer_dock_data({"prompts": prompts, "responses": responses}, torch.arange(settings.rows))

    def compute_log_prob(self) -> None:
        """What the policy that trains thinks of the responses before it is updated: the ratio's denominator."""
        with stage("actor_compute_log_prob") as running:
            running.set(tokens=self.log_probs_of(self.policy, "actor_log_prob", "old_log_prob"))

    def compute_ref_log_prob(self) -> None:
        """What the frozen reference, the policy before any training, thinks of them."""
        with stage("reference_compute_log_prob") as running:
            running.set(tokens=self.log_probs_of(self.reference, "ref_log_prob", "ref_log_prob"))

    @torch.no_grad()
    def log_probs_of(self, model: PolicyNet, consumer: str, column: str) -> int:
        """The responses' log-probabilities by a model, as a column of the dock. Returns: tokens."""
        batch, indexes = self.dispatch_transfer_dock_data(consumer, ["prompts", "responses"])
        log_probs = response_log_probs(model, batch["prompts"], batch["responses"])
        self.collect_transfer_dock_data({column: log_probs}, indexes)
        return batch["responses"].numel()

    def compute_rm_score(self) -> None:
        """Check each response by rule, then compare it with the others of its group."""
        with stage("reward", prompts=self.settings.prompts):
            batch, indexes = self.dispatch_transfer_dock_data("rule_reward", ["prompts", "responses"])
            with mstx_range("compute_verifier_score"):
                scores = fraction_correct(batch["prompts"], batch["responses"])
            with mstx_range("compute_advantage", group=self.settings.group):
                advantages = group_relative_advantages(scores, self.settings.group)
            self.collect_transfer_dock_data({"rm_scores": scores, "advantages": advantages}, indexes)

    def update(self) -> float:
        """One optimizer step per mini-batch. Returns: the mean KL to the reference, in nats a token."""
        columns = ["prompts", "responses", "old_log_prob", "ref_log_prob", "advantages"]
        rows, kls = self.settings.rows // self.settings.mini_batches, []
        with stage("actor_update", mini_batches=self.settings.mini_batches):
            for _ in range(self.settings.mini_batches):
                batch, _indexes = self.dispatch_transfer_dock_data("actor_train", columns, rows)
                kls.append(self.forward_backward(batch))
                self.optimizer_step()
        return sum(kls) / len(kls)

    @mstx_timer("forward_backward", attributes=lambda self, batch: {"rows": len(batch["advantages"])})
    def forward_backward(self, batch: dict[str, Tensor]) -> float:
        """Loss and its gradient on one mini-batch. Returns: the KL to the reference."""
        log_probs = response_log_probs(self.policy, batch["prompts"], batch["responses"])
        loss = clipped_policy_loss(log_probs, batch["old_log_prob"], batch["advantages"], self.settings.clip)
        kl = kl_to_reference(log_probs, batch["ref_log_prob"])
        self.policy.zero_grad()
        (loss + self.settings.kl_weight * kl).backward()  # type: ignore[no-untyped-call]
        return float(kl.detach())

    def optimizer_step(self) -> None:
        """Average the gradients of all ranks, move this rank's slice of the weights, collect the others' slices."""
        with mstx_range("all_reduce_gradients"):
            gradient = mean_gradient(self.policy.parameters(), self.settings.gradient_limit)
        with mstx_range("optimizer_step"):
            self.weights.update(gradient)
        with mstx_range("all_gather_weights"):
            self.weights.gather_into(self.policy)

    @mstx_timer("dispatch_transfer_dock_data", attributes=lambda self, consumer, *_: {"consumer": consumer})
    def dispatch_transfer_dock_data(
        self, consumer: str, columns: Sequence[str], count: int | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Fetch a stage's input from the dock."""
        return self.dock.get_experience(consumer, columns, count)

    @mstx_timer("collect_transfer_dock_data")
    def collect_transfer_dock_data(self, output: dict[str, Tensor], indexes: Tensor) -> None:
        """Leave a stage's output in the dock."""
        self.dock.put_experience(output, indexes)

    @mstx_timer("reduce_metrics")
    def progress(self, number: int, kl: float) -> StepResult:
        """Average what each rank saw."""
        batch, _indexes = self.dispatch_transfer_dock_data("metrics", ["rm_scores"])
        figures = torch.tensor([float(batch["rm_scores"].mean()), kl])
        dist.all_reduce(figures)
        reward, kl = (figures / dist.get_world_size()).tolist()
        return StepResult(number, reward, kl)


def join_ranks(rendezvous: str) -> None:
    """Meet the other ranks: `env://` under torchrun, else any address that torch.distributed takes.

    A collective whose peer is gone fails at once when the connection breaks, and after the timeout at the latest.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, timeout=timedelta(seconds=30))


def leave_ranks() -> None:
    """Part with the other ranks, dead ones included, so that gloo's threads end here and not with the interpreter.

    Threads that outlive it can abort the process. The group is only gone when nobody refers to it: the default
    arguments of `torch.distributed.nn` do, once that is imported after init_process_group, as any optimizer does.
    """
    dist.destroy_process_group()


def make_parser() -> argparse.ArgumentParser:
    """The options of the loop."""
    parser = argparse.ArgumentParser(description="GRPO on the CPU under mstxkit's capture.")
    parser.add_argument("--run", help="run folder (default: $MSTXKIT_RUN)")
    parser.add_argument("--steps", type=int, default=TrainingSettings.steps)
    parser.add_argument("--seed", type=int, default=TrainingSettings.seed)
    parser.add_argument("--every", type=int, default=10, help="print every so many steps, 0: never")
    parser.add_argument("--curve", type=Path, help="write the reward of each step to this file")
    parser.add_argument("--rendezvous", default="env://", help="where the ranks meet")
    return parser


def main() -> None:
    """One rank: record, join, train."""
    options = make_parser().parse_args()
    with capture(options.run):
        join_ranks(options.rendezvous)
        Trainer(TrainingSettings(seed=options.seed, steps=options.steps)).train(options.every, options.curve)
        leave_ranks()


if __name__ == "__main__":
    main()
