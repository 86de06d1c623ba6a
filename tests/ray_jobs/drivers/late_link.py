"""A driver that ends without `ray.shutdown`, and whose host's agent first finds Ray while Ray shuts itself down then.

late_link.py RUN
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray
import ray._private.worker as worker

import mstxkit
from mstxkit.cluster.ray_link import RayLink
from mstxkit.store import run_file

run = Path(sys.argv[1])
mstxkit.capture(run)
ray.init("local", num_cpus=1, include_dashboard=False)
original = worker.disconnect


def disconnect(*args: Any, **kwargs: Any) -> Any:
    link = RayLink(run, run_file.id_of(run) or "")
    link.post(b"the last batch")
    sys.stdout.write(json.dumps({"called": link._actor is not None}))
    sys.stdout.flush()
    return original(*args, **kwargs)


worker.disconnect = disconnect
