"""What others still end after us, at the end of the interpreter: children of multiprocessing, workers of a Ray job.

Calls of atexit are made in the opposite order of their registration: who was imported before `capture` was called ends
its processes when this one has stopped already.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from ..host import parts


def when_others_have_ended(call: Callable[[], object]) -> None:
    """Call this, which must not raise, after multiprocessing has ended its children, and after Ray has ended its
    workers, where they are still to do so.

    Source: CPython 3.9 to 3.13, `multiprocessing/util.py`, `_exit_function` (finalizers of a negative priority come
        after the children); Ray 2.42.1 and 2.60.0, `_private/worker.py`, `shutdown` (its last but one step, when all
        processes of a cluster that it has started are gone, is `global_worker.set_mode(None)`).
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not getattr(util, "_exiting", True):
        util.Finalize(None, call, exitpriority=-100)
    if parts.is_driving():
        worker: Any = sys.modules["ray._private.worker"].global_worker
        original = worker.set_mode

        @functools.wraps(original)
        def set_mode(mode: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(mode, *args, **kwargs)
            if mode is None:
                call()
            return result

        worker.set_mode = set_mode
