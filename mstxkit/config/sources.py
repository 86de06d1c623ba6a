"""Where a configuration comes from, read without meaning: values with the file and line of each key.

A source is a YAML or JSON file, a shell script or a list of arguments, an environment, a mapping or a framework's own
object. Which system it belongs to is for `adapters` to say.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ..errors import ConfigError
from ..store.documents import text_of
from . import documents, python_calls, shell
from .documents import Path
from .shell import Word
from .shell_commands import BranchChoice, read_choices

LARGEST_BYTES = 1 << 20
YAML_SUFFIXES, JSON_SUFFIXES, SHELL_SUFFIXES = (".yaml", ".yml"), (".json",), (".sh", ".bash", ".env")
PYTHON_SUFFIXES = (".py",)
# MindSpore's DynamicProfilerMonitor and torch_npu's dynamic_profile read this file; users name its folder.
DYNAMIC_FILE = "profiler_config.json"
ARGUMENTS, ENVIRONMENT, MAPPING = "<arguments>", "<environment>", "<mapping>"

__all__ = ["Path", "SourcePlace", "Source", "Word",
           "from_json", "from_mapping", "from_python", "from_shell", "from_yaml", "read_source"]  # fmt: skip


class SourcePlace(NamedTuple):
    """Where one value stands."""

    file: str  # as the user gave it, or "<arguments>", "<environment>", "<mapping>", "<Namespace>"
    line: int | None  # from 1; None where a source has no lines
    key: str  # its full name: `profiler_config.integrated.stage`, `--profile-ranks`


@dataclass(frozen=True)
class Source:
    """The content of one file, environment or object, without its meaning."""

    name: str  # file, or what stands for one: see `SourcePlace.file`
    values: Mapping[str, Any] = field(default_factory=dict)  # nested dicts, lists and scalars
    lines: Mapping[Path, int] = field(default_factory=dict)  # from 1, of a key by its path, list items by index
    words: tuple[Word, ...] = ()  # in order: of a list of arguments, or of a shell script without its comments
    variables: Mapping[str, Word] = field(default_factory=dict)  # by name: a script's assignments, or a process's

    def at(self, *path: str) -> Any:
        """The value under these keys; None where there is none."""
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def place(self, *path: str | int) -> SourcePlace:
        """Where the value under these keys stands; the nearest key above it that has a line."""
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), None)
        return SourcePlace(self.name, line, ".".join(str(key) for key in path))


def read_source(origin: Any, branches: Iterable[Any] = ()) -> Source:
    """Whatever a user configures with, as a source: a path (YAML, JSON, shell or Python; a folder that holds a
    `profiler_config.json`), a list of arguments, `os.environ`, a mapping (OmegaConf's too), or an object whose
    attributes are a framework's options. Raises: ConfigError where it is none of these, or cannot be read.
    `branches`: which branches of a script's conditions are meant: see `shell_commands`.
    """
    if isinstance(origin, Source):
        return origin
    if isinstance(origin, (str, os.PathLike)):
        return _from_file(os.fspath(origin), read_choices(branches))
    if origin is os.environ:
        return Source(ENVIRONMENT, variables={key: Word(value) for key, value in os.environ.items()})
    if isinstance(origin, Mapping) or hasattr(origin, "items"):
        return from_mapping(origin)
    if isinstance(origin, Sequence):
        return Source(ARGUMENTS, words=tuple(Word(str(word)) for word in origin))
    if hasattr(origin, "__dict__") and not isinstance(origin, type):
        public = {name: value for name, value in vars(origin).items() if not name.startswith("_")}
        return from_mapping(public, f"<{type(origin).__name__}>")
    raise ConfigError(f"{origin!r} is no configuration: give a file, a mapping, a list of arguments or os.environ")


def from_yaml(text: str, name: str) -> Source:
    """A YAML document. Nothing is constructed but plain values."""
    return Source(name, *documents.read_yaml(text, name))


def from_json(text: str, name: str) -> Source:
    """A JSON document."""
    return Source(name, *documents.read_json(text, name))


def from_shell(text: str, name: str, chosen: Iterable[BranchChoice] = ()) -> Source:
    """A shell script: the words of its commands, and what it assigns; in the branches that are chosen."""
    words, variables = shell.split_commands(text, chosen)
    return Source(name, words=tuple(words), variables=variables)


def from_python(text: str, name: str, chosen: Iterable[BranchChoice] = ()) -> Source:
    """A Python file: the one call of a profiler in it, or the one that is chosen by a line of it."""
    return Source(name, *python_calls.find_calls(text, name, chosen))


def from_mapping(mapping: Any, name: str = MAPPING) -> Source:
    """A mapping; one of texts alone may be an environment as well."""
    if type(mapping).__module__.partition(".")[0] == "omegaconf":  # its own items() raises where a value is missing
        from omegaconf import OmegaConf

        mapping = OmegaConf.to_container(mapping, resolve=False)
    values = {str(key): _as_plain(value) for key, value in mapping.items()}
    texts = {key: Word(value) for key, value in values.items() if isinstance(value, str)}
    return Source(name, values, variables=texts if len(texts) == len(values) else {})


def _as_plain(value: Any, depth: int = 0) -> Any:
    """Dicts, lists and scalars; OmegaConf's containers and tuples become these, anything else stays what it is."""
    if depth > documents.DEEPEST:
        raise ConfigError("the mapping is nested too deeply")
    if isinstance(value, (str, int, float, bool, bytes)) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(key): _as_plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [_as_plain(inner, depth + 1) for inner in value]
    return value


def _from_file(path: str, chosen: tuple[BranchChoice, ...]) -> Source:
    if os.path.isdir(path):
        path = os.path.join(path, DYNAMIC_FILE)
    text = text_of(path, ConfigError, LARGEST_BYTES)
    if path.endswith(SHELL_SUFFIXES):
        return from_shell(text, path, chosen)
    if path.endswith(PYTHON_SUFFIXES):
        return from_python(text, path, chosen)
    if chosen:
        scripts = ", ".join((*SHELL_SUFFIXES, *PYTHON_SUFFIXES))
        raise ConfigError(f"{path}: branches are chosen in a script, whose name ends in {scripts}")
    if path.endswith(YAML_SUFFIXES):
        return from_yaml(text, path)
    if path.endswith(JSON_SUFFIXES):
        return from_json(text, path)
    suffixes = ", ".join((*YAML_SUFFIXES, *JSON_SUFFIXES, *SHELL_SUFFIXES, *PYTHON_SUFFIXES))
    raise ConfigError(f"{path}: what kind of file this is must be seen from its name: it ends in one of {suffixes}")
