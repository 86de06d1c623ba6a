"""What is submitted to a ThreadPoolExecutor belongs to the stage and step in which it is submitted; and a stage that
waits for what comes by a queue waits.

Source: CPython 3.9 to 3.14, `concurrent/futures/thread.py`: `map` and asyncio's `run_in_executor` submit by `submit`;
queue.py, multiprocessing/queues.py, asyncio/queues.py.
"""

from ..patching.declare import Patch, Target

_ENTRIES = "mstxkit.recorder.entries"

PATCH = Patch(
    framework="concurrent",
    versions="Python 3.9 to 3.14",
    targets=(
        Target(
            "concurrent.futures.thread:ThreadPoolExecutor.submit",
            kind="wrap",
            value="mstxkit.marking.handing_on:carry_through_submit",
        ),
        Target("queue:Queue.get", kind="value", value=f"{_ENTRIES}:get"),
        Target("multiprocessing.queues:Queue.get", kind="value", value=f"{_ENTRIES}:get_from_process"),
        Target("asyncio.queues:Queue.get", kind="value", value=f"{_ENTRIES}:get_async"),
    ),
    notes=(
        "concurrent: processes of a pool have no stage and no step of who submits; nor has a threading.Thread",
        "concurrent: an executor that overrides submit without calling ThreadPoolExecutor's hands nothing on",
    ),
)
