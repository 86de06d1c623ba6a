"""One job with a worker of every shape. Says on its last line which processes ran what.

Arguments: the moment of patching, `before` or `after` the framework's import, or `never`: then only workers are
patched; the run folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray

import mstxkit

TARGETS = Path(__file__).resolve().parents[1] / "packages" / "acme_rl" / "targets.yaml"
BY_HAND = {
    "worker_process_setup_hook": "mstxkit.bootstrap.ray.setup",
    "env_vars": {"MSTXKIT_RUN": sys.argv[-1], "MSTXKIT_AUTOPATCH": str(TARGETS)},
}
moment, run = sys.argv[1:]
if moment == "after":
    import acme_rl.workers  # noqa: F401
if moment != "never":
    mstxkit.capture(run)
    mstxkit.autopatch(targets=TARGETS)
from acme_rl import workers  # noqa: E402

pids: dict[str, int] = {}


@ray.remote(num_cpus=0)
class InMain:
    """A class of the script itself."""

    def work(self, count: int) -> int:
        return workers.normalise(count)


@ray.remote(num_cpus=0)
def train() -> dict[str, int]:
    """As MindSpeed-RL's: a task of the script that makes the actors. Its globals are copies of the driver's."""
    actor = workers.ActorWorker.remote(30)
    own = workers.IntegratedWorker.remote(31)
    ray.get([actor.generate_sequences.remote(2), own.compute_ref_log_prob.remote(2), own.generate_sequences.remote(1)])
    ray.get(workers.compute_advantage.remote(1))
    workers.normalise(1)
    found = {"task": os.getpid(), "actor made in a task": pid(actor), "integrated made in a task": pid(own)}
    ray.kill(actor)
    ray.kill(own)
    return found


def pid(actor: Any) -> int:
    return int(ray.get(actor.__ray_call__.remote(lambda self: os.getpid())))


def base_and_subclass() -> Any:
    actor = workers.ActorWorker.remote(10, 7)
    ray.get([actor.generate_sequences.remote(3), actor.update.remote(), actor.update.remote(), actor.kind.remote()])
    return actor


def own_methods() -> Any:
    actor = workers.IntegratedWorker.remote(11, 40)
    ray.get([actor.compute_ref_log_prob.remote(1), actor.generate_sequences.remote(1), actor.is_patched_here.remote()])
    ray.get(actor.update.remote())
    return actor


def no_base() -> Any:
    actor = workers.RuleReward.remote()
    ray.get([actor.compute_rm_score.remote(1) for _ in range(3)])
    for part in actor.parts.options(num_returns="streaming").remote(3):
        ray.get(part)
    ray.get(actor.weigh.remote(1))
    return actor


def concurrency_groups() -> Any:
    actor = workers.Dock.remote()
    ray.get([actor.put.remote(1) for _ in range(8)] + [actor.get.remote(1) for _ in range(8)])
    return actor


def asynchronous() -> Any:
    actor = ray.remote(workers.Server).options(num_cpus=0, max_concurrency=8).remote()
    ray.get([actor.generate.remote(1) for _ in range(6)] + [actor.sleep.remote()])
    for token in actor.tokens.options(num_returns="streaming").remote(4):
        ray.get(token)
    return actor


def own_runtime_env() -> Any:
    environment = {"env_vars": {"RANK": "12", "WORLD_SIZE": "64"}}
    actor = ray.remote(workers.ActorWorkerBase).options(num_cpus=0, runtime_env=environment).remote(12)
    ray.get([actor.generate_sequences.remote(1)])
    return actor


def named_and_detached() -> Any:
    workers.ActorWorker.options(name="kept", lifetime="detached", namespace="n").remote(13)
    actor = ray.get_actor("kept", namespace="n")
    ray.get(actor.generate_sequences.remote(1))
    return actor


def colocated() -> Any:
    actor = workers.colocated(actor=workers.ActorWorkerBase, ref=workers.ReferenceWorker).remote(14)
    ray.get([actor.actor_generate_sequences.remote(1), actor.actor_update.remote(), actor.ref_update.remote()])
    return actor


def in_main() -> Any:
    actor = InMain.remote()
    ray.get(actor.work.remote(1))
    return actor


def functions() -> None:
    ray.get([workers.compute_advantage.remote(1) for _ in range(3)])
    for part in workers.stream.options(num_returns="streaming").remote(3):
        ray.get(part)


ray.init("local", num_cpus=2, include_dashboard=False, runtime_env=BY_HAND if moment == "never" else None)
functions()
for style in (
    base_and_subclass, own_methods, no_base, concurrency_groups, asynchronous, own_runtime_env, named_and_detached,
    colocated, in_main,
):  # fmt: skip
    made = style()
    pids[style.__name__] = pid(made)
    ray.kill(made)
pids.update(ray.get(train.remote()))
ray.shutdown()
sys.stdout.write(json.dumps({"pids": pids, "driver": os.getpid()}))
