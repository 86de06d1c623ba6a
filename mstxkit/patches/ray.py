"""Ranges for every Ray task and actor method that is called remotely. Off by default: frameworks' own ranges say more.
On by default: what waits in a stage for another process of Ray's waits.

Source: Ray 2.42.1 and 2.60.0, `ray/_private/function_manager.py`: a worker asks `get_execution_info` for each function
that it is to run, tasks and actor methods alike, `__init__` included. `ray/_private/worker.py`: `get`, `wait`.
TransferQueue 0.1.11, `transfer_queue/client.py`: all that waits for it waits there.
"""

from typing import Any

from ..patching.declare import Patch, Target, each

_WRAP: Any = {"kind": "wrap", "value": "mstxkit.recorder.entries:take_from"}
_OF_QUEUE = Target("transfer_queue.client:TransferQueueClient._run_coroutine", **_WRAP)
_TAKEN = (*each("ray._private.worker", "get", "wait", **_WRAP), _OF_QUEUE)
ALWAYS = (Patch(framework="ray.get", versions="2.42.1 to 2.60.0", targets=_TAKEN),)

PATCH = Patch(
    framework="ray",
    versions="2.42.1 to 2.60.0",
    targets=(
        Target(
            "ray._private.function_manager:FunctionActorManager.get_execution_info", name="tasks and actor methods",
            kind="value", value="mstxkit.bootstrap.ray_ranges:get_execution_info",
        ),
    ),
    default=False,
    notes=(
        "ray: what an actor calls of its own methods is not remote, and has no range",
        "ray: what a worker has run before unpatch() keeps its range in that worker",
    ),
)  # fmt: skip
