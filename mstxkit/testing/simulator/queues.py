"""Shapes of async training: rollouts put what they have generated into a bounded queue, trainers take it."""

from __future__ import annotations

from typing import ClassVar

from .barriers import Steps
from .simulation import Simulation


class Queue(Simulation):
    """Trainers wait in a stage of their own, and say for whom; rollouts wait where the queue is full.

    Rollouts are the slower half: trainers wait for samples in most steps.
    """

    at = {
        **dict.fromkeys(("rank", "host", "two", "intermittent", "drifting", "moving"), ("rollout", "actor_generate")),
        "role": ("rollout", "actor_generate"), "producer": ("rollout", "actor_generate"),
        "consumer": ("actor", "actor_update"), "absorbed": ("actor", "actor_update"),
    }  # fmt: skip
    capacity: ClassVar[int] = 2
    is_declared: ClassVar[bool] = True
    rollout_share: ClassVar[float] = 0.8
    trainer_share: ClassVar[float] = 0.6

    def build(self) -> None:
        """As many rollouts as trainers."""
        ranks = self.shape.ranks
        waits = ({"wait_for_samples": "rollout"}, {"wait_for_room": "actor"}) if self.is_declared else (None, None)
        self.trainers = self.team("actor", ranks, waits_for=waits[0])
        self.rollouts = self.team("rollout", ranks, ranks, waits_for=waits[1])
        self.taken: list[float] = []

    def play(self) -> Steps:
        """A batch: each rollout puts its part, and trainers take it once it is whole."""
        trainers, rollouts, step_s = self.trainers, self.rollouts, self.shape.step_s
        with rollouts.stage("wait_for_room"):
            is_full = len(self.taken) >= self.capacity
            rollouts.wait_until(self.taken[-self.capacity] if is_full else 0.0)
        rollouts.generate("actor_generate", self.rollout_share * step_s)
        whole_s = float(rollouts.now.max())
        yield rollouts, rollouts.close({"weight_version": float(rollouts.number)})
        with trainers.stage("wait_for_samples"):
            trainers.wait_until(whole_s)
        self.taken.append(float(trainers.now.max()))
        with trainers.stage("actor_update"):
            for _ in range(4):
                trainers.work("actor_update", self.trainer_share / 4 * step_s, "inside")
                trainers.meet("actor_update", None, 0.005 * step_s)
        yield trainers, trainers.close({"weight_version": float(trainers.number)})


class UndeclaredQueue(Queue):
    """The same; nothing says that these stages only wait."""

    is_declared = False


class OneStepOff(Queue):
    """Rollouts are one batch ahead, and take new weights before each; trainers are the slower half."""

    at = {
        **dict.fromkeys(("rank", "host", "two", "intermittent", "drifting", "moving"), ("actor", "actor_update")),
        "inside": ("actor", "actor_update"), "role": ("actor", "actor_update"),
        "absorbed": ("rollout", "actor_generate"),
    }  # fmt: skip
    capacity = 1
    rollout_share = 0.35
    trainer_share = 0.8
