"""One job with nothing patched but Ray itself: tasks, actors, generators, asynchronous and inherited methods.

Argument: the run folder.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import ray
from acme_rl import workers

import mstxkit

mstxkit.capture(sys.argv[1])
report = mstxkit.autopatch("ray")


@ray.remote
def own(count: int) -> int:
    return count


@ray.remote
def failing() -> None:
    raise ValueError("theirs")


class Kinds:
    @classmethod
    def of_class(cls, count: int) -> str:
        return f"{cls.__name__} {count}"

    @staticmethod
    def of_nothing(count: int) -> int:
        return count

    def of_object(self, count: int) -> int:
        return count


def stream(made: Any) -> list[int]:
    return [ray.get(part) for part in made]


ray.init()
actor = workers.IntegratedWorker.remote(3)
server = ray.remote(workers.Server).options(num_cpus=0, max_concurrency=4).remote()
kinds = ray.remote(Kinds).options(num_cpus=0).remote()
rewards = workers.RuleReward.remote()
said = {
    "tasks": ray.get([own.remote(1), own.remote(2), workers.compute_advantage.remote(3)]),
    "a task's stream": stream(workers.stream.options(num_returns="streaming").remote(2)),
    "own and inherited": ray.get([actor.compute_ref_log_prob.remote(4), actor.update.remote()]),
    "asynchronous": ray.get([server.generate.remote(5), server.sleep.remote()]),
    "an asynchronous stream": stream(server.tokens.options(num_returns="streaming").remote(2)),
    "an actor's stream": stream(rewards.parts.options(num_returns="streaming").remote(2)),
    "kinds": ray.get([kinds.of_class.remote(6), kinds.of_nothing.remote(7), kinds.of_object.remote(8)]),
    "called by Ray": ray.get(actor.__ray_call__.remote(lambda self: self.iteration)),
}
try:
    ray.get(failing.options(max_retries=0).remote())
except ValueError as exc:
    said["failing"] = str(exc.cause) if hasattr(exc, "cause") else str(exc)
ray.shutdown()
said["state"] = [one.state for one in report.targets]
sys.stdout.write(json.dumps(said))
