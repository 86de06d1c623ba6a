"""Yes or no from a call's own arguments: expressions, compared with an int or a str, joined by `not`, `and`, `or`.

`forward_batch.forward_mode._name_ == 'IDLE' or self.is_draft_worker`; what is compared is read as `expressions.py`
reads it, so that no code of anybody's runs, no tensor is read and no device is waited for.
"""

from __future__ import annotations

import ast
import inspect
import operator
from functools import partial
from typing import Any, Callable, Mapping

from ..engine.plain_paths import Unreadable
from . import expressions
from .expressions import Expression, ExpressionError

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


# Called with a call's arguments: does it hold in that call? Raises Unreadable.
Condition = Callable[[tuple[Any, ...], Mapping[str, Any]], bool]


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


def compile_condition(text: str, signature: inspect.Signature | None) -> Condition:
    """The condition that `text` is for calls of a function with this signature; None: whatever parameters it has.
    Raises ExpressionError: it is malformed, or names a parameter that the function lacks.
    """
    if type(text) is not str or len(text) > expressions.LONGEST:
        raise ExpressionError(f"a condition is a str of at most {expressions.LONGEST} characters, not {text!r:.60}")
    expression = partial(expressions.compile_expression, signature=signature)
    return _read_condition(expressions.parse_expression(text), expression)


check = partial(compile_condition, signature=None)


def _read_condition(tree: ast.expr, expression: Callable[[str], Expression], depth: int = 0) -> Condition:
    if depth > expressions.DEEPEST:
        raise ExpressionError(f"a condition of more than {expressions.DEEPEST} levels")
    if isinstance(tree, ast.BoolOp):
        parts = tuple(_read_condition(part, expression, depth + 1) for part in tree.values)
        return partial(_join, "and" if isinstance(tree.op, ast.And) else "or", parts)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return partial(_join, "not", (_read_condition(tree.operand, expression, depth + 1),))
    if isinstance(tree, ast.Compare):
        compare: Any = _COMPARE.get(type(tree.ops[0]))
        literal: Any = getattr(tree.comparators[0], "value", None)
        if len(tree.ops) != 1 or compare is None or type(literal) not in (int, str):
            what = "an expression is compared with one int or str, by one of == != < <= > >="
            raise ExpressionError(f"{ast.unparse(tree)!r}: {what}")
        return partial(_compare, expression(ast.unparse(tree.left)), compare, literal)
    return partial(_join, "and", (expression(ast.unparse(tree)),))  # is it anything but None, 0, False or empty?
