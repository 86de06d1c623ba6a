"""The small language in which a target says what to read of a call: parameters, plain attributes, indices and `len`.

`self.iteration`, `prompts.meta_info['global_steps']`, `len(batch)`, `args[-1]`, `'prefill'`, `4`; nothing else: no
operators, no calls, no `eval`. An expression becomes small frozen objects that pickle. Reading never runs code of
anybody's: no property, no `__getattr__`, no `__getitem__` or `__len__` but those of the exact built-in types. So it
cannot wake a lazy object, wait for a device, or raise what is not `Unreadable`.

(Names are compared as Python itself compares them at every `x.attr` and `f(name=…)` there: a str subclass with an
`__eq__` of its own, used as the name of an attribute or a keyword argument, is the one thing that would be asked.)
"""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Mapping, NamedTuple, Union

from ..errors import PatchError

LONGEST, DEEPEST = 500, 20
# Looking a key up compares it with others: all of them must be known to be harmless, which takes a look at each.
LARGEST_DICT = 256
_INT_BITS = 64

_MISSING = object()
# Of a type, past whatever its metaclass pretends.
_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_class_name = type.__dict__["__name__"].__get__
_plain_attribute = object.__getattribute__

# By id: hashing or comparing a type would ask its metaclass.
_SCALARS = {id(kind) for kind in (bool, int, float, str)}
_SIZED = {id(kind) for kind in (list, tuple, dict, str, bytes, set, frozenset, range)}
_HARMLESS_KEYS = _SCALARS | {id(bytes), id(type(None))}
_NO_DESCRIPTORS = _SCALARS | _SIZED | {id(type(None))}


class ExpressionError(PatchError):
    """An expression is malformed, or names a parameter that the function lacks."""


class Unreadable(Exception):
    """What an expression names cannot be read here and now without running somebody's code, or is not there."""


class Literal(NamedTuple):
    """An int or a str as it is."""

    value: int | str

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The literal."""
        return self.value


class Argument(NamedTuple):
    """A parameter's value in this call: by keyword, else by position, else its default."""

    name: str
    position: int | None  # None for a keyword-only one
    is_keyword: bool  # may it be given by keyword?
    has_default: bool  # one that can travel (None, bool, int, float, str)
    default: Any

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The argument."""
        name, position, is_keyword, has_default, default = self
        if is_keyword and name in kwargs:
            return kwargs[name]
        if position is not None and position < len(args):
            return args[position]
        if has_default:
            return default
        raise Unreadable(f"{name} was not given, or is left at its default")


class Rest(NamedTuple):
    """What `*args` takes: the positional arguments from here on."""

    start: int

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A tuple."""
        return args[self.start :]


class KeywordRest(NamedTuple):
    """What `**kwargs` takes: the keyword arguments that no parameter of their name takes."""

    taken: frozenset[str]

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A dict."""
        return {name: value for name, value in kwargs.items() if type(name) is str and name not in self.taken}


class Attribute(NamedTuple):
    """`owner.name`: a plain attribute."""

    owner: Node
    name: str

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What is stored there."""
        owner, name = self
        return plain_attribute(owner.read(args, kwargs), name)


class Item(NamedTuple):
    """`owner[key]` of an exact dict, list or tuple."""

    owner: Node
    key: int | str

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What is stored there."""
        node, key = self
        owner = node.read(args, kwargs)
        kind = type(owner)
        try:
            if kind is dict:
                _check_keys(owner)
                return owner[key]
            if (kind is list or kind is tuple) and type(key) is int:
                return owner[key]
        except LookupError:
            raise Unreadable(f"there is no [{key!r}]") from None
        raise Unreadable(f"[{key!r}] of a {_class_name(kind)}")


class Length(NamedTuple):
    """`len(owner)` of an exact built-in container."""

    owner: Node

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """An int."""
        owner = self.owner.read(args, kwargs)
        if id(type(owner)) not in _SIZED:
            raise Unreadable(f"len of a {_class_name(type(owner))}")
        try:
            return len(owner)
        except OverflowError:  # a range may be longer than a length can be
            raise Unreadable("it is longer than any len") from None


Node = Union[Literal, Argument, Rest, KeywordRest, Attribute, Item, Length]


class Expression(NamedTuple):
    """A compiled expression. Pickles; calls of it may come from any thread."""

    text: str  # as written
    root: Node

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool | int | float | str | None:
        """The value in a call with these arguments: an exact bool, int, float or str; None where the program has None.

        Raises:
            Unreadable: it is not there, is of another type, or reading it could run code.

        Cost: about 0.3 µs for a parameter, 0.6 µs more for each attribute, 0.3 µs for an item of a dict of five keys.
        """
        text, root = self
        value = root.read(args, kwargs)
        if value is None or id(type(value)) in _SCALARS:
            return value  # type: ignore[no-any-return]
        raise Unreadable(f"{text} is a {_class_name(type(value))}, not a bool, int, float or str")


def compiled(text: str, signature: inspect.Signature) -> Expression:
    """The expression that `text` is for calls of a function with this signature.

    Raises:
        ExpressionError: it is malformed, or names a parameter that the function lacks.
    """
    return Expression(text, _node(_parsed(text), text, _arguments(signature)))


def check(text: object) -> None:
    """Is `text` an expression, whatever the parameters are called?

    Raises:
        ExpressionError: it is not.
    """
    _node(_parsed(text), text, None)


def _parsed(text: object) -> ast.expr:
    if type(text) is not str:
        raise ExpressionError(f"an expression is a str, not {text!r}")
    if len(text) > LONGEST:
        raise ExpressionError(f"{text[:40]!r}...: an expression has at most {LONGEST} characters")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as exc:
        raise ExpressionError(f"{text!r}: {getattr(exc, 'msg', None) or exc or type(exc).__name__}") from None


def _arguments(signature: inspect.Signature) -> dict[str, Node]:
    """Every parameter, by name."""
    arguments: dict[str, Node] = {}
    position = 0
    kinds = inspect.Parameter
    by_keyword = (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    named = [parameter.name for parameter in signature.parameters.values() if parameter.kind in by_keyword]
    for name, parameter in signature.parameters.items():
        is_positional = parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        if parameter.kind is kinds.VAR_POSITIONAL:
            arguments[name] = Rest(position)
        elif parameter.kind is kinds.VAR_KEYWORD:
            arguments[name] = KeywordRest(frozenset(named))
        else:
            default = parameter.default
            travels = default is None or id(type(default)) in _SCALARS
            place = position if is_positional else None
            arguments[name] = Argument(name, place, name in named, travels, default if travels else None)
        position += is_positional
    return arguments


def _node(tree: ast.AST, text: object, arguments: Mapping[str, Node] | None, depth: int = 0) -> Node:
    """`arguments` None: any name is taken for a parameter."""
    if depth > DEEPEST:
        raise ExpressionError(f"{text!r}: more than {DEEPEST} levels deep")
    if isinstance(tree, ast.Name):
        return _named(tree.id, text, arguments)
    if isinstance(tree, ast.Attribute):
        return Attribute(_node(tree.value, text, arguments, depth + 1), sys.intern(tree.attr))
    if isinstance(tree, ast.Subscript):
        return Item(_node(tree.value, text, arguments, depth + 1), _literal(tree.slice, text))
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "len" and len(tree.args) == 1 and not tree.keywords:
        return Length(_node(tree.args[0], text, arguments, depth + 1))
    return Literal(_literal(tree, text))


def _named(name: str, text: object, arguments: Mapping[str, Node] | None) -> Node:
    if arguments is None:
        return Rest(0)
    if name in arguments:
        return arguments[name]
    near = difflib.get_close_matches(name, list(arguments), n=1)
    advice = f"; did you mean {near[0]}? It has:" if near else ", it has:"
    raise ExpressionError(f"{text!r}: the function has no parameter {name}{advice} {', '.join(arguments) or 'none'}")


def _literal(tree: ast.AST, text: object) -> int | str:
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


def plain_attribute(owner: Any, name: str) -> Any:
    """What is stored as this attribute: in the instance, in a slot, or as a plain value in its class.

    Raises:
        Unreadable: it is not stored there, or is what a property or another descriptor makes.
    """
    for cls in _mro(type(owner)):
        if name in _class_dict(cls):
            return _also_in_class(owner, name)
    return _in_instance(owner, name)


def _also_in_class(owner: Any, name: str) -> Any:
    kind = type(owner)
    held = _in_classes(kind, name)
    descriptor_names = ("__get__", "__set__", "__delete__")
    if id(type(held)) in _NO_DESCRIPTORS or all(_in_classes(type(held), n) is _MISSING for n in descriptor_names):
        return _in_instance(owner, name)
    if type(held) is MemberDescriptorType:
        try:
            return held.__get__(owner, kind)
        except (AttributeError, TypeError):
            raise Unreadable(f"{name} of a {_class_name(kind)} is not set") from None
    if _in_classes(type(held), "__set__") is _MISSING and _in_classes(type(held), "__delete__") is _MISSING:
        return _in_own_dict(owner, name)  # a method or a cached property: what the instance has itself goes before it
    raise Unreadable(f"{name} of a {_class_name(kind)} is a {_class_name(type(held))}, not a plain attribute")


def _in_classes(kind: type, name: str) -> Any:
    """What a class, or one that it is derived from, stores as this name."""
    for cls in _mro(kind):
        held = _class_dict(cls).get(name, _MISSING)
        if held is not _MISSING:
            return held
    return _MISSING


def _in_instance(owner: Any, name: str) -> Any:
    """With no descriptor of that name in its classes, this reads the instance, then them, and runs nothing."""
    try:
        return _plain_attribute(owner, name)
    except AttributeError:
        raise Unreadable(f"a {_class_name(type(owner))} has no plain attribute {name}") from None


def _in_own_dict(owner: Any, name: str) -> Any:
    kind = type(owner)
    entrance = _in_classes(kind, "__dict__")
    if type(entrance) is GetSetDescriptorType:
        try:
            own = entrance.__get__(owner, kind)
        except (AttributeError, TypeError):
            own = None
        if type(own) is dict and name in own:
            return own[name]
    raise Unreadable(f"{name} of a {_class_name(kind)} is made when it is asked for")


def _check_keys(held: dict[Any, Any]) -> None:
    if len(held) > LARGEST_DICT:
        raise Unreadable(f"a dict of more than {LARGEST_DICT} keys")
    try:
        for key in held:
            if type(key) is not str and id(type(key)) not in _HARMLESS_KEYS:
                raise Unreadable(f"a dict with a {_class_name(type(key))} among its keys")
    except RuntimeError:
        raise Unreadable("a dict that another thread is changing") from None
