"""A step of MindSpore from its first callback to its last, and which one it is.

Source: MindSpore 2.10.0, train/model.py:1035, 1104 (dataset sink), 1221. Steps count from 1 over all epochs: as
`cur_step_num`, which does not know of those before `initial_epoch`. A training that begins anew goes on counting.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Callable

from ..marking import ranges

_here = threading.local()  # `step`: the range of the step of `Model` that is under way on this thread
# The step that was told last, the last one of the training before this one, and cells called in a step without `Model`.
_told = SimpleNamespace(step=None, by_others=False, before=0, cells=weakref.WeakSet())
_UNLIKE_MINDSPORE = (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError)


def run_steps(upstream: Callable[..., Any], model: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`Model._train`: a step in which it fails ends with it."""
    _told.before = 0 if kwargs.get("initial_epoch") else _told.step or 0
    with ExitStack() as training:
        training.push(_close_step)
        return upstream(model, *args, **kwargs)


def begin_step(upstream: Callable[..., Any], callbacks: Any, run_context: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`CallbackManager.on_train_step_begin`: a step has begun, and no callback has heard of it yet."""
    try:
        loop = run_context.original_args()
        before, step_in_epoch = loop.batch_num * (loop.cur_epoch_num - 1), (loop.cur_step_num - 1) % loop.batch_num + 1
    except _UNLIKE_MINDSPORE:
        return upstream(callbacks, run_context, *args, **kwargs)
    _close_step()
    _tell_step(int(_told.before + before + step_in_epoch))
    _here.step = ranges.mstx_range("train_step", stage="train_step")
    _here.step.__enter__()
    with ranges.mstx_range("on_train_step_begin"):
        return upstream(callbacks, run_context, *args, **kwargs)


def end_step(upstream: Callable[..., Any], callbacks: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`CallbackManager.on_train_step_end`: the step is over when all callbacks have heard of it."""
    if getattr(_here, "step", None) is None:
        return upstream(callbacks, *args, **kwargs)
    with ExitStack() as step:
        step.push(_close_step)
        step.enter_context(ranges.mstx_range("on_train_step_end"))
        return upstream(callbacks, *args, **kwargs)


def count_update(cell: Any, *args: Any, **kwargs: Any) -> None:
    """`TrainOneStepCell.__call__`. Outside of all stages, `Model`'s and the program's, it is of the next step, or of
    this one where only other cells were called in it, as a generator's critic.
    """
    if ranges.current_stage() is None:
        if cell in _told.cells or not _told.cells:
            _tell_step((_told.step or 0) + 1)
        _told.cells.add(cell)


def _close_step(*error: Any) -> None:
    step, _here.step = getattr(_here, "step", None), None
    if step is not None:
        step.__exit__(*error)


def _tell_step(number: int) -> None:
    """It is this step now, unless the program has told another one since the last."""
    _told.cells.clear()
    _told.by_others = _told.by_others or _told.step not in (None, ranges.current_step())
    if not _told.by_others:
        _told.step = ranges.step(number)
