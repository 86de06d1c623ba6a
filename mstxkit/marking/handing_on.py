"""Work that is handed to a pool of threads takes along what its submitter is inside of: the stage, and the step.

The work runs in its thread's own context, as without us: only stage and step are set there while it runs.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

from ..engine.choose import engine


def carry_through_submit(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call an executor's `submit` with the call's own arguments: the executor, the function, and that one's arguments.

    Cost: one call of the engine while nothing is recorded; two, and a Python frame in the thread, inside a stage.
    """
    if not engine.recording():
        return original(*args, **kwargs)
    carried = engine.carried()
    # One of InterpreterPoolExecutor (Python 3.14) pickles what it is given.
    pools_of_interpreters = getattr(sys.modules.get("concurrent.futures.interpreter"), "InterpreterPoolExecutor", ())
    if carried is None or len(args) < 2 or isinstance(args[0], pools_of_interpreters):
        return original(*args, **kwargs)
    return original(args[0], _run_inside, carried, *args[1:], **kwargs)


def _run_inside(carried: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    before = engine.carry(carried)
    try:
        return function(*args, **kwargs)
    finally:
        engine.carry(before)
