"""Code of wrappers that take exactly the parameters of what they wrap: made once per shape of signature, then shared.

A wrapper without `*args, **kwargs` costs the call no packing, and keeps defaults, keyword-only and positional-only
parameters as they are. Defaults are not in the code: they stay on the function, the same objects.
"""

from __future__ import annotations

import builtins
import gc
import keyword
import sys
from functools import lru_cache
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Callable, Mapping, NamedTuple

from . import off, state

CALL, COROUTINE, GENERATOR = "call", "coroutine", "generator"
ASYNC_GENERATOR, AWAITABLE, HANDING = "async generator", "awaitable", "plain, over a coroutine"

_ONLY_AST = 0x400  # `ast.PyCF_ONLY_AST`
_VARARGS, _VARKEYWORDS, _GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 4, 8, 0x20, 0x80, 0x100, 0x200
_FILE = "<mstxkit wrapper>"
_RELOADERS = ("IPython.extensions.autoreload", "jurigged", "pydevd")
_DECORATORS = 10  # one above another, at most
# What a wrapper holds as its globals, under names that no parameter of its own has.
_HELD = (
    *state.HELD, "site", "function", "stream", "attributes", "constant", "evaluate", "in_pieces", "awaiting", "handing",
    "own_class",
)  # fmt: skip
# Held likewise where they are used: a parameter may have the name of a builtin.
_BUILTINS: dict[str, Any] = {
    "next": next, "type": type, "bool": bool, "int": int, "float": float, "str": str, "unread": NotImplemented,
    "failure": Exception,
}  # fmt: skip
# Its own variables; `value` begins the names of several.
_LOCALS = ("pieces", "value", "kind", "began", "fault")
# In code that holds it all itself: the constant in whose place that is put.
_MARK = "what mstxkit's wrapper holds"
# The class in which IPython 9 executes a method that was edited, to give it to the real one.
_CLASS_OF_AN_EDIT = "__autoreload_class__."
_BODIES = {
    CALL: """
  if {is_on}({site}):{inside}
   with {timed}({site}{extra}): return {function}({call})
  return {function}({call})
""",
    COROUTINE: """
  if {is_on}({site}):{inside}
   return await {driven}({site}, {function}({call}){extra})
  return await {function}({call})
""",
    GENERATOR: """
  if {is_on}({site}):{inside}
   return (yield from {driven}({site}, {function}({call}){extra}))
  return (yield from {function}({call}))
""",
    ASYNC_GENERATOR: """{before}
  {pieces} = {in_pieces}({opened}({site}{extra}), {function}({call}))
  while await {pieces}.more():
   with {pieces}: {pieces}.sent = yield {pieces}.take()
""",
    HANDING: """
  if {is_on}({site}):{inside}
   return {handing}({opened}({site}{extra}), {function}, {call})
  return {function}({call})
""",
    AWAITABLE: """{before}
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


class Prologue(NamedTuple):
    """What a wrapper does while anything is on, before its range begins."""

    statements: tuple[str, ...] = ()  # Python source, in which nothing is but what this package has written or checked
    values: str = ""  # the name that holds the range's attributes then, "" for none


class Prepared:
    """Attributes that bring the code which reads them, instead of being called with the call's own arguments."""

    # What the code takes the attributes from, and nobody changes; None where it reads them only.
    constant: dict[Any, Any] | None = None

    def prologue(self, parameters: Parameters, names: Mapping[str, str]) -> Prologue | None:
        """The code, for a wrapper with these parameters and `names` by role; None: this must be called all the same."""
        raise NotImplementedError


class Interface(NamedTuple):
    """How a callable is called: its kind, parameters, defaults, and the flags and place that its wrapper's code has."""

    kind: str
    parameters: Parameters
    defaults: tuple[Any, ...] | None = None
    keyword_defaults: dict[str, Any] | None = None
    flags: int = 0
    place: tuple[str, int] = (_FILE, 1)


def interface_of(target: Callable[..., Any]) -> Interface:
    """How `target` is called: read from its code, because `inspect.signature` may describe what `target` wraps."""
    function, bound = _code_behind(target)
    marks = getattr(target, "__dict__", {})
    is_marked = "_is_coroutine" in marks or "_is_coroutine_mark" in marks
    if function is None:
        return Interface(AWAITABLE if is_marked else CALL, Parameters())
    kinds = {_COROUTINE: COROUTINE, _ASYNC_GENERATOR: ASYNC_GENERATOR, _GENERATOR: GENERATOR}
    kind = next((kind for flag, kind in kinds.items() if function.__code__.co_flags & flag), CALL)
    parameters = _read_parameters(function.__code__, bound)
    places = len(parameters.positional_only) + len(parameters.plain)
    defaults = (function.__defaults__ or ())[-places:] if places else ()
    flags = function.__code__.co_flags & _ITERABLE_COROUTINE
    if kind == CALL:
        kind = AWAITABLE if is_marked else HANDING if _is_over_a_coroutine(target) else CALL
    place = function.__code__.co_filename, function.__code__.co_firstlineno
    return Interface(kind, parameters, defaults or None, function.__kwdefaults__, flags, place)


def _is_over_a_coroutine(target: Any) -> bool:
    """Is a coroutine function beneath its decorators, as those that retry are? It may hand on the coroutine."""
    for _ in range(_DECORATORS):
        target = getattr(target, "__dict__", {}).get("__wrapped__")
        if isinstance(target, FunctionType) and target.__code__.co_flags & _COROUTINE:
            return True
    return False


def _code_behind(target: Callable[..., Any]) -> tuple[FunctionType | None, int]:
    """The Python function that a call of `target` enters, and how many of its parameters are bound already."""
    if isinstance(target, FunctionType):
        return target, 0
    inner = target.__func__ if isinstance(target, MethodType) else getattr(type(target), "__call__", None)  # noqa: B004
    if isinstance(inner, FunctionType) and inner.__code__.co_argcount and not isinstance(target, type):
        return inner, 1
    return None, 0


def _read_parameters(code: CodeType, bound: int) -> Parameters:
    names, count = code.co_varnames, code.co_argcount
    after = count + code.co_kwonlyargcount
    varargs = names[after] if code.co_flags & _VARARGS else None
    varkw = names[after + (varargs is not None)] if code.co_flags & _VARKEYWORDS else None
    only = max(code.co_posonlyargcount, bound)
    parameters = Parameters(names[bound:only], names[only:count], names[count:after], varargs, varkw)
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in parameters.names):
        return parameters
    return Parameters()


class ModuleName(str):
    """`__name__` in the globals of a wrapper, for the function that asks in which module its caller is.

    torch.compile would look for what a wrapper holds in that module, unless the name begins as those of the globals of
    named tuples do, which are no module's either. Source: torch 2.13.0, `symbolic_convert.py`.
    """

    __slots__ = ()

    def startswith(self, prefix: Any, *places: Any) -> bool:
        """As any text, and that too."""
        return prefix == OF_NO_MODULE or super().startswith(prefix, *places)


OF_NO_MODULE = "namedtuple_"
may_name_modules = True  # torch.compile, where it is loaded, knows of `OF_NO_MODULE`


def name_no_modules() -> None:
    """It does not: no wrapper has `__name__` from now on."""
    global may_name_modules
    may_name_modules = False
    for function in gc.get_objects():
        if type(function) is FunctionType and type(function.__globals__.get("__name__")) is ModuleName:
            del function.__globals__["__name__"]


def _find_edited(target: Callable[..., Any]) -> FunctionType | None:
    """The function whose code `target` runs, where such are edited while the process runs. Not one that is made again
    and again and may refer to itself: held by code, into which no garbage collector sees, it would stay for ever.
    """
    if not hasattr(builtins, "__IPYTHON__") and not any(name in sys.modules for name in _RELOADERS):
        return None
    function, _ = _code_behind(target)
    if function is None or ("<locals>" in function.__qualname__ and CellType() in (function.__closure__ or ())):
        return None
    return function


class Held:
    """What the code of a wrapper holds: one of its constants, of which its names are attributes."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.__dict__ = named


def make_wrapper(interface: Interface, name: str, held: dict[str, Any]) -> FunctionType:
    """A wrapper called as `interface` says. `held`, by role, is all it may refer to: its `__globals__` are its own.

    Not a closure: CPython copies the cells of a closure at every call, which an idle wrapper would feel.

    Where functions are edited while they are held, as in a notebook, its code holds that, and globals and closure are
    its function's: tools that reload may give no more than its code to another function, of the same closure.
    """
    attributes, parameters, target = held["attributes"], interface.parameters, held["function"]
    constant = attributes.constant if isinstance(attributes, Prepared) else attributes
    inner = _find_edited(target)
    cells = {} if inner is None else dict(zip(inner.__code__.co_freevars, inner.__closure__ or ()))
    names = _choose_names(parameters)
    prologue = _write_prologue(parameters, attributes, _write_texts(names, inner is not None))
    code = _compile_wrapper(
        interface.kind, parameters, held["stream"] is not None, prologue, inner is not None, tuple(cells),
        "__class__" in cells and inner is not None and inner.__qualname__.startswith(_CLASS_OF_AN_EDIT),
    )  # fmt: skip
    file, line = interface.place
    code = code.replace(co_name=name, co_filename=file, co_firstlineno=line, co_flags=code.co_flags | interface.flags)
    held = {**held, **_BUILTINS, "constant": constant, "own_class": cells.get("__class__")}
    every = {names[role]: value for role, value in held.items()}
    own = {internal: every[internal] for internal in code.co_names if internal in every}
    if inner is not None:
        in_code = Held(own)
        code = code.replace(co_consts=tuple(in_code if const == _MARK else const for const in code.co_consts))
    elif may_name_modules:
        own["__name__"] = ModuleName(getattr(target, "__module__", None))
    around = {**own, "__builtins__": builtins} if inner is None else inner.__globals__
    closure = tuple(cells[name] for name in code.co_freevars) or None
    function = FunctionType(code, around, name, interface.defaults, closure)
    if interface.keyword_defaults:
        function.__kwdefaults__ = dict(interface.keyword_defaults)
    return function


def held_by(function: object) -> dict[str, Any] | None:
    """What a wrapper made here holds, by role; None for any other object. Copied attributes do not fool it."""
    if not isinstance(function, FunctionType):
        return None
    held = {internal[1:].rstrip("_"): value for internal, value in find_held(function).items()}
    return held if "site" in held and "function" in held else None


def find_held(function: FunctionType) -> dict[str, Any]:
    """What a wrapper made here holds, by what it is called there; may be empty for another function."""
    in_code = next((const for const in function.__code__.co_consts if type(const) is Held), None)
    if in_code is not None:
        return in_code.__dict__
    # The globals of others are a module's. A file's name says nothing: on Python 3.12 cloudpickle sends another one.
    module = function.__globals__.get("__name__")
    return {} if module is not None and type(module) is not ModuleName else function.__globals__


def silence_wrapper(wrapper: FunctionType, function: Callable[..., Any]) -> None:
    """From now on a call of `wrapper`, wherever it is held, is a call of `function`, without a range."""
    held = {"is_on": off.is_on, "timed": off.timed, "driven": off.driven, "opened": off.opened}
    held.update(function=function, awaiting=off.driven)
    own = find_held(wrapper)
    for internal in own:
        role = internal[1:].rstrip("_")
        if role in held:
            own[internal] = held[role]


def _write_prologue(parameters: Parameters, attributes: Any, names: Mapping[str, str]) -> Prologue:
    if attributes is None:
        return Prologue()
    if type(attributes) is dict:
        return Prologue(values=names["constant"])
    prologue = attributes.prologue(parameters, names) if isinstance(attributes, Prepared) else None
    asked = "{value} = {evaluate}({site}, {attributes}, {call})".format(call=call_of(parameters), **names)
    return prologue or Prologue((asked,), names["value"])


@lru_cache(maxsize=512)
def _choose_names(parameters: Parameters) -> dict[str, str]:
    """By role, what the wrapper of a function with these parameters holds, and its own variables, are called in it."""
    roles, tail = (*_HELD, *_BUILTINS, *_LOCALS), ""
    while any(name.startswith(f"_{role}{tail}") for name in parameters.names for role in roles):
        tail += "_"
    return {role: f"_{role}{tail}" for role in roles}


def _write_texts(names: Mapping[str, str], is_in_code: bool) -> Mapping[str, str]:
    """What stands for them in the wrapper's source."""
    if not is_in_code:
        return names
    # Python takes a call of this neither for one of a literal, of which it would warn, nor for one of a method.
    in_code = {role: f"(({_MARK!r} if 1 else 0).{names[role]} if 1 else 0)" for role in (*_HELD, *_BUILTINS)}
    return {**names, **in_code}


@lru_cache(maxsize=512)
def _compile_wrapper(
    kind: str, parameters: Parameters, has_stream: bool, prologue: Prologue, is_in_code: bool, free: tuple[str, ...],
    is_edit: bool,
) -> CodeType:  # fmt: skip
    """The wrapper's code by all that it depends on. `free`: names of a closure around it, which may not be its own.

    `is_edit`: its function was made in another class than is going to have it, and is told that one.
    """
    names = _write_texts(_choose_names(parameters), is_in_code)
    source = _source(kind, parameters, has_stream, prologue, names)
    if free:
        head, body = source.split("\n", 1)
        first = f"{names['own_class']}.cell_contents = __class__" if is_edit else f"if 0: {', '.join(free)}"
        source = "\n ".join([f"def around({', '.join(free)}):", head, f"  {first}", *body.split("\n")])
    tree = compile(source, _FILE, "exec", _ONLY_AST)
    _put_on_one_line(tree)
    code = compile(tree, _FILE, "exec")
    for _ in range(1 + bool(free)):
        code = next(const for const in code.co_consts if isinstance(const, CodeType))
    return code


def _put_on_one_line(node: Any) -> None:
    """In a traceback a wrapper is at the first line of its function, in that one's file."""
    if hasattr(node, "lineno"):
        node.lineno = node.end_lineno = 1
        node.col_offset = node.end_col_offset = 0
    for field in node._fields:
        for child in value if isinstance(value := getattr(node, field), list) else (value,):
            if hasattr(child, "_fields"):
                _put_on_one_line(child)


def _source(kind: str, parameters: Parameters, has_stream: bool, prologue: Prologue, names: Mapping[str, str]) -> str:
    """The wrapper, whose names but for its parameters and own variables are globals."""
    call, (statements, values) = call_of(parameters), prologue
    extra = f", {names['stream']}" if has_stream or values else ""
    extra += f", {values}" if values else ""
    inside = "".join(f"\n   {line}" for line in statements)
    before = "\n  {value} = None\n  if {is_on}({site}):".format(**names) + inside if statements else ""
    body = _BODIES[kind].format(call=call, extra=extra, inside=inside, before=before, **names)
    is_async = "async " if kind in (COROUTINE, ASYNC_GENERATOR) else ""
    parts = [*parameters.positional_only, *(["/"] if parameters.positional_only else []), *parameters.plain]
    if parameters.varargs or parameters.keyword_only:
        parts.append(f"*{parameters.varargs or ''}")
    parts += [*parameters.keyword_only, *([f"**{parameters.varkw}"] if parameters.varkw else [])]
    return f"{is_async}def wrapper({', '.join(parts)}):{body}"


def call_of(parameters: Parameters) -> str:
    """The arguments with which a wrapper calls its function: those of its own call."""
    parts = [positional_of(parameters), *(f"{name}={name}" for name in parameters.keyword_only)]
    return ", ".join([*filter(None, parts), *([f"**{parameters.varkw}"] if parameters.varkw else [])])


def positional_of(parameters: Parameters) -> str:
    """Those that it hands on by position."""
    parts = [*parameters.positional_only, *parameters.plain]
    return ", ".join([*parts, *([f"*{parameters.varargs}"] if parameters.varargs else [])])
