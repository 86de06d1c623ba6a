"""What is submitted to a ThreadPoolExecutor belongs to the stage and step in which it is submitted.

Source: CPython 3.9 to 3.14, `concurrent/futures/thread.py`: `map` and asyncio's `run_in_executor` submit by `submit`.
"""

from ..patching.declare import Patch, Target

PATCH = Patch(
    framework="concurrent",
    versions="Python 3.9 to 3.14",
    targets=(
        Target(
            "concurrent.futures.thread:ThreadPoolExecutor.submit",
            kind="wrap",
            value="mstxkit.marking.handing_on:submit",
        ),
    ),
    notes=(
        "concurrent: processes of a pool have no stage and no step of who submits; nor has a threading.Thread",
        "concurrent: an executor that overrides submit without calling ThreadPoolExecutor's hands nothing on",
    ),
)
