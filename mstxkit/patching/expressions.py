"""The small language in which a target says what to read of a call: parameters, plain attributes, indices and `len`.

`self.iteration`, `prompts.meta_info['global_steps']`, `len(batch)`, `args[-1]`, `'prefill'`, `4`; nothing else: no
operators, no calls, no `eval`. A condition says yes or no: expressions, compared with an int or a str, joined by `not`,
`and`, `or`: `forward_batch.forward_mode._name_ == 'IDLE' or self.is_draft_worker`.

Both become what pickles. Reading runs nobody's code, as `engine/plain_paths.py` says: it cannot wake a lazy object,
wait for a device, or raise what is not `Unreadable`.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
import sys
from functools import partial
from typing import Any, Callable, Mapping, NamedTuple, Union

from ..engine.plain_paths import READERS, SCALARS, TO_ATTRIBUTE, TO_ITEM, TO_LENGTH, Unreadable
from ..errors import PatchError
from ..host.names import type_name

LONGEST, DEEPEST = 500, 20
_INT_BITS = 64
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
ALLOWED = "parameters, .attribute, [index] with an int or a str, len(x), ints and strs"


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
    return _read_tree(_parse_text(text), text, signature)


def _read_tree(tree: ast.expr, text: str, signature: inspect.Signature | None) -> Expression:
    path: list[tuple[int, Any]] = []
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
        begin = Rest(0) if signature is None else _find_parameter(tree.id, text, signature)
        return Expression(text, begin, tuple(reversed(path)))
    return Expression(text, Literal(_read_literal(tree, text)), tuple(reversed(path)))


def _parse_text(text: object) -> ast.expr:
    if type(text) is not str:
        raise ExpressionError(f"an expression is a str, not {text!r}")
    if len(text) > LONGEST:
        raise ExpressionError(f"{text[:40]!r}...: an expression has at most {LONGEST} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as exc:
        raise ExpressionError(f"{text!r}: {getattr(exc, 'msg', None) or exc or type(exc).__name__}") from None


def _find_parameter(name: str, text: str, signature: inspect.Signature) -> Begin:
    kinds, parameters = inspect.Parameter, list(signature.parameters.values())
    by_keyword = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    named = frozenset(parameter.name for parameter in parameters if parameter.kind in by_keyword)
    for position, parameter in enumerate(parameters):  # those that are given by position come first
        if parameter.name != name:
            continue
        if parameter.kind is kinds.VAR_POSITIONAL:
            return Rest(position)
        if parameter.kind is kinds.VAR_KEYWORD:
            return KeywordRest(named)
        default = parameter.default
        travels = default is None or id(type(default)) in SCALARS
        place = None if parameter.kind is kinds.KEYWORD_ONLY else position
        return Argument(name, place, name in named, travels, default if travels else None)
    near = difflib.get_close_matches(name, list(signature.parameters), n=1)
    advice = f"; did you mean {near[0]}? It has:" if near else ", it has:"
    names = ", ".join(signature.parameters) or "none"
    raise ExpressionError(f"{text!r}: the function has no parameter {name}{advice} {names}")


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


# Called with a call's arguments: does it hold in that call? Raises Unreadable.
Condition = Callable[[tuple[Any, ...], Mapping[str, Any]], bool]


def compile_condition(text: str, signature: inspect.Signature | None) -> Condition:
    """The condition that `text` is for calls of a function with this signature; None: whatever parameters it has.
    Raises ExpressionError: it is malformed, or names a parameter that the function lacks.
    """
    if type(text) is not str or len(text) > LONGEST:
        raise ExpressionError(f"a condition is a str of at most {LONGEST} characters, not {text!r:.60}")
    return _read_condition(_parse_text(text), signature)


def _read_condition(tree: ast.expr, signature: inspect.Signature | None, depth: int = 0) -> Condition:
    if depth > DEEPEST:
        raise ExpressionError(f"a condition of more than {DEEPEST} levels")
    if isinstance(tree, ast.BoolOp):
        parts = tuple(_read_condition(part, signature, depth + 1) for part in tree.values)
        return partial(_join, "and" if isinstance(tree.op, ast.And) else "or", parts)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return partial(_join, "not", (_read_condition(tree.operand, signature, depth + 1),))
    if isinstance(tree, ast.Compare):
        compare: Any = _COMPARE.get(type(tree.ops[0]))
        literal: Any = getattr(tree.comparators[0], "value", None)
        if len(tree.ops) != 1 or compare is None or type(literal) not in (int, str):
            what = "an expression is compared with one int or str, by one of == != < <= > >="
            raise ExpressionError(f"{ast.unparse(tree)!r}: {what}")
        return partial(_compare, _read_tree(tree.left, ast.unparse(tree.left), signature), compare, literal)
    # Is it anything but None, 0, False or empty?
    return partial(_join, "and", (_read_tree(tree, ast.unparse(tree), signature),))


def _compare(
    value: Expression, compare: Callable[[Any, Any], Any], literal: int | str, args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> bool:  # fmt: skip
    """An expression against a literal."""
    actual = value(args, kwargs)
    try:
        return bool(compare(actual, literal))
    except TypeError:
        raise Unreadable(f"{value.text} is {actual!r}: it has no order with {literal!r}") from None


def _join(
    word: str, parts: tuple[Condition | Expression, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """`not`, `and`, `or` of others; read from the left as far as needed."""
    if word == "not":
        return not parts[0](args, kwargs)
    answers = (part(args, kwargs) for part in parts)
    return all(answers) if word == "and" else any(answers)


check = partial(compile_expression, signature=None)
check_condition = partial(compile_condition, signature=None)
