"""Shapes of several roles: a controller and its workers, actors and the reward servers for which they wait."""

from __future__ import annotations

import numpy as np

from .barriers import Steps
from .processes import Processes
from .simulation import CONTROLLER, Simulation

_OF_RANKS = dict.fromkeys(("rank", "host", "two", "intermittent", "drifting", "moving"), ("actor", "actor_generate"))
STAGES = (("actor_generate", 0.4), ("actor_compute_log_prob", 0.15), ("actor_update", 0.35))


class Dispatched(Simulation):
    """A controller, of which nothing is recorded, begins each stage once all ranks have ended the one before."""

    at = {**_OF_RANKS, "controller": (CONTROLLER, "")}
    is_recorded = False

    def build(self) -> None:
        """Workers, and who calls them."""
        self.actors = self.team("actor", self.shape.ranks)
        self.caller = self.controller({stage: "actor" for stage, _ in STAGES})

    def play(self) -> Steps:
        """A step: before each stage the controller prepares what it is called with."""
        actors, caller, step_s = self.actors, self.caller, self.shape.step_s
        for stage, share in STAGES:
            caller.work("", 0.02 * step_s)
            with caller.stage(stage):
                actors.wait_until(caller.now[0] + 1e-3)
                if stage == "actor_generate":
                    actors.generate(stage, share * step_s)
                else:
                    actors.compute(stage, share * step_s * actors.train_cost(stage))
                caller.wait_until(actors.now.max() + 1e-3)
        yield actors, actors.close()
        step = caller.close()
        if self.is_recorded:
            yield caller, step


class Controlled(Dispatched):
    """The same; the controller's own stages, from call to return, are recorded too."""

    is_recorded = True


class RewardRole(Simulation):
    """Actors generate, reward servers score what they have generated, and actors train on it."""

    at = {
        **_OF_RANKS, "role": ("reward", "reward"), "server": ("reward", "reward"), "behind": ("actor", "actor_update"),
    }  # fmt: skip

    def build(self) -> None:
        """Four actors to a server."""
        count = max(2, self.shape.ranks // 4)
        self.actors = self.team("actor", self.shape.ranks)
        self.servers = self.team("reward", count, self.shape.ranks)

    def play(self) -> Steps:
        """A step: all servers begin when all actors have generated, and the other way round."""
        actors, servers, step_s = self.actors, self.servers, self.shape.step_s
        actors.generate("actor_generate", 0.4 * step_s)
        self._hand_over(actors, servers)
        servers.compute("reward", 0.2 * step_s)
        self._hand_over(servers, actors)
        yield servers, servers.close()
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            actors.work("actor_update", 0.35 * step_s * actors.train_cost("actor_update"), "behind")
        yield actors, actors.close()

    def _hand_over(self, those: Processes, others: Processes) -> None:
        others.wait_until(np.full(others.count, those.now.max() + 1e-3))
