"""What Hydra and OmegaConf add to YAML, as far as verl's configuration uses it: overrides and interpolations.

`a.b=1` on a command line sets a key; `${a.b}`, `${.sibling}`, `${oc.select:a.b,default}` and `${oc.env:NAME,default}`
stand for another value. Only what is asked for is resolved: a file may use resolvers elsewhere that nobody here knows.
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterable, Mapping

from ..errors import ConfigError, Problem
from .documents import scalar
from .sources import Path, Source, Word

_OVERRIDE = re.compile(r"(?:\+{0,2})([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
_MISSING = object()
_DEEPEST, _MOST = 30, 10_000


def from_overrides(source: Source, roots: Iterable[str]) -> Source:
    """The values that a command line sets below these roots (`global_profiler`); what else it says is left out."""
    wanted = tuple(roots)
    values: dict[str, Any] = {}
    lines: dict[Path, int] = {}
    for word in source.words:
        match = _OVERRIDE.fullmatch(word.text)
        if match and match[1].split(".")[0] in wanted:
            _set(values, lines, match[1].split("."), scalar(match[2]), word)
    return Source(source.name, values, lines, source.words, source.variables)


def _set(values: dict[str, Any], lines: dict[Path, int], path: list[str], value: Any, word: Word) -> None:
    for name in path[:-1]:
        below = values.setdefault(name, {})
        values[name] = values = below if isinstance(below, dict) else {}
    values[path[-1]] = value
    if word.line is not None:
        lines[tuple(path)] = word.line


def resolved(source: Source, sections: Iterable[tuple[str, ...]]) -> Source:
    """The same source with these sections alone, and every interpolation in them replaced by what it stands for.

    Raises:
        ConfigError: one points to nothing, to itself, or uses a resolver that is not known here.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for section in sections:
        found = source.at(*section)
        if found is None:
            continue
        try:
            value = _Resolving(source).value(found, section)
        except _Unresolved as exc:
            problems.append(Problem(*source.place(*exc.path), exc.value, exc.why))
            continue
        below = values
        for name in section[:-1]:
            below = below.setdefault(name, {})
        below[section[-1]] = value
    if problems:
        raise ConfigError.of(problems)
    return Source(source.name, values, source.lines, source.words, source.variables)


class _Unresolved(Exception):
    def __init__(self, path: Path, value: str, why: str) -> None:
        super().__init__(why)
        self.path, self.value, self.why = path, value, why


class _Resolving:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.depth, self.left = 0, _MOST

    def value(self, value: Any, path: Path) -> Any:
        """A value with everything below it resolved."""
        if isinstance(value, Mapping):
            return {key: self.value(one, (*path, key)) for key, one in value.items()}
        if isinstance(value, list):
            return [self.value(one, (*path, index)) for index, one in enumerate(value)]
        return self.text(value, path) if isinstance(value, str) and "${" in value else value

    def text(self, text: str, path: Path) -> Any:
        """A text's interpolations; its only one keeps the type of what it stands for."""
        self.depth += 1
        self.left -= 1
        if self.depth > _DEEPEST or self.left < 0:
            why = (
                "an interpolation that leads back to itself" if self.left >= 0 else "interpolations of too many others"
            )
            raise _Unresolved(path, text, why)
        parts: list[Any] = []
        position = 0
        while (start := text.find("${", position)) >= 0:
            end = _end(text, start)
            if end is None:
                raise _Unresolved(path, text, "a ${ without its }")
            parts += [text[position:start], self.meant(text[start + 2 : end], path, text)]
            position = end + 1
        self.depth -= 1
        parts.append(text[position:])
        filled = [part for part in parts if part != ""]
        return filled[0] if len(filled) == 1 else "".join(str(part) for part in parts)

    def meant(self, inner: str, path: Path, text: str) -> Any:
        """What stands between `${` and `}`."""
        name, colon, rest = inner.partition(":")
        if not colon or "${" in name:
            found = self.selected(inner, path)
            if found is _MISSING:
                raise _Unresolved(path, text, f"there is no {inner.strip()}")
            return found
        arguments = _arguments(rest)
        default = self.default(arguments[1], path) if len(arguments) > 1 else _MISSING
        if name.strip() == "oc.select":
            found = self.selected(arguments[0], path)
            return (None if default is _MISSING else default) if found is _MISSING else found
        if name.strip() == "oc.env":
            return self.variable(arguments[0].strip(), default, path, text)
        raise _Unresolved(path, text, f"the resolver {name.strip()} is not known here; give the resolved configuration")

    def default(self, text: str, path: Path) -> Any:
        """A resolver's default, which may be an interpolation itself."""
        return self.text(text.strip(), path) if "${" in text else scalar(text.strip())

    def selected(self, key: str, path: Path) -> Any:
        """The value under a key: `.x` beside this one, `..x` one above; `_MISSING` where there is none."""
        key = key.strip()
        dots = len(key) - len(key.lstrip("."))
        base: Path = path[: max(len(path) - dots, 0)] if dots else ()
        found: Any = self.source.values
        whole: Path = (*base, *(part for part in re.split(r"[.\[\]]+", key[dots:]) if part))
        for part in whole:
            if isinstance(found, list) and str(part).isdecimal() and int(part) < len(found):
                found = found[int(part)]
            elif isinstance(found, Mapping) and part in found:
                found = found[str(part)]
            else:
                return _MISSING
        return _MISSING if found == "???" else self.value(found, whole)

    def variable(self, name: str, default: Any, path: Path, text: str) -> Any:
        """An environment variable: of the script that holds the command, else of this process."""
        held = self.source.variables.get(name)
        value = os.environ.get(name) if held is None else held.text
        if value is None and default is _MISSING:
            raise _Unresolved(path, text, f"the environment variable {name} is not set, and there is no default")
        return (None if default is None else str(default)) if value is None else value


def _end(text: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(text)):
        if text.startswith("${", position):
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return None


def _arguments(text: str) -> list[str]:
    """A resolver's arguments: split at its first comma outside brackets and nested interpolations."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0:
            return [text[:position], text[position + 1 :]]
    return [text]
