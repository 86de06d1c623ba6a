"""Several roles: a controller and its workers, actors that wait for reward servers, trainers fed by a queue."""

from __future__ import annotations

from typing import ClassVar, Mapping

from mstxkit.testing.simulator.processes import SimulatedProcesses
from mstxkit.testing.simulator.simulation import CONTROLLER, Steps

from .shape import Shape, generate, train_cost

_OF_RANKS = ("rank", "host", "two", "intermittent", "drifting", "moving")
_SHARES = (("actor_generate", 0.4), ("actor_compute_log_prob", 0.15), ("actor_update", 0.35))
_CALL_S = 1e-3


class Dispatched(Shape):
    """A controller, of which nothing is recorded, begins each stage once all ranks have ended the one before."""

    at = {**dict.fromkeys(_OF_RANKS, ("actor", "actor_generate")), "controller": (CONTROLLER, "")}
    is_recorded: ClassVar[bool] = False

    def build(self) -> None:
        """Workers, and who calls them."""
        self.actors = self.team("actor", self.shape.ranks)
        self.caller = self.controller({stage: "actor" for stage, _ in _SHARES})

    def play(self) -> Steps:
        """A step: before each stage the controller prepares what it is called with."""
        actors, caller, step_s = self.actors, self.caller, self.shape.step_s
        for stage, share in _SHARES:
            caller.work("", 0.02 * step_s)
            with caller.stage(stage):
                actors.wait_until(caller.ended_s + _CALL_S)
                if stage == "actor_generate":
                    generate(actors, stage, share * step_s)
                else:
                    actors.compute(stage, share * step_s * train_cost(actors, stage))
                caller.wait_until(actors.ended_s + _CALL_S)
        yield actors, actors.close()
        step = caller.close()
        if self.is_recorded:
            yield caller, step


class Controlled(Dispatched):
    """The same; the controller's own stages, from call to return, are recorded too."""

    is_recorded = True


class RewardRole(Shape):
    """Actors generate, reward servers score what they have generated, and actors train on it."""

    at = {
        **dict.fromkeys(_OF_RANKS, ("actor", "actor_generate")), "role": ("reward", "reward"),
        "server": ("reward", "reward"), "behind": ("actor", "actor_update"),
    }  # fmt: skip

    def build(self) -> None:
        """Four actors to a server."""
        self.actors = self.team("actor", self.shape.ranks)
        self.servers = self.team("reward", max(2, self.shape.ranks // 4), self.shape.ranks)

    def play(self) -> Steps:
        """A step: all servers begin when all actors have generated, and the other way round."""
        actors, servers, step_s = self.actors, self.servers, self.shape.step_s
        generate(actors, "actor_generate", 0.4 * step_s)
        servers.wait_until(actors.ended_s + _CALL_S)
        servers.compute("reward", 0.2 * step_s)
        actors.wait_until(servers.ended_s + _CALL_S)
        yield servers, servers.close()
        with actors.stage("actor_update"):
            actors.meet("actor_update")
            actors.work("actor_update", 0.35 * step_s * train_cost(actors, "actor_update"), "behind")
        yield actors, actors.close()


class Called(Shape):
    """Actors, reward servers and critics, which a controller calls one after the other, in the end critics and actors
    at once. Nothing is recorded of it, and a call takes it 2 to 5 % of a step.
    """

    at = {
        **dict.fromkeys(_OF_RANKS, ("actor", "actor_generate")), "role": ("reward", "reward"),
        "server": ("critic", "critic_update"), "controller": (CONTROLLER, ""),
    }  # fmt: skip

    def build(self) -> None:
        """Four actors to a server, and to a critic."""
        few = max(2, self.shape.ranks // 4)
        self.actors = self.team("actor", self.shape.ranks)
        self.servers = self.team("reward", few, self.shape.ranks)
        self.critics = self.team("critic", few, self.shape.ranks + few)
        self.caller = self.controller({})

    def play(self) -> Steps:
        """A step: four calls."""
        self._call((self.actors, "actor_generate", 0.35))
        self._call((self.servers, "reward", 0.12))
        self._call((self.critics, "critic_compute_values", 0.1))
        self._call((self.actors, "actor_update", 0.3), (self.critics, "critic_update", 0.28))
        self.caller.close()
        for team in (self.servers, self.critics, self.actors):
            yield team, team.close()

    def _call(self, *calls: tuple[SimulatedProcesses, str, float]) -> None:
        self.caller.work("", self.random.uniform(0.02, 0.05) * self.shape.step_s)
        with self.caller.stage(calls[0][1]):
            for team, stage, share in calls:
                team.wait_until(self.caller.ended_s)
                if stage == "actor_generate":
                    generate(team, stage, share * self.shape.step_s)
                else:
                    team.compute(stage, share * self.shape.step_s)
            self.caller.wait_until(max(float(team.ended_s) for team, _, _ in calls))


class Queue(Shape):
    """Async training: rollouts put parts of a batch into a bounded queue, and trainers take it once it is whole.

    Each side waits in a stage of its own, and says for whom. Rollouts are the slower half.
    """

    at: ClassVar[Mapping[str, tuple[str, str]]] = {
        **dict.fromkeys((*_OF_RANKS, "role", "producer"), ("rollout", "actor_generate")),
        **dict.fromkeys(("consumer", "absorbed"), ("actor", "actor_update")),
    }
    capacity: ClassVar[int] = 2
    is_declared: ClassVar[bool] = True
    shares: ClassVar[tuple[float, float]] = 0.8, 0.6

    def build(self) -> None:
        """As many rollouts as trainers."""
        ranks, is_declared = self.shape.ranks, self.is_declared
        self.trainers = self.team("actor", ranks, waits_for={"wait_for_samples": "rollout"} if is_declared else None)
        self.rollouts = self.team(
            "rollout", ranks, ranks, waits_for={"wait_for_room": "actor"} if is_declared else None
        )
        self.taken_s = [0.0] * self.capacity

    def play(self) -> Steps:
        """A batch: it is put, and taken."""
        trainers, rollouts, (generating, training) = self.trainers, self.rollouts, self.shares
        self._wait("wait_for_room", rollouts, self.taken_s[-self.capacity])
        generate(rollouts, "actor_generate", generating * self.shape.step_s)
        whole_s = rollouts.ended_s
        yield rollouts, rollouts.close()
        self._wait("wait_for_samples", trainers, whole_s)
        self.taken_s.append(trainers.ended_s)
        with trainers.stage("actor_update"):
            for _ in range(4):
                trainers.work("actor_update", training / 4 * self.shape.step_s, "inside")
                trainers.meet("actor_update", None, 0.005 * self.shape.step_s)
        yield trainers, trainers.close()

    def _wait(self, stage: str, those: SimulatedProcesses, until_s: float) -> None:
        with those.stage(stage):
            those.wait_until(until_s)


class UndeclaredQueue(Queue):
    """The same; nothing says that these stages only wait."""

    is_declared = False


class OneStepOff(Queue):
    """Rollouts are one batch ahead, and take new weights before each; trainers are the slower half."""

    at = {
        **dict.fromkeys((*_OF_RANKS, "inside", "role"), ("actor", "actor_update")),
        "absorbed": ("rollout", "actor_generate"),
    }
    capacity = 1
    shares = 0.35, 0.8
