"""Two steps of a controller, patched by a YAML file that declares what it waits for, and one wait of a user's own.

Argument: the run folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import mstxkit

mstxkit.capture(sys.argv[1])
import acme_rl  # noqa: E402

mstxkit.autopatch(targets=str(Path(acme_rl.__file__).with_name("controller.yaml")))

import ray  # noqa: E402
from acme_rl.controller import Controller  # noqa: E402
from acme_rl.workers import ActorWorker  # noqa: E402

ray.init("local", num_cpus=1, include_dashboard=False)
actors = [ActorWorker.remote(rank, 1) for rank in range(2)]
controller = Controller(actors)
sums = [controller.step() for _ in range(2)]
with mstxkit.stage("actor_update", waits_for="workers"):
    ray.get([actor.update.remote() for actor in actors])
ray.shutdown()
sys.stdout.write(json.dumps({"sums": sums, "driver": os.getpid()}))
