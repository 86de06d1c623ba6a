"""As verl's and MindSpeed-RL's trainers: one process calls the workers, waits, and computes what is cheap itself."""

from __future__ import annotations

from typing import Any

import ray


class Controller:
    """The driver of a step."""

    def __init__(self, actors: list[Any]) -> None:
        self.actors, self.iteration = actors, 0

    def step(self) -> int:
        self.iteration += 1
        return self.advantage(self.generate())

    def generate(self) -> list[int]:
        counts: list[int] = ray.get([actor.generate_sequences.remote(3) for actor in self.actors])
        return counts

    def advantage(self, counts: list[int]) -> int:
        return sum(counts)
