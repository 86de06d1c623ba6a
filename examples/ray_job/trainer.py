"""The trainer: one step after the other, each through all stages."""

from __future__ import annotations

import ray

from .workers import IntegratedWorker, RuleReward, TransferDock, compute_advantage

PROMPTS_PER_RANK = 8


class RayGRPOTrainer:
    """Drives the workers. Resumes at `iteration`, as from a checkpoint."""

    def __init__(self, ranks: int, iteration: int) -> None:
        self.iteration = iteration
        self.dock = TransferDock.remote()
        self.workers = [IntegratedWorker.remote(rank, ranks, iteration) for rank in range(ranks)]
        self.rewards = [RuleReward.remote() for _ in range(2)]

    def fit(self, steps: int) -> None:
        for _ in range(steps):
            self.train_step()
            self.iteration += 1

    def train_step(self) -> None:
        prompts = [f"{self.iteration} + {number} =" for number in range(PROMPTS_PER_RANK)]
        ray.get([worker.generate_sequences.remote(prompts, self.dock) for worker in self.workers])
        ray.get([worker.compute_log_prob.remote(self.dock) for worker in self.workers])
        ray.get([worker.compute_ref_log_prob.remote(self.dock) for worker in self.workers])
        self.reward()
        ray.get([worker.update.remote(self.dock) for worker in self.workers])

    def reward(self) -> None:
        for rank in range(len(self.workers)):
            responses = ray.get(self.dock.get_experience.remote("responses", rank))
            scorer = self.rewards[rank % len(self.rewards)]
            scores = ray.get(scorer.compute_rm_score.remote(responses, self.iteration))
            advantages = ray.get(compute_advantage.remote(scores, self.iteration))
            ray.get(self.dock.put_experience.remote("advantages", rank, advantages))
