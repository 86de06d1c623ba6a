"""What `autopatch` and `capture` leave of Ray in this process when they are undone. No cluster is started.

Argument: the run folder.
"""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import ray
from ray import init
from ray._private import worker
from ray._private.function_manager import FunctionActorManager

import mstxkit


def held() -> dict[str, Any]:
    return {
        "ray.init": ray.init,
        "its home": worker.init,
        "a copy": init,
        **{name: value for name, value in vars(FunctionActorManager).items() if callable(value)},
    }


def same(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [name for name in before if before[name] is not after[name]]


before = held()
mstxkit.autopatch("ray")
mstxkit.autopatch("ray")
patched = held()
said = {
    "replaced": same(before, patched),
    "signature is the same": inspect.signature(ray.init) == inspect.signature(before["ray.init"]),
    "one layer": ray.init.__wrapped__ is before["ray.init"],
}
copied = {"since": ray.init}
sys.modules[__name__].__dict__.update(copied)
with mstxkit.capture(sys.argv[1]):
    mstxkit.unpatch()
    said["left while capture is on"] = same(before, held())
said["left at the end"] = same(before, held())
said["a copy made since is put back"] = globals()["since"] is before["ray.init"]
mstxkit.autopatch("ray")
said["replaced again"] = same(before, held()) == said["replaced"]
mstxkit.unpatch("ray")
said["left then"] = same(before, held())
sys.stdout.write(json.dumps(said))
