"""Code of wrappers that take exactly the parameters of what they wrap: made once per shape of signature, then shared.

A wrapper without `*args, **kwargs` costs the call no packing, and keeps defaults, keyword-only and positional-only
parameters as they are. Defaults are not in the code: they stay on the function, the same objects.
"""

from __future__ import annotations

import builtins
import keyword
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any, Callable, NamedTuple

from . import off

CALL, COROUTINE, GENERATOR = "call", "coroutine", "generator"
ASYNC_GENERATOR, AWAITABLE = "async generator", "awaitable"

_VARARGS, _VARKEYWORDS, _GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 4, 8, 0x20, 0x80, 0x100, 0x200
_FILE_PREFIX = "<mstxkit wrapper of "
# What a wrapper holds as its globals, under names that no parameter of its own has.
_HELD = (
    "is_on", "timed", "driven", "opened", "site", "function", "stream", "attributes", "evaluate", "in_pieces",
    "awaiting",
)  # fmt: skip
_BODIES = {
    CALL: """
  if {is_on}({site}):
   with {timed}({site}{extra}): return {function}({call})
  return {function}({call})
""",
    COROUTINE: """
  if {is_on}({site}): return await {driven}({site}, {function}({call}){extra})
  return await {function}({call})
""",
    GENERATOR: """
  if {is_on}({site}): return (yield from {driven}({site}, {function}({call}){extra}))
  return (yield from {function}({call}))
""",
    ASYNC_GENERATOR: """
  {pieces} = {in_pieces}({opened}({site}{extra}), {function}({call}))
  while await {pieces}.more():
   with {pieces}: {pieces}.sent = yield {pieces}.take()
""",
    AWAITABLE: """
  return {awaiting}({site}, {function}({call}){extra})
""",
}


class Parameters(NamedTuple):
    """The parameters of a function by kind; `varargs` and `varkw` are names or None."""

    positional_only: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    keyword_only: tuple[str, ...] = ()
    varargs: str | None = "args"
    varkw: str | None = "kwargs"

    @property
    def names(self) -> list[str]:
        """All of them."""
        stars = [name for name in (self.varargs, self.varkw) if name]
        return [*self.positional_only, *self.plain, *self.keyword_only, *stars]


class Shape(NamedTuple):
    """All that a wrapper's code depends on."""

    kind: str
    parameters: Parameters
    has_stream: bool
    has_attributes: bool


class Interface(NamedTuple):
    """How a callable is called: its kind, parameters and defaults, and the code flags its wrapper must have too."""

    kind: str
    parameters: Parameters
    defaults: tuple[Any, ...] | None = None
    keyword_defaults: dict[str, Any] | None = None
    flags: int = 0


def interface_of(target: Callable[..., Any]) -> Interface:
    """How `target` is called: read from its code, because `inspect.signature` may describe what `target` wraps."""
    function, bound = _code_behind(target)
    marks = getattr(target, "__dict__", {})
    is_marked = "_is_coroutine" in marks or "_is_coroutine_mark" in marks
    if function is None:
        return Interface(AWAITABLE if is_marked else CALL, Parameters())
    kind = _kind(function.__code__)
    parameters = _parameters(function.__code__, bound)
    places = len(parameters.positional_only) + len(parameters.plain)
    defaults = (function.__defaults__ or ())[-places:] if places else ()
    flags = function.__code__.co_flags & _ITERABLE_COROUTINE
    kind = AWAITABLE if kind == CALL and is_marked else kind
    return Interface(kind, parameters, defaults or None, function.__kwdefaults__, flags)


def _code_behind(target: Callable[..., Any]) -> tuple[FunctionType | None, int]:
    """The Python function that a call of `target` enters, and how many of its parameters are bound already."""
    if isinstance(target, FunctionType):
        return target, 0
    inner = target.__func__ if isinstance(target, MethodType) else getattr(type(target), "__call__", None)  # noqa: B004
    if isinstance(inner, FunctionType) and inner.__code__.co_argcount and not isinstance(target, type):
        return inner, 1
    return None, 0


def _kind(code: CodeType) -> str:
    for flag, kind in ((_COROUTINE, COROUTINE), (_ASYNC_GENERATOR, ASYNC_GENERATOR), (_GENERATOR, GENERATOR)):
        if code.co_flags & flag:
            return kind
    return CALL


def _parameters(code: CodeType, bound: int) -> Parameters:
    names, count = code.co_varnames, code.co_argcount
    after = count + code.co_kwonlyargcount
    varargs = names[after] if code.co_flags & _VARARGS else None
    varkw = names[after + (varargs is not None)] if code.co_flags & _VARKEYWORDS else None
    only = max(code.co_posonlyargcount, bound)
    parameters = Parameters(names[bound:only], names[only:count], names[count:after], varargs, varkw)
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in parameters.names):
        return parameters
    return Parameters()


def make(interface: Interface, name: str, held: dict[str, Any]) -> FunctionType:
    """A wrapper called as `interface` says. `held`, by role, is all it may refer to: its `__globals__` are its own.

    Not a closure: CPython copies the cells of a closure at every call, which an idle wrapper would feel. Without
    `__name__` in them, torch.compile takes these globals for what they are and does not look for a module.
    """
    shape = Shape(interface.kind, interface.parameters, held["stream"] is not None, held["attributes"] is not None)
    code, roles = _code(shape)
    code = code.replace(co_name=name, co_filename=f"{_FILE_PREFIX}{name}>", co_flags=code.co_flags | interface.flags)
    namespace = {internal: held[roles[internal]] for internal in code.co_names if internal in roles}
    function = FunctionType(code, {**namespace, "__builtins__": builtins}, name, interface.defaults)
    if interface.keyword_defaults:
        function.__kwdefaults__ = dict(interface.keyword_defaults)
    return function


def held_by(function: object) -> dict[str, Any] | None:
    """What a wrapper made here holds, by role; None for any other object. Copied attributes do not fool it."""
    if not isinstance(function, FunctionType) or not function.__code__.co_filename.startswith(_FILE_PREFIX):
        return None
    held = {internal[1:].rstrip("_"): value for internal, value in function.__globals__.items()}
    return held if "site" in held and "function" in held else None


def silence(wrapper: FunctionType, function: Callable[..., Any]) -> None:
    """From now on a call of `wrapper`, wherever it is held, is a call of `function`, without a range."""
    held = {"is_on": off.is_on, "timed": off.timed, "driven": off.driven, "opened": off.opened}
    held.update(function=function, awaiting=off.awaiting)
    for internal in wrapper.__globals__:
        role = internal[1:].rstrip("_")
        wrapper.__globals__[internal] = held.get(role, wrapper.__globals__[internal])


@lru_cache(maxsize=512)
def _code(shape: Shape) -> tuple[CodeType, dict[str, str]]:
    """The wrapper's code for a shape, and the role of each of the names it refers to."""
    tail = ""
    while any(f"_{role}{tail}" in shape.parameters.names for role in (*_HELD, "pieces")):
        tail += "_"
    internal = {role: f"_{role}{tail}" for role in (*_HELD, "pieces")}
    module = compile(_source(shape, internal), f"{_FILE_PREFIX}...>", "exec")
    code = next(const for const in module.co_consts if isinstance(const, CodeType))
    return code, {internal[role]: role for role in _HELD}


def _source(shape: Shape, internal: dict[str, str]) -> str:
    """The wrapper, whose names but for its parameters are globals."""
    call = _call(shape.parameters)
    extra = ""
    if shape.has_attributes:
        extra = ", {stream}, {evaluate}({site}, {attributes}, {call})"
    elif shape.has_stream:
        extra = ", {stream}"
    extra = extra.format(call=call, **internal)
    body = _BODIES[shape.kind].format(call=call, extra=extra, **internal)
    is_async = "async " if shape.kind in (COROUTINE, ASYNC_GENERATOR) else ""
    return f"{is_async}def wrapper({_declaration(shape.parameters)}):{body}"


def _declaration(parameters: Parameters) -> str:
    parts = [*parameters.positional_only, *(["/"] if parameters.positional_only else []), *parameters.plain]
    if parameters.varargs or parameters.keyword_only:
        parts.append(f"*{parameters.varargs or ''}")
    parts += parameters.keyword_only
    return ", ".join([*parts, *([f"**{parameters.varkw}"] if parameters.varkw else [])])


def _call(parameters: Parameters) -> str:
    parts = [*parameters.positional_only, *parameters.plain]
    parts += [f"*{parameters.varargs}"] if parameters.varargs else []
    parts += [f"{name}={name}" for name in parameters.keyword_only]
    return ", ".join([*parts, *([f"**{parameters.varkw}"] if parameters.varkw else [])])
