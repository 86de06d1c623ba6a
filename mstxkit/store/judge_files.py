"""`verdicts/<who>.<life>.jsonl`: each life of a judge writes a file of its own, and a later life's word counts.

A judge that was cut off, or that another one has replaced, may go on. What it says after a later life of the same name
has begun counts for nothing: that one's first line says how long the files before it were. No clock is asked.
"""

from __future__ import annotations

import json
import re
from typing import Iterable, Mapping, NamedTuple

from . import documents, layout
from .values import table_of

_NAME = re.compile(r"(.+)\.(\d{1,9})\.jsonl", re.DOTALL | re.ASCII)
_FENCE = "before"


class LifeName(NamedTuple):
    """Whose file it is, and of which life; without a number it is of none, or of the first one."""

    who: str
    life: int

    @property
    def file(self) -> str:
        """The name of it."""
        return f"{self.who}.{self.life:04d}{layout.VERDICTS_SUFFIX}"


def life_of(name: str) -> LifeName:
    """Of the name of a file of verdicts."""
    match = _NAME.fullmatch(name)
    return LifeName(match[1], int(match[2])) if match else LifeName(name[: -len(layout.VERDICTS_SUFFIX)], 0)


def fence(sizes: Mapping[str, int]) -> bytes:
    """The first line of a life: of the files before it so many bytes count."""
    return json.dumps({_FENCE: dict(sizes)}).encode() + b"\n"


def in_order(contents: Mapping[str, bytes]) -> Iterable[tuple[LifeName, bytes]]:
    """What counts of each file, a judge's lives one after the other. `contents`: by the names of the files."""
    lives = {name: life_of(name) for name in contents}
    at_most = {name: len(content) for name, content in contents.items()}
    for later, content in contents.items():
        first = documents.object_in(content.partition(b"\n")[0])
        for name, size in table_of(first.get(_FENCE)).items():
            is_before = name in lives and lives[name].who == lives[later].who and lives[name].life < lives[later].life
            if is_before and type(size) is int:
                at_most[name] = min(at_most[name], max(0, size))
    return [(lives[name], contents[name][: at_most[name]]) for name in sorted(contents, key=lambda name: lives[name])]
