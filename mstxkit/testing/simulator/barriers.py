"""Shapes of equal ranks that meet in barriers, or in collectives inside of their stages."""

from __future__ import annotations

from typing import Iterator

import numpy as np

from ...judging.evidence import Peer, RoleStep
from .processes import Processes
from .simulation import Simulation

Steps = Iterator[tuple[Processes, RoleStep]]
_OF_RANKS = dict.fromkeys(
    ("rank", "host", "two", "intermittent", "drifting", "moving", "before"), ("actor", "actor_generate")
)


class Barriers(Simulation):
    """Ranks go on by themselves: input, responses of heavy-tailed lengths, and a stage that begins with a barrier."""

    at = {**_OF_RANKS, "input": ("actor", "load_batch"), "behind": ("actor", "actor_update")}

    def build(self) -> None:
        """One role."""
        self.actors = self.team("actor", self.shape.ranks)

    def play(self) -> Steps:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        actors.compute("load_batch", 0.06 * step_s, "input")
        actors.generate("actor_generate", 0.5 * step_s)
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            actors.work("actor_update", 0.4 * step_s * actors.train_cost("actor_update"), "behind")
        yield actors, actors.close()


class Collectives(Simulation):
    """Like DDP or FSDP: ranks meet again and again inside of `actor_update`, as often as layers are gathered."""

    at = {
        **_OF_RANKS, "input": ("actor", "load_batch"), "inside": ("actor", "actor_update"),
        "behind": ("actor", "actor_update"), "link": ("actor", "actor_update"),
    }  # fmt: skip
    meetings = 6

    def build(self) -> None:
        """One role, whose groups meet for themselves where there are some."""
        self.actors = self.team("actor", self.shape.ranks)
        self.groups = np.arange(self.shape.ranks) // (self.shape.group_ranks or self.shape.ranks)

    def play(self) -> Steps:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        actors.compute("load_batch", 0.06 * step_s, "input")
        actors.generate("actor_generate", 0.4 * step_s)
        with actors.stage("actor_update"):
            cost = actors.train_cost("actor_update") * 0.4 * step_s
            for _ in range(self.meetings):
                actors.work("actor_update", cost / self.meetings, "inside")
                actors.meet("actor_update", self.groups, 0.04 * step_s / self.meetings)
            actors.work("actor_update", 0.04 * step_s, "behind")
        with actors.stage("weight_sync"):
            actors.meet("weight_sync", None, 0.02 * step_s)
        yield actors, actors.close()


class Hosts(Barriers):
    """Hosts whose ranks share CPUs and links: what a host is slower by for a moment, all of its ranks are."""

    at = {**Barriers.at, "inside": ("actor", "actor_compute_log_prob"), "link": ("actor", "actor_compute_log_prob")}

    def play(self) -> Steps:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        places = np.arange(actors.count) // self.shape.ranks_per_host
        actors.compute("load_batch", 0.06 * step_s * self._shared(places), "input")
        actors.generate("actor_generate", 0.4 * step_s)
        with actors.stage("actor_compute_log_prob"):
            for _ in range(2):
                actors.work("actor_compute_log_prob", 0.06 * step_s * self._shared(places), "inside")
                actors.meet("actor_compute_log_prob", places, 0.005 * step_s)
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            cost = actors.train_cost("actor_update") * self._shared(places)
            actors.work("actor_update", 0.4 * step_s * cost, "behind")
        yield actors, actors.close()

    def _shared(self, places: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.exp(self.random.normal(0, 0.02, int(places.max()) + 1))[places]


class StageOfOne(Barriers):
    """Rank 0 alone writes metrics at the end of each step, and all wait for it in the next one's barrier."""

    at = {
        **_OF_RANKS, "one": ("actor", "log_metrics"), "behind": ("actor", "actor_update"),
        "absorbed": ("actor", "reward"),
    }  # fmt: skip

    def play(self) -> Steps:
        """A step."""
        actors, step_s, first = self.actors, self.shape.step_s, np.array([0])
        actors.generate("actor_generate", 0.4 * step_s)
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            actors.work("actor_update", 0.4 * step_s * actors.train_cost("actor_update"), "behind")
            actors.meet("actor_update")
        actors.compute("log_metrics", 0.06 * step_s, who=first)
        actors.compute("reward", 0.04 * step_s, who=np.arange(1, actors.count))
        with actors.stage("weight_sync"):
            actors.meet("weight_sync", None, 0.01 * step_s)
        yield actors, actors.close()


class Nested(Barriers):
    """`actor_generate` encloses `reward`, as an agent's loop does; it has a part of its own before and behind it."""

    at = {**_OF_RANKS, "inner": ("actor", "reward"), "behind": ("actor", "actor_update")}

    def play(self) -> Steps:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        with actors.stage("actor_generate"):
            actors.work("actor_generate", 0.3 * step_s)
            actors.compute("reward", 0.15 * step_s)
            actors.work("actor_generate", 0.1 * step_s)
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            actors.work("actor_update", 0.4 * step_s * actors.train_cost("actor_update"), "behind")
        yield actors, actors.close()


class Rounds(Barriers):
    """Generations in several rounds, more or fewer in each step, whose lengths have heavy tails; all of it is told."""

    def play(self) -> Steps:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        actors.compute("load_batch", 0.06 * step_s, "input")
        for _ in range(1 + int(self.random.integers(3))):
            actors.generate("actor_generate", 0.25 * step_s)
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            actors.work("actor_update", 0.4 * step_s * actors.train_cost("actor_update"), "behind")
        yield actors, actors.close()


class Longer(Barriers):
    """Prompts that become longer over time: half as long again after 200 steps. Tokens tell it."""

    is_told = True

    def play(self) -> Steps:
        """A step."""
        actors, step_s = self.actors, self.shape.step_s
        longer = 1 + actors.number / 400
        actors.compute("load_batch", 0.06 * step_s, "input")
        actors.generate("actor_generate", 0.4 * step_s, longer)
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            actors.work("actor_update", 0.4 * step_s * actors.train_cost("actor_update", longer), "behind")
        step = actors.close()
        unknown = np.full(step.entered_s.shape, np.nan)
        yield actors, step if self.is_told else step._replace(work=type(step.work)(unknown, unknown, unknown))


class LongerUntold(Longer):
    """The same, and nothing tells it."""

    is_told = False


class Restarts(Barriers):
    """All processes are started again after each 70 steps, by other names; they go on 10 steps before."""

    def play(self) -> Steps:
        """A step."""
        yield from super().play()
        actors = self.actors
        self.played = getattr(self, "played", 0) + 1
        if self.played % 70 == 0:
            peers = tuple(Peer(peer.rank, peer.host, f"{peer.process}+", peer.part) for peer in actors.peers)
            actors.begin_again(actors.number - 10, peers, 60.0)
