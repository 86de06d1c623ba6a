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
    if carried is None or len(args) < 2 or _leaves_the_interpreter(args[0]):
        return original(*args, **kwargs)
    return original(args[0], _run_inside, carried, *args[1:], **kwargs)


def _run_inside(carried: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    before = engine.carry(carried)
    try:
        return function(*args, **kwargs)
    finally:
        engine.carry(before)


def _leaves_the_interpreter(executor: Any) -> bool:
    """Is it one of InterpreterPoolExecutor (Python 3.14), which pickles what it is given?"""
    module = sys.modules.get("concurrent.futures.interpreter")
    return module is not None and isinstance(executor, module.InterpreterPoolExecutor)
