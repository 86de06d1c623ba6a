"""Equal ranks that meet at barriers or in collectives, in all the ways in which such jobs vary."""

from __future__ import annotations

from typing import ClassVar, Mapping

import numpy as np
import numpy.typing as npt

from mstxkit.judging.evidence import Peer, Work
from mstxkit.testing.simulator.processes import Vector
from mstxkit.testing.simulator.simulation import Steps

from .shape import Shape, generate, train_cost


class Barriers(Shape):
    """Ranks go on by themselves: input, responses of heavy-tailed lengths, and a stage that begins with a barrier."""

    at: ClassVar[Mapping[str, tuple[str, str]]] = {
        **dict.fromkeys(("rank", "host", "two", "intermittent", "drifting", "moving"), ("actor", "actor_generate")),
        "input": ("actor", "load_batch"), "behind": ("actor", "actor_update"),
    }  # fmt: skip

    def build(self) -> None:
        """One role."""
        self.actors = self.team("actor", self.shape.ranks)

    def play(self) -> Steps:
        """A step."""
        self.load()
        self.generate()
        self.train()
        yield self.actors, self.actors.close()

    def load(self) -> None:
        """Input."""
        self.actors.compute("load_batch", 0.06 * self.shape.step_s, "input")

    def generate(self) -> None:
        """Responses."""
        generate(self.actors, "actor_generate", 0.45 * self.shape.step_s)

    def train(self, longer: Vector | float = 1.0) -> None:
        """A barrier, and training behind it."""
        actors = self.actors
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            cost = train_cost(actors, "actor_update", longer)
            actors.work("actor_update", 0.4 * self.shape.step_s * cost, "behind")


class Collectives(Barriers):
    """Like DDP or FSDP: ranks meet again and again inside of `actor_update`, as often as layers are gathered."""

    at = {**Barriers.at, "inside": ("actor", "actor_update"), "link": ("actor", "actor_update")}
    meetings = 6

    def train(self, longer: Vector | float = 1.0) -> None:
        """Each group for itself, then weights go to all."""
        actors, step_s = self.actors, self.shape.step_s
        groups = np.arange(actors.count) // (self.shape.group_ranks or actors.count)
        with actors.stage("actor_update"):
            cost = train_cost(actors, "actor_update") * 0.4 * step_s
            for _ in range(self.meetings):
                actors.work("actor_update", cost / self.meetings, "inside")
                actors.meet("actor_update", groups, 0.04 * step_s / self.meetings)
            actors.work("actor_update", 0.04 * step_s, "behind")
        with actors.stage("weight_sync"):
            actors.meet("weight_sync", None, 0.02 * step_s)


class Hosts(Barriers):
    """Hosts whose ranks share CPUs and links: what a host is slower by for a moment, all of its ranks are."""

    at = {**Barriers.at, "inside": ("actor", "actor_compute_log_prob"), "link": ("actor", "actor_compute_log_prob")}

    def load(self) -> None:
        """Input."""
        self.actors.compute("load_batch", 0.06 * self.shape.step_s * self._shared(), "input")

    def train(self, longer: Vector | float = 1.0) -> None:
        """Collectives of the ranks of a host, then a barrier of all."""
        actors, stage = self.actors, "actor_compute_log_prob"
        with actors.stage(stage):
            for _ in range(2):
                actors.work(stage, 0.06 * self.shape.step_s * self._shared(), "inside")
                actors.meet(stage, np.arange(actors.count) // self.shape.ranks_per_host, 0.005 * self.shape.step_s)
        super().train(self._shared())

    def _shared(self) -> Vector:
        hosts: npt.NDArray[np.int64] = np.arange(self.actors.count) // self.shape.ranks_per_host
        shared: Vector = np.exp(self.random.normal(0, 0.02, int(hosts.max()) + 1))[hosts]
        return shared


class StageOfOne(Barriers):
    """Rank 0 alone writes metrics at the end of each step, and all wait for it; the others do less meanwhile."""

    at = {**Barriers.at, "one": ("actor", "log_metrics"), "absorbed": ("actor", "reward")}

    def train(self, longer: Vector | float = 1.0) -> None:
        """Training ends with a barrier too."""
        super().train()
        actors, step_s = self.actors, self.shape.step_s
        with actors.stage("optimizer"):
            actors.meet("optimizer")
        actors.compute("log_metrics", 0.06 * step_s, who=np.array([0]))
        actors.compute("reward", 0.04 * step_s, who=np.arange(1, actors.count))
        with actors.stage("weight_sync"):
            actors.meet("weight_sync", None, 0.01 * step_s)


class Nested(Barriers):
    """`actor_generate` encloses `reward`, as an agent's loop does; it has a part of its own before and behind it."""

    at = {**Barriers.at, "inner": ("actor", "reward")}

    def generate(self) -> None:
        """One around the other."""
        actors, step_s = self.actors, self.shape.step_s
        with actors.stage("actor_generate"):
            actors.work("actor_generate", 0.3 * step_s)
            actors.compute("reward", 0.15 * step_s)
            actors.work("actor_generate", 0.1 * step_s)


class Rounds(Barriers):
    """Generations in several rounds, more or fewer in each step, whose lengths have heavy tails; all of it is told."""

    def generate(self) -> None:
        """One to three rounds, for all alike."""
        for _ in range(1 + int(self.random.integers(3))):
            generate(self.actors, "actor_generate", 0.25 * self.shape.step_s)


class Longer(Barriers):
    """Prompts that become longer over time: half as long again after 200 steps. Tokens tell it."""

    @property
    def longer(self) -> float:
        """By how much."""
        return 1 + self.actors.number / 400

    def generate(self) -> None:
        """Longer responses."""
        generate(self.actors, "actor_generate", 0.4 * self.shape.step_s, self.longer)

    def train(self, longer: Vector | float = 1.0) -> None:
        """On longer responses."""
        super().train(self.longer)


class LongerUntold(Longer):
    """The same, and nothing tells it."""

    def play(self) -> Steps:
        """A step, without the work that was done."""
        for team, step in super().play():
            unknown = np.full(step.entered_s.shape, np.nan)
            yield team, step._replace(work=Work(unknown, unknown, unknown))


class Restarts(Barriers):
    """All processes are started again after each 100 steps, by other names; they go on 10 steps before."""

    played = 0

    def play(self) -> Steps:
        """A step."""
        yield from super().play()
        self.played += 1
        if self.played % 100 == 0:
            peers = tuple(Peer(peer.rank, peer.host, f"{peer.process}+") for peer in self.actors.peers)
            self.actors.begin_again(self.actors.number - 10, peers, 60.0)
