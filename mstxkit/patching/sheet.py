"""A YAML file read as nodes that know their lines; all that is wrong in it is raised at once.

Nothing is constructed from the nodes: a tag can do nothing, and an alias that stands for a lot costs nothing until it
is looked at. How much is looked at is limited by who reads.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Iterable

from ..config import documents
from ..errors import ConfigError, PatchError
from ..store.documents import text_of

LARGEST_BYTES = 1 << 20
MOST_PROBLEMS = 50
YAML_SUFFIXES = (".yaml", ".yml")
_TAG = "tag:yaml.org,2002:"
_KINDS = {"mapping": "a mapping", "sequence": "a list", "scalar": "a text"}
_TAGS = {
    "mapping": ("map",), "sequence": ("seq",), "scalar": ("str", "int", "float", "bool", "null", "timestamp", "value"),
}  # fmt: skip


class Sheet:
    """What is wrong in one file, and how its nodes are read. What cannot be read is noted, and is None or left out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[tuple[int, str]] = []

    def wrong(self, node: Any, problem: str) -> None:
        """Note one problem at a node of the file."""
        self.problems.append((node.start_mark.line + 1, problem))

    def stop_if_wrong(self) -> None:
        """Raise all that was noted, by line."""
        problems = sorted(set(self.problems))
        if not problems:
            return
        lines = [f"{self.name}:{line}: {problem}" for line, problem in problems[:MOST_PROBLEMS]]
        more = [f"and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
        raise PatchError("\n".join([*lines, *more]))

    def entries(self, node: Any, where: str, most: int) -> dict[str, tuple[Any, Any]]:
        """What a mapping holds: name to the nodes of name and value."""
        if not self.is_a("mapping", node, where):
            return {}
        entries: dict[str, tuple[Any, Any]] = {}
        for key, value in node.value[:most]:
            if not self.is_a("scalar", key, name_field(where, "the name of a field")):
                continue
            if key.value in entries:
                first = entries[key.value][0].start_mark.line + 1
                self.wrong(key, f"{name_field(where, key.value)}: given twice, first in line {first}")
            else:
                entries[key.value] = (key, value)
        if len(node.value) > most:
            self.wrong(node, f"{where}: more than {most} entries")
        return entries

    def items(self, node: Any, where: str, most: int) -> list[Any]:
        """The nodes of a list."""
        if not self.is_a("sequence", node, where):
            return []
        if len(node.value) > most:
            self.wrong(node, f"{where}: more than {most} entries")
        return list(node.value[:most])

    def is_a(self, kind: str, node: Any, where: str) -> bool:
        """Is this node a mapping, a sequence or a scalar, without a tag of its own?"""
        if node.id != kind:
            text = "nothing" if is_null(node) else repr(node.value)
            given_kind = text if node.id == "scalar" else _KINDS[node.id]
            self.wrong(node, f"{where or 'the file'}: {_KINDS[kind]} is needed, not {given_kind}")
        elif node.tag[len(_TAG) :] not in _TAGS[kind] or not node.tag.startswith(_TAG):
            self.wrong(node, f"{where or 'the file'}: a tag is not allowed here: {node.tag}")
        else:
            return True
        return False

    def text(self, node: Any, where: str) -> str | None:
        """A text, or what can be taken for one; None for null, and where it is neither."""
        if not self.is_a("scalar", node, where) or is_null(node):
            return None
        if node.tag == f"{_TAG}bool":
            self.wrong(node, f"{where}={node.value}: YAML takes it for true or false; put it into quotes")
            return None
        if not node.value.strip():
            self.wrong(node, f"{where}: empty")
            return None
        return str(node.value)

    def flag(self, node: Any, where: str) -> bool | None:
        """True or false."""
        if self.is_a("scalar", node, where) and node.tag == f"{_TAG}bool":
            return str(node.value).lower() in ("true", "yes", "on")
        if node.id == "scalar" and not is_null(node):
            self.wrong(node, f"{where}={node.value!r}: choose one of true, false")
        return None

    def number(self, node: Any, where: str) -> int | None:
        """An int above 0."""
        if not self.is_a("scalar", node, where) or is_null(node):
            return None
        if not re.fullmatch(r"[1-9][0-9]{0,8}", node.value) or node.tag != f"{_TAG}int":
            self.wrong(node, f"{where}={node.value!r}: an int from 1 to 999999999 is needed")
            return None
        return int(node.value)


def compose_file(name: str) -> Any:
    """The root node of a file. Raises PatchError: it cannot be read, is no YAML, or empty."""
    if not name.endswith(YAML_SUFFIXES):
        raise PatchError(f"{name}: a file of targets ends in .yaml; single targets go into a list: targets=[{name!r}]")
    try:
        root = documents.compose_yaml(text_of(name, PatchError, LARGEST_BYTES), name)
    except ImportError:
        raise PatchError(f"{name}: to read it, install PyYAML: pip install pyyaml") from None
    except ConfigError as exc:
        raise PatchError(str(exc)) from None
    if root is None:
        raise PatchError(f"{name}:1: the file is empty: it needs targets")
    return root


def name_field(where: str, name: str) -> str:
    """What a field of this name is called in messages."""
    return f"{where}.{name}" if where else name


def suggest_nearest(name: str, allowed: Iterable[str], intro: str = "allowed are") -> str:
    """What to say besides of a name that is not allowed."""
    names = list(allowed)
    near = difflib.get_close_matches(name, names, n=1)
    advice = f" did you mean {near[0]}?" if near else ""
    return f":{advice} {intro} {', '.join(names)}"


def is_null(node: Any) -> bool:
    """Is this a scalar that says nothing?"""
    return bool(node.tag == f"{_TAG}null")
