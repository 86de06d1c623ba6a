"""Workers of every shape: base and subclass under @ray.remote, class under @ray.remote, functions, async, colocated."""

from __future__ import annotations

import os
from typing import Any, AsyncIterator, Iterator

import ray


class ActorWorkerBase:
    """As MindSpeed-RL's `ActorHybridWorkerBase`: all logic in an importable base class."""

    def __init__(self, rank: int, iteration: int = 0) -> None:
        os.environ["RANK"] = str(rank)
        self.iteration = iteration

    def generate_sequences(self, count: int) -> int:
        return self.sync_generate(count)

    def sync_generate(self, count: int) -> int:
        return count

    def update(self) -> int:
        self.iteration += 1
        return self.iteration

    @staticmethod
    def pad(count: int) -> int:
        return count

    @classmethod
    def kind(cls) -> str:
        return "actor"

    @property
    def is_ready(self) -> bool:
        return True


@ray.remote(num_cpus=0)
class ActorWorker(ActorWorkerBase):
    """As MindSpeed-RL's `ActorHybridWorker`."""


@ray.remote(num_cpus=0)
class IntegratedWorker(ActorWorkerBase):
    """As MindSpeed-RL's: methods of its own, which travel by value, some calling the base class's by name."""

    def compute_ref_log_prob(self, count: int) -> int:
        return self.sync_generate(count)

    def generate_sequences(self, count: int) -> int:
        return ActorWorkerBase.generate_sequences(self, count)

    def is_patched_here(self) -> bool:
        return self.is_ready


@ray.remote(num_cpus=0)
class RuleReward:
    """As MindSpeed-RL's: no base class."""

    def compute_rm_score(self, count: int) -> int:
        return self._score(count)

    def _score(self, count: int) -> int:
        return count

    @staticmethod
    def weigh(count: int) -> int:
        return 2 * count

    def parts(self, count: int) -> Iterator[int]:
        for part in range(count):  # noqa: UP028 - Ray 2.60 sends values in, which a range does not take
            yield part


@ray.remote(num_cpus=0, max_concurrency=4, concurrency_groups={"io": 2})
class Dock:
    """Called by many threads; one method in a concurrency group of its own."""

    def put(self, count: int) -> int:
        return count

    @ray.method(concurrency_group="io")
    def get(self, count: int) -> int:
        return count


class Server:
    """As verl's servers: an ordinary class, put under `ray.remote` where it is used; asynchronous."""

    async def generate(self, count: int) -> int:
        return await self.answer(count)

    async def answer(self, count: int) -> int:
        return count

    async def tokens(self, count: int) -> AsyncIterator[int]:
        for token in range(count):
            yield token

    def sleep(self) -> int:
        return 0


@ray.remote(num_cpus=0)
def compute_advantage(count: int) -> int:
    return normalise(count)


def normalise(count: int) -> int:
    return count


@ray.remote(num_cpus=0)
def stream(count: int) -> Iterator[int]:
    for part in range(count):  # noqa: UP028 - as above
        yield part


def colocated(**classes: type) -> Any:
    """As verl's `create_colocated_worker_cls`: a class made at run time that holds several workers, with their methods
    on it under a prefix.
    """

    class WorkerDict:
        def __init__(self, rank: int) -> None:
            self.workers = {key: cls(rank) for key, cls in classes.items()}

    def method(key: str, name: str) -> Any:
        def call(self: Any, *args: Any) -> Any:
            return getattr(self.workers[key], name)(*args)

        return call

    for key in classes:
        for name in ("generate_sequences", "update"):
            setattr(WorkerDict, f"{key}_{name}", method(key, name))
    return ray.remote(num_cpus=0)(WorkerDict)


class ReferenceWorker(ActorWorkerBase):
    """The other one of the two that share a process."""

    def update(self) -> int:
        return -1
