"""YAML and JSON as plain values, with the line of every key and list item.

YAML is composed, never constructed: a tag can do nothing but be refused, and what aliases stand for is limited.
"""

from __future__ import annotations

import json as _json
from dataclasses import dataclass, field
from typing import Any, Union

from ..errors import ConfigError

Path = tuple[Union[str, int], ...]
DEEPEST, MOST_VALUES = 60, 50_000
_TAG = "tag:yaml.org,2002:"


def read_yaml(text: str, name: str) -> tuple[dict[str, Any], dict[Path, int]]:
    """Values and lines of a YAML document whose top is a mapping.
    Raises: ConfigError: it is no YAML, its top is no mapping, a key is given twice, a tag is used, it is too large.
    """
    root = compose_yaml(text, name)
    if root is None:
        return {}, {}
    walk = _NodeWalk(name)
    values = walk.value(root, ())
    return _check_mapping(values, name), walk.lines


def read_json(text: str, name: str, first_line: int = 1) -> tuple[dict[str, Any], dict[Path, int]]:
    """Values and lines of a JSON document whose top is an object.
    Raises: ConfigError where it is no JSON, its top is no object, or a key is given twice.
    """
    try:
        values = _json.loads(text, object_pairs_hook=_without_doubles)
    except _json.JSONDecodeError as exc:
        raise ConfigError(f"{name}:{first_line + exc.lineno - 1}: not JSON: {exc.msg}") from None
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{name}:{first_line}: not JSON: {exc}") from None
    # JSON is YAML where its tabs, which are outside its texts, are blanks: that is where lines are from.
    walk = _NodeWalk(name, first_line)
    try:
        walk.value(compose_yaml(text.replace("\t", " "), name), ())
    except ConfigError:  # a text that YAML reads otherwise: values are known all the same
        walk.lines.clear()
    return _check_mapping(values, name), walk.lines


def read_scalar(text: str) -> Any:
    """A value as YAML reads it in one line (`[0, 1]`, `null`, `True`); the text itself where it is no YAML."""
    try:
        root = compose_yaml(text, "")
        if root is None:
            return text or None
        return _NodeWalk("").value(root, ())
    except ConfigError:
        return text


@dataclass
class _NodeWalk:
    """One pass over a document's nodes."""

    name: str
    first_line: int = 1
    lines: dict[Path, int] = field(default_factory=dict)
    left: int = MOST_VALUES
    merging: list[Any] = field(default_factory=list)

    def value(self, node: Any, path: Path) -> Any:
        self.left -= 1
        if self.left < 0 or len(path) + len(self.merging) > DEEPEST:
            raise self.error(node, "too large, or nested too deeply")
        if path:
            self.lines.setdefault(path, self.line(node))
        if node.id == "mapping":
            return self.mapping(node, path)
        if node.id == "sequence":
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        return self.scalar(node)

    def mapping(self, node: Any, path: Path) -> dict[str, Any]:
        """A mapping; merged ones (`<<`) give what it does not."""
        if node.tag != f"{_TAG}map":
            raise self.error(node, f"a tag is not allowed here: {node.tag}")
        values: dict[str, Any] = {}
        merged: list[tuple[Any, Any]] = []
        for key, value in node.value:
            below = (*path, key.value) if key.id == "scalar" else path
            if key.tag == f"{_TAG}merge":
                merged += [(key, parent) for parent in (value.value if value.id == "sequence" else [value])]
            elif key.id != "scalar":
                raise self.error(key, "the name of a key is needed")
            elif key.value in values:
                name = ".".join(str(part) for part in below)
                raise self.error(key, f"{name}: given twice, first in line {self.lines[below]}")
            else:
                self.lines.setdefault(below, self.line(key))  # what is merged comes last
                values[key.value] = self.value(value, below)
        for key, parent in merged:
            if parent in self.merging:
                raise self.error(key, "a mapping merges itself: << takes another one, without this one in it")
            self.merging.append(parent)
            inherited = self.value(parent, path)
            self.merging.pop()
            values = {**inherited, **values} if isinstance(inherited, dict) else values
        return values

    def scalar(self, node: Any) -> Any:
        """A text, number, flag or None, as YAML 1.1 has them."""
        from yaml.constructor import ConstructorError, SafeConstructor

        kind = node.tag[len(_TAG) :] if node.tag.startswith(_TAG) else ""
        if kind not in ("str", "int", "float", "bool", "null", "timestamp", "value"):
            raise self.error(node, f"a tag is not allowed here: {node.tag}")
        if kind in ("str", "timestamp", "value"):
            return str(node.value)
        try:
            return SafeConstructor().construct_object(node)
        except (ConstructorError, ValueError):
            raise self.error(node, f"{node.value!r} is no {kind}") from None

    def line(self, node: Any) -> int:
        return int(node.start_mark.line) + self.first_line

    def error(self, node: Any, problem: str) -> ConfigError:
        return ConfigError(f"{self.name}:{self.line(node)}: {problem}")


def compose_yaml(text: str, name: str) -> Any:
    """The root node of a YAML document; None of an empty one. Raises: ConfigError: it is no YAML."""
    import yaml as pyyaml

    try:
        return pyyaml.compose(text, Loader=pyyaml.SafeLoader)
    except pyyaml.MarkedYAMLError as exc:
        line = getattr(exc.problem_mark or exc.context_mark, "line", 0) + 1
        raise ConfigError(f"{name}:{line}: not YAML: {exc.problem or exc.context}") from None
    except pyyaml.YAMLError as exc:  # a character that YAML does not allow
        line = text.count("\n", 0, getattr(exc, "position", 0)) + 1
        raise ConfigError(f"{name}:{line}: not YAML: {getattr(exc, 'reason', exc)}") from None
    except RecursionError:
        raise ConfigError(f"{name}:1: not YAML: nested too deeply") from None


def _check_mapping(values: Any, name: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ConfigError(f"{name}:1: a configuration is a mapping of keys to values, not {type(values).__name__}")
    return values


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        double = next(key for key in values if sum(other == key for other, _ in pairs) > 1)
        raise ValueError(f"{double!r} is given twice")
    return values
