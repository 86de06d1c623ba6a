"""The profiles of a run, as their sessions left them: `profiles/<stage>/step<N>/rank<R>/<start>-<pid>/session.json`.

Nothing is opened but that one small file of each. What cannot be read is listed as damage.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterator, NamedTuple

from ..errors import FormatError
from .folder import Damage, Folder
from .processes import small_number, text_of

PROFILES, SESSION = "profiles", "session.json"
LIMIT_BYTES = 1 << 20
# Beyond these somebody else wrote them; the rest is left out, and listed.
SESSIONS_AT_MOST = 200_000
_DEPTH = 4


class Session(NamedTuple):
    """One profile: where it lies, relative to the run, and what its session.json says."""

    folder: str
    told: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Request ("" for light capture), stage and rank."""
        return text_of(self.told.get("request")), text_of(self.told.get("stage")), small_number(self.told.get("rank"))

    @property
    def steps(self) -> list[int]:
        """Those that it recorded; while it records, the one in which it began."""
        given = self.told.get("steps")
        found = [one for one in given if small_number(one) is not None] if isinstance(given, list) else []
        began = small_number(self.told.get("step"))
        return found or ([began] if began is not None else [])


def sessions(run: str, run_id: str, damage: list[Damage]) -> Iterator[Session]:
    """Every profile of a run, light ones too, by stage, step, rank and start.

    Args:
        run: The run folder.
        run_id: Its id; "" where that is unknown: then none is of another run.
        damage: What cannot be read is added here.
    """
    for count, place in enumerate(_folders(os.path.join(run, PROFILES), _DEPTH)):
        if count == SESSIONS_AT_MOST:
            add(damage, os.path.join(run, PROFILES), f"more than {count} profiles: the rest is left out")
            return
        told = document(Folder(place), SESSION, run_id, damage)
        if told is not None:
            yield Session(text_of(os.path.relpath(place, run)), told)


def _folders(path: str, depth: int) -> Iterator[str]:
    """Those so many levels below; what is no folder, or a link to one, has none below it."""
    if depth == 0:
        yield path
        return
    for name in sorted(Folder(path).names(), key=_in_order):
        yield from _folders(os.path.join(path, name), depth - 1)


def _in_order(name: str) -> tuple[str, int, str]:
    """step9 before step10."""
    digits = name[len(name.rstrip("0123456789")) :]
    return (name[: len(name) - len(digits)], int(digits[:18] or 0), name)


def document(folder: Folder, name: str, run_id: str, damage: list[Damage]) -> dict[str, Any] | None:
    """A JSON object of format 1 of this run; None where there is none, and where it cannot be read."""
    if name not in folder:
        return None
    try:
        told = json.loads(folder.read(name, size=LIMIT_BYTES))
        if not isinstance(told, dict) or told.get("format") != 1:
            raise ValueError("not a JSON object of format 1")
        if run_id and told.get("run") != run_id:
            raise ValueError("it belongs to another run")
        return told
    except (OSError, ValueError, RecursionError, FormatError) as exc:
        add(damage, folder.path_of(name), str(getattr(exc, "strerror", None) or exc))
        return None


def add(damage: list[Damage], path: str, reason: str) -> None:
    """One more place that is damaged."""
    damage.append(Damage(text_of(path), 0, 0, text_of(reason)))
