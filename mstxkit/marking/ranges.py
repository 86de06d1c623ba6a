"""The marking names: ranges, stages, marks and steps are the engine's own callables, so that calling them adds nothing.

Also the one place that writes `state`, at import. With MSTXKIT_OFF=1 all names are those of `off.py`, for good, and no
engine is loaded.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Callable, TypeVar, Union, overload

from ..host import environment
from . import state

# MSTXKIT_OFF=1: for the life of this process.
is_off = environment.is_off()

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Protocol

    from ..engine.native import hot as _marking
    from ..engine.native.hot import at_step, current_stage, current_step, mark, mstx_range, stage, step

    _Method = Union[staticmethod[..., Any], classmethod[Any, ..., Any], property]
    _Function = TypeVar("_Function", bound=Union[Callable[..., Any], _Method])

    class Decorator(Protocol):
        """Returns what it decorates, with ranges, and of the same type."""

        def __call__(self, function: _Function, /) -> _Function:
            """Decorate `function`."""
elif is_off:
    from . import off as _marking
else:
    from ..engine.choose import engine as _marking

if not TYPE_CHECKING:
    mstx_range, stage, mark = _marking.mstx_range, _marking.stage, _marking.mark
    step, at_step = _marking.step, _marking.at_step
    current_stage, current_step = _marking.current_stage, _marking.current_step

__all__ = [
    "at_step", "current_stage", "current_step", "mark", "mstx_range", "mstx_timer", "site", "stage", "step"
]  # fmt: skip


@overload
def mstx_timer(name: _Function, /) -> _Function: ...
@overload
def mstx_timer(
    name: str | None = None,
    stage: str | None = None,
    domain: str = "default",
    stream: object = None,
    attributes: Callable[..., dict[str, Any]] | None = None,
) -> Decorator: ...
def mstx_timer(
    name: Any = None, stage: Any = None, domain: Any = "default", stream: Any = None, attributes: Any = None
) -> Any:
    """Make each call a range: `@mstx_timer`, `@mstx_timer("name")`, `@mstx_timer(stage="s")`.

    Works on functions, methods (static and class methods in either decorator order), properties, partials, coroutine
    functions, generators, async generators, and classes, whose own public methods it decorates. A coroutine or
    generator is one range from its first resume to its end; what its caller does in between is not inside it.

    Args:
        name: The range's name; the function's `__qualname__` if not given.
        stage: Key of a stage: each call is an occurrence of it.
        domain: mstx domain.
        stream: Device stream for mstx.
        attributes: A callable of the call's own arguments that returns a dict; called only while recording, before the
            clock starts. What it raises is counted, not raised.

    Cost: one Python frame and one range a call.

    Example:
        >>> from mstxkit import mstx_timer
        >>> @mstx_timer(stage="reward", attributes=lambda batch: {"prompts": len(batch)})
        ... def score(batch):
        ...     return [len(text) for text in batch]
        >>> score(["a", "bc"])
        [1, 2]
    """
    if callable(name) or hasattr(type(name), "__get__"):
        return _decorate_target((None, stage, domain, stream, attributes), name)
    return partial(_decorate_target, (name, stage, domain, stream, attributes))


def site(name: str, stage: str | None = None, domain: str = "default", *of_range: Any) -> Any:
    """The call site of that name here; with stream and attributes a range. Pickled ones arrive as a call of this."""
    if of_range:
        return mstx_range(name, stage=stage, domain=domain, stream=of_range[0], **(of_range[1] or {}))
    return _marking.intern(name, stage, domain)


def _decorate_target(settings: tuple[Any, ...], target: Any) -> Any:
    if is_off:
        return target
    try:
        from .wrapping import decorate_target

        return decorate_target(settings, target)
    except (OSError, MemoryError) as exc:  # no descriptor or memory is left to load it
        from .. import faults

        faults.note_fault("mstx_timer", exc)
        return target


def _teach_torch_compile(dynamo: ModuleType) -> None:
    from .dynamo import register_functions

    register_functions(dynamo, _marking)


def _connect_wrappers() -> None:
    """Let wrappers, ranges that decorate, and torch.compile find what they need."""
    for name in (*state.HELD, "recording"):
        function = getattr(_marking, name)
        if isinstance(function, FunctionType):
            function.__module__ = state.__name__  # where pickle looks it up; those of the C engine say so already
        setattr(state, name, function)
    state.site, state.add_cost = site, _marking.add_cost
    if is_off:
        return
    from .. import faults
    from ..host import imports, names

    _marking.set_hooks(names.describe_site, names.utf8, faults.note_fault, _decorate_target, site)
    imports.when_imported("torch._dynamo", _teach_torch_compile)


_connect_wrappers()
