"""The controller of a run whose only host says goodbye; says whether it was there, and whether it is gone for good.

judge_ends.py RUN
"""

from __future__ import annotations

import json
import os
import sys
import time

import ray

from mstxkit.cluster import ray_link
from mstxkit.cluster.ray_actor import JobController
from mstxkit.store import batches, run_file

run, run_id = run_file.open_run_folder(sys.argv[1])
ray.init("local", num_cpus=1, include_dashboard=False)
variables = {"MSTXKIT_OFF": "1", "PYTHONPATH": os.environ["PYTHONPATH"]}
name = ray_link.name_of(run_id)
options = {"name": name, "namespace": ray_link.NAMESPACE, "lifetime": "detached", "num_cpus": 0, "max_restarts": -1}
actor = (
    ray.remote(JobController)
    .options(**options, runtime_env={"env_vars": variables})
    .remote(str(run), run_id, "", 1.0, 60.0)
)
head = {"run": run_id, "host": "h", "sender": "s", "number": 0, "goodbye": True, "clock": [1, 2, 3]}
answer = ray.get(actor.take.remote(batches.encode_batch(head, [])))
deadline, is_gone = time.monotonic() + 60, False
while not is_gone and time.monotonic() < deadline:
    time.sleep(0.2)
    try:
        ray.get_actor(name, ray_link.NAMESPACE)
    except ValueError:
        is_gone = True
sys.stdout.write(json.dumps({"answered": isinstance(answer, bytes), "is_gone": is_gone}))
ray.shutdown()
