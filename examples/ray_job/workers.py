"""Actors as MindSpeed-RL has them: most of them in an importable base class, some under `@ray.remote` directly."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import ray

Batch = dict[str, list[float]]


class ActorHybridWorkerBase:
    """Trains and generates on one device."""

    def __init__(self, rank: int, world_size: int, iteration: int) -> None:
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world_size)
        self.rank, self.iteration = rank, iteration
        self.random = random.Random(rank)

    def enter_infer_mode(self) -> None:
        """Weights go from the training's layout to the generation's."""
        work(0.02)

    def generate_sequences(self, prompts: list[str], dock: Any) -> None:
        self.enter_infer_mode()
        responses = [self.sample_response(prompt) for prompt in prompts]
        ray.get(dock.put_experience.remote("responses", self.rank, responses))

    def sample_response(self, prompt: str) -> float:
        work(0.01 * (1 + (self.rank == 1)))  # rank 1 is slow
        return self.random.random()

    def compute_log_prob(self, dock: Any) -> None:
        responses = ray.get(dock.get_experience.remote("responses", self.rank))
        work(0.005 * len(responses))

    def update(self, dock: Any) -> int:
        ray.get(dock.get_experience.remote("advantages", self.rank))
        for _ in range(4):
            self.train_mini_batch()
        self.iteration += 1
        return self.iteration

    def train_mini_batch(self) -> None:
        work(0.015)


@ray.remote(num_cpus=0)
class IntegratedWorker(ActorHybridWorkerBase):
    """Actor and reference in one process. Its own methods reach a worker by value, not by import."""

    def compute_ref_log_prob(self, dock: Any) -> None:
        responses = ray.get(dock.get_experience.remote("responses", self.rank))
        work(0.004 * len(responses))


@ray.remote(num_cpus=0)
class RuleReward:
    """Scores responses by rule, on a CPU."""

    def compute_rm_score(self, responses: list[float], iteration: int) -> list[float]:
        work(0.01)
        return [1.0 if response > 0.5 else 0.0 for response in responses]


@ray.remote(num_cpus=0, max_concurrency=8)
class TransferDock:
    """Holds what the stages hand to each other; many threads at once."""

    def __init__(self) -> None:
        self.columns: dict[tuple[str, int], list[float]] = {}

    def put_experience(self, column: str, rank: int, values: list[float]) -> None:
        self.columns[column, rank] = values

    def get_experience(self, column: str, rank: int) -> list[float]:
        return self.columns[column, rank]


@ray.remote(num_cpus=0)
def compute_advantage(scores: list[float], iteration: int) -> list[float]:
    mean = sum(scores) / len(scores)
    return [score - mean for score in scores]


def work(seconds: float) -> None:
    """What would be the device's."""
    time.sleep(seconds)
