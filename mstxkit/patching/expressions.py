"""The small language in which a target says what to read of a call: parameters, plain attributes, indices and `len`.

`self.iteration`, `prompts.meta_info['global_steps']`, `len(batch)`, `args[-1]`, `'prefill'`, `4`; nothing else: no
operators, no calls, no `eval`. An expression becomes small frozen objects that pickle. Reading runs nobody's code, as
`engine/plain_paths.py` says: it cannot wake a lazy object, wait for a device, or raise what is not `Unreadable`.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from functools import partial
from typing import Any, Mapping, NamedTuple, Union

from ..engine.plain_paths import READERS, SCALARS, TO_ATTRIBUTE, TO_ITEM, TO_LENGTH, Unreadable
from ..errors import PatchError
from ..host.names import type_name

LONGEST, DEEPEST = 500, 20
_INT_BITS = 64


class ExpressionError(PatchError):
    """An expression is malformed, or names a parameter that the function lacks."""


class Argument(NamedTuple):
    """A parameter's value in this call: by keyword, else by position, else its default."""

    name: str
    position: int | None  # None for a keyword-only one
    is_keyword: bool  # may it be given by keyword?
    has_default: bool  # one that can travel (None, bool, int, float, str)
    default: Any


class Literal(NamedTuple):
    """An int or a str as it is."""

    value: int | str


class Rest(NamedTuple):
    """What `*args` takes: a tuple of the positional arguments from here on."""

    start: int


class KeywordRest(NamedTuple):
    """What `**kwargs` takes: a dict of the keyword arguments that no parameter of their name takes."""

    taken: frozenset[str]


Begin = Union[Argument, Literal, Rest, KeywordRest]


def _read_begin(begin: Begin, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if isinstance(begin, Argument):
        if begin.is_keyword and begin.name in kwargs:
            return kwargs[begin.name]
        if begin.position is not None and begin.position < len(args):
            return args[begin.position]
        if begin.has_default:
            return begin.default
        raise Unreadable(f"{begin.name} was not given, or is left at its default")
    if isinstance(begin, Literal):
        return begin.value
    if isinstance(begin, Rest):
        return args[begin.start :]
    return {name: value for name, value in kwargs.items() if type(name) is str and name not in begin.taken}


class Expression(NamedTuple):
    """A compiled expression. Pickles; calls of it may come from any thread."""

    text: str  # as written
    begin: Begin
    path: tuple[tuple[int, Any], ...] = ()  # steps from there, as `engine.stored` takes them

    @property
    def is_literal(self) -> bool:
        """Is it the same in all calls?"""
        return isinstance(self.begin, Literal) and not self.path

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | int | float | str | None:
        """The value in a call with these arguments: an exact bool, int, float or str; None where the program has None.
        Raises Unreadable: it is not there, is of another type, or reading it could run code.

        Cost: about 0.3 µs for a parameter, 0.6 µs more for each attribute, 0.3 µs for an item of a dict of five keys.
        """
        value = _read_begin(self.begin, args, kwargs)
        for kind, key in self.path:
            value = READERS[kind](value, key)
        if value is None or id(type(value)) in SCALARS:
            return value  # type: ignore[no-any-return]
        raise Unreadable(f"{self.text} is a {type_name(type(value))}, not a bool, int, float or str")


def compile_expression(text: str, signature: inspect.Signature | None) -> Expression:
    """The expression that `text` is for calls of a function with this signature; None: whatever parameters it has.
    Raises ExpressionError: it is malformed, or names a parameter that the function lacks.
    """
    tree, path = parse_expression(text), list[tuple[int, Any]]()
    while True:  # from the last step to the first
        if isinstance(tree, ast.Attribute):
            path.append((TO_ATTRIBUTE, sys.intern(tree.attr)))
            tree = tree.value
        elif isinstance(tree, ast.Subscript):
            path.append((TO_ITEM, _read_literal(tree.slice, text)))
            tree = tree.value
        elif (
            isinstance(tree, ast.Call) and ast.unparse(tree.func) == "len" and len(tree.args) == 1 and not tree.keywords
        ):
            path.append((TO_LENGTH, None))
            tree = tree.args[0]
        else:
            break
    if len(path) > DEEPEST:
        raise ExpressionError(f"{text!r}: more than {DEEPEST} levels deep")
    if isinstance(tree, ast.Name):
        begin = Rest(0) if signature is None else _find_parameter(tree.id, text, _list_arguments(signature))
        return Expression(text, begin, tuple(reversed(path)))
    return Expression(text, Literal(_read_literal(tree, text)), tuple(reversed(path)))


check = partial(compile_expression, signature=None)


def parse_expression(text: object) -> ast.expr:
    """The tree of a text. Raises ExpressionError where it is none, or too long."""
    if type(text) is not str:
        raise ExpressionError(f"an expression is a str, not {text!r}")
    if len(text) > LONGEST:
        raise ExpressionError(f"{text[:40]!r}...: an expression has at most {LONGEST} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as exc:
        raise ExpressionError(f"{text!r}: {getattr(exc, 'msg', None) or exc or type(exc).__name__}") from None


def _list_arguments(signature: inspect.Signature) -> dict[str, Begin]:
    """Every parameter, by name."""
    kinds, parameters = inspect.Parameter, list(signature.parameters.values())
    by_keyword = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    named = frozenset(parameter.name for parameter in parameters if parameter.kind in by_keyword)
    arguments: dict[str, Begin] = {}
    for position, parameter in enumerate(parameters):  # those that are given by position come first
        name, default = parameter.name, parameter.default
        if parameter.kind is kinds.VAR_POSITIONAL:
            arguments[name] = Rest(position)
        elif parameter.kind is kinds.VAR_KEYWORD:
            arguments[name] = KeywordRest(named)
        else:
            travels = default is None or id(type(default)) in SCALARS
            place = None if parameter.kind is kinds.KEYWORD_ONLY else position
            arguments[name] = Argument(name, place, name in named, travels, default if travels else None)
    return arguments


def _find_parameter(name: str, text: str, arguments: Mapping[str, Begin]) -> Begin:
    if name in arguments:
        return arguments[name]
    near = difflib.get_close_matches(name, list(arguments), n=1)
    advice = f"; did you mean {near[0]}? It has:" if near else ", it has:"
    raise ExpressionError(f"{text!r}: the function has no parameter {name}{advice} {', '.join(arguments) or 'none'}")


def _read_literal(tree: ast.AST, text: object) -> int | str:
    sign = 1
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub) and isinstance(tree.operand, ast.Constant):
        tree, sign = tree.operand, -1
        if type(tree.value) is not int:
            raise ExpressionError(f"{text!r}: only an int can be negative")
    value = tree.value if isinstance(tree, ast.Constant) else None
    if type(value) is str:
        return value
    if type(value) is int:
        if value.bit_length() >= _INT_BITS:
            raise ExpressionError(f"{text!r}: an int has at most {_INT_BITS} bits")
        return sign * value
    is_constant = isinstance(tree, ast.Constant)
    what = f"the {type(value).__name__} {value!r}" if is_constant else f"a {type(tree).__name__}"
    raise ExpressionError(f"{text!r}: {what} is no part of this language: {ALLOWED}")


ALLOWED = "parameters, .attribute, [index] with an int or a str, len(x), ints and strs"
