"""A range for each Ray task and each actor method that is run remotely, named as the function, or as `Class.method`.

`patches/ray.py` puts `get_execution_info` of this module in the place of Ray's, by which a worker looks up what to
run: once for each function, then Ray remembers it.
"""

from __future__ import annotations

import functools
from types import CellType, FunctionType
from typing import Any, Callable

from .. import faults
from ..marking import signatures, wrapping


def __getattr__(name: str) -> Any:
    """`get_execution_info`, made anew around what Ray has at that moment: so it can be undone and put back again."""
    if name != "get_execution_info":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ray._private.function_manager import FunctionActorManager

    return time_methods(FunctionActorManager.get_execution_info)


def time_methods(look_up: Callable[..., Any]) -> Callable[..., Any]:
    """Ray's look-up, with a range around what it finds. `look_up`: `FunctionActorManager.get_execution_info` of Ray
    2.42.1 and 2.60.0, which is called with a function descriptor and gives a named tuple of what to run.
    """

    @functools.wraps(look_up)
    def get_execution_info(manager: Any, job_id: Any, function_descriptor: Any) -> Any:
        execution = look_up(manager, job_id, function_descriptor)
        try:
            return execution._replace(function=_with_range(function_descriptor, execution.function))
        except Exception as exc:
            faults.note_fault("ranges of Ray's tasks and actor methods", exc)
            return execution

    return get_execution_info


def _with_range(descriptor: Any, function: Any) -> Any:
    name = _plain_name(descriptor.function_name)
    if not descriptor.is_actor_method():
        return _decorate_method(function, name)
    if name.startswith("__ray"):  # Ray's own
        return function
    name = f"{_plain_name(descriptor.class_name)}.{name}"
    method = function.method
    if isinstance(method, FunctionType) and signatures.interface_of(method).kind != signatures.CALL:
        return _call_instead(function, _decorate_method(method, name))
    return _decorate_method(function, name)


def _call_instead(executor: Any, method: Any) -> Any:
    """Ray's caller of a method, calling this one instead: a coroutine or generator stays inside its range.

    Source: Ray 2.42.1 and 2.60.0, `_make_actor_method_executor`: a closure over `method`, with attributes `name` and
    `method`.
    """
    cells = [CellType(method) if cell.cell_contents is executor.method else cell for cell in executor.__closure__]
    copy = FunctionType(executor.__code__, executor.__globals__, executor.__name__, executor.__defaults__, tuple(cells))
    copy.__dict__.update(executor.__dict__, method=method)
    return copy


def _decorate_method(function: Any, name: str) -> Any:
    return wrapping.decorate_target(tuple(wrapping.RangeSettings(name)), function)


def _plain_name(qualname: str) -> str:
    return qualname.rpartition("<locals>.")[2]
