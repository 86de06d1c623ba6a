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
    """`get_execution_info`, made anew around what Ray has at that moment: so it can be undone and put back again.

    Ray 2.42.1 and 2.60.0 call theirs with a function descriptor; it gives a named tuple of what to run.
    """
    if name != "get_execution_info":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ray._private.function_manager import FunctionActorManager

    look_up: Callable[..., Any] = FunctionActorManager.get_execution_info

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
    if not isinstance(method, FunctionType) or signatures.interface_of(method).kind == signatures.CALL:
        return _decorate_method(function, name)
    # Ray's caller of a method is to call ours instead, so that a coroutine or generator stays inside its range. Source:
    # Ray 2.42.1 and 2.60.0, `_make_actor_method_executor`: a closure over `method`, with attributes `name`, `method`.
    ours = _decorate_method(method, name)
    cells = tuple(CellType(ours) if cell.cell_contents is method else cell for cell in function.__closure__)
    caller = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    caller.__dict__.update(function.__dict__, method=ours)
    return caller


def _decorate_method(function: Any, name: str) -> Any:
    return wrapping.decorate_target(tuple(wrapping.RangeSettings(name)), function)


def _plain_name(qualname: str) -> str:
    return qualname.rpartition("<locals>.")[2]
