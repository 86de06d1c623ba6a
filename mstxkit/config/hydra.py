"""What Hydra and OmegaConf add to YAML, as far as verl's configuration uses it: overrides and interpolations.

`a.b=1` on a command line sets a key; `${a.b}`, `${.sibling}`, `${oc.select:a.b,default}` and `${oc.env:NAME,default}`
stand for another value. Only what is asked for is resolved: a file may use resolvers elsewhere that nobody here knows.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ..errors import ConfigError, Problem
from .documents import read_scalar
from .shell import list_unknown, require_text
from .sources import Path, Source

_OVERRIDE = re.compile(r"(?:\+{0,2})([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
_MISSING = object()
_DEEPEST, _MOST = 30, 10_000


def from_overrides(source: Source, roots: Iterable[str]) -> Source:
    """The values that a command line sets below these roots (`global_profiler`); what else it says is left out.
    Raises: ConfigError where one of them is in doubt.
    """
    wanted = tuple(roots)
    values: dict[str, Any] = {}
    lines: dict[Path, int] = {}
    problems: list[Problem] = []
    for word in source.words:
        match = _OVERRIDE.fullmatch(word.text)
        path = match[1].split(".") if match else [""]
        if match and path[0] in wanted:
            problems += list_unknown(word, source.name)
            put_value(values, path, read_scalar(match[2]))
            lines.update({} if word.line is None else {tuple(path): word.line})
    if problems:
        raise ConfigError.of(problems)
    return Source(source.name, values, lines, source.words, source.variables)


def put_value(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Put a value under these keys; what is no mapping on the way to it is replaced by one."""
    for name in path[:-1]:
        below = values.setdefault(name, {})
        values[name] = values = below if isinstance(below, dict) else {}
    values[path[-1]] = value


def resolve_source(source: Source, sections: Iterable[tuple[str, ...]]) -> Source:
    """The same source with these sections alone, and every interpolation in them replaced by what it stands for.
    Raises: ConfigError where one points to nothing, to itself, or uses a resolver that is not known here.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for section in sections:
        content = source.at(*section)
        if content is None:
            continue
        try:
            put_value(values, section, _Resolving(source).value(content, section))
        except _Unresolved as exc:
            path, value, why = exc.args
            problems.append(Problem(*source.place(*path), value, why))
    if problems:
        raise ConfigError.of(problems)
    return Source(source.name, values, source.lines, source.words, source.variables)


class _Unresolved(Exception):
    """Where it stands, what stands there, and why that stands for nothing."""


@dataclass
class _Resolving:
    source: Source
    depth: int = 0
    left: int = _MOST

    def value(self, value: Any, path: Path) -> Any:
        if isinstance(value, Mapping):
            return {key: self.value(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, (*path, index)) for index, inner in enumerate(value)]
        return self.text(value, path) if isinstance(value, str) and "${" in value else value

    def text(self, text: str, path: Path) -> Any:
        """A text's interpolations; its only one keeps the type of what it stands for."""
        self.depth += 1
        self.left -= 1
        if self.left < 0:
            raise _Unresolved(path, text, "interpolations of too many others")
        if self.depth > _DEEPEST:
            raise _Unresolved(path, text, "an interpolation that leads back to itself")
        parts: list[Any] = []
        position = 0
        while (start := text.find("${", position)) >= 0:
            end = _find_end(text, start)
            if end is None:
                raise _Unresolved(path, text, "a ${ without its }")
            parts += [text[position:start], self.meant(text[start + 2 : end], path, text)]
            position = end + 1
        self.depth -= 1
        parts.append(text[position:])
        filled = [part for part in parts if part != ""]
        return filled[0] if len(filled) == 1 else "".join(str(part) for part in parts)

    def meant(self, inner: str, path: Path, text: str) -> Any:
        name, colon, rest = inner.partition(":")
        if not colon or "${" in name:
            target = self.selected(inner, path)
            if target is _MISSING:
                raise _Unresolved(path, text, f"there is no {inner.strip()}")
            return target
        arguments = _split_arguments(rest)
        default: Any = _MISSING
        if len(arguments) > 1:  # it may be an interpolation itself
            word = arguments[1].strip()
            default = self.text(word, path) if "${" in word else read_scalar(word)
        if name.strip() == "oc.select":
            target = self.selected(arguments[0], path)
            return (None if default is _MISSING else default) if target is _MISSING else target
        if name.strip() == "oc.env":  # of the script that holds the command, else of this process
            variable = arguments[0].strip()
            held = self.source.variables.get(variable)
            value = os.environ.get(variable) if held is None else require_text(held, self.source.name)
            if value is None and default is _MISSING:
                why = f"the environment variable {variable} is not set, and there is no default"
                raise _Unresolved(path, text, why)
            value = default if value is None else value
            return None if value is None else str(value)
        raise _Unresolved(path, text, f"the resolver {name.strip()} is not known here; give the resolved configuration")

    def selected(self, key: str, path: Path) -> Any:
        """The value under a key: `.x` beside this one, `..x` one above; `_MISSING` where there is none."""
        key = key.strip()
        dots = len(key) - len(key.lstrip("."))
        base: Path = path[: max(len(path) - dots, 0)] if dots else ()
        target: Any = self.source.values
        whole: Path = (*base, *(part for part in re.split(r"[.\[\]]+", key[dots:]) if part))
        for part in whole:
            if isinstance(target, list) and str(part).isdecimal() and int(part) < len(target):
                target = target[int(part)]
            elif isinstance(target, Mapping) and part in target:
                target = target[str(part)]
            else:
                return _MISSING
        return _MISSING if target == "???" else self.value(target, whole)


def _find_end(text: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(text)):
        if text.startswith("${", position):
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return None


def _split_arguments(text: str) -> list[str]:
    """A resolver's arguments: split at its first comma outside brackets and nested interpolations."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0:
            return [text[:position], text[position + 1 :]]
    return [text]
