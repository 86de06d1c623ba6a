"""Ranges for every Ray task and actor method that is called remotely. Off by default: frameworks' own ranges say more.

Source: Ray 2.42.1 and 2.60.0, `ray/_private/function_manager.py`: a worker asks `get_execution_info` for each function
that it is to run, tasks and actor methods alike, `__init__` included.
"""

from ..patching.declare import Patch, Target

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
