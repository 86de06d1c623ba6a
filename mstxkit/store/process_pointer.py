"""`live/<process>.json`: where the live file of a process is, and by what to tell whether that process still runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

from ..errors import CaptureError, FormatError
from ..host import identity, life
from . import documents, layout
from .values import whole_number

FORMAT, LIMIT_BYTES = 1, 1 << 16
_KEPT = ("run", "host", "boot", "pid", "pidns", "pid_start", "start")


def write_pointer(file: Path, path: Path, who: Mapping[str, Any]) -> None:
    """Say that the process with this identity has its live file at `path`, and beside it its proof of life, if any.
    Raises CaptureError: it cannot be written.
    """
    lock = str(path.with_suffix(life.SUFFIX))
    pointer = {"format": FORMAT, "path": str(path), **{key: who[key] for key in _KEPT}}
    try:
        documents.replace_file(file, json.dumps({**pointer, "life": lock if life.is_held(lock) else None}).encode())
    except OSError as exc:
        raise CaptureError(f"the run folder {file.parent.parent} cannot be written: {exc.strerror or exc}") from exc


def parse_pointer(raw: bytes) -> dict[str, Any]:
    """The fields of a pointer file. Raises FormatError: it is none, or a newer mstxkit's."""
    pointer = documents.object_in(raw)
    if not isinstance(pointer.get("path"), str):
        raise FormatError("not a pointer file of mstxkit", 0)
    if (version := whole_number(pointer.get("format"))) > FORMAT:
        raise FormatError(f"pointer file of format {version}, written by a newer mstxkit: upgrade this one", 0)
    return pointer


def all_here(run: Path) -> list[Path]:
    """Those of this host's processes: announced, half made, or claimed by an adopter."""
    kinds = (layout.POINTER, layout.BEING_MADE)
    candidates = (run / layout.LIVE).glob(f"{identity.name_host()}-*")
    return sorted(path for path in candidates if any(kind in path.name for kind in kinds))


def announced_by(name: str) -> str:
    """The process whose pointer this is, whole, half made, or claimed by an adopter."""
    announced = name.partition(f"{layout.POINTER}{layout.CLAIMED}")[0]
    return announced.removesuffix(layout.POINTER).removesuffix(layout.BEING_MADE)
