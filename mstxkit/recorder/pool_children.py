"""Children of multiprocessing: they leave by os._exit, past atexit, and are told late which child they are."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Callable

from ..host import identity, imports


def stop_with_finalizers(stop: Callable[[], object]) -> None:
    """Call `stop`, which must live on, where multiprocessing ends this child, if it is one, or one forked from it.

    And learn which child it is as soon as multiprocessing says so: it may be ended long before the sealer looks.

    Source: CPython 3.9 to 3.13, `multiprocessing/process.py`, `BaseProcess._bootstrap`: finalizers are cleared, then
        after-fork calls run; so both what is captured before it (a fork, an import of the main
        module) and what its target captures is stopped. From 3.10 on a spawned child has an `_after_fork` that does
        nothing instead (`context.py`): it leaves through atexit. Where another thread is just importing it, this
        process is no child of it.
    """
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is None or process is None or imports.is_loading(util) or imports.is_loading(process):
        return
    util.register_after_fork(stop, _begin_child)  # it is kept by what it is called with
    if process.parent_process() is not None:
        util.Finalize(None, stop, exitpriority=-100)
    spawned: Any = getattr(sys.modules.get("multiprocessing.context"), "SpawnProcess", object)
    if getattr(process.current_process(), "_inheriting", False) and "_after_fork" in vars(spawned):
        spawned._after_fork = staticmethod(_learn_child)


def _begin_child(stop: Callable[[], object]) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, stop, exitpriority=-100)
    _learn_child()


def _learn_child() -> None:
    if identity.on_learnt is not None:
        identity.on_learnt()
    child = sys.modules["multiprocessing.process"].current_process()
    child.run = partial(_keep_error, child.run)


def _keep_error(run: Callable[[], object]) -> None:
    """From Python 3.13 on finalizers run when the exception of a child has been printed: it is kept as a program's."""
    try:
        run()
    except BaseException as exc:
        sys.last_type, sys.last_value = type(exc), exc
        raise
