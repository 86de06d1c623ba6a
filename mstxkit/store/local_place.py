"""Where a host keeps profiles on a disk of its own: `<disk>/mstxkit-<user>/<run id>/<host>/`, and below it the same
folders as below `profiles/` in the run. Two runs never meet there, nor do two users, nor two hosts on one disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Iterator

from ..errors import SettingError
from ..host import folders, identity
from . import documents, layout
from .values import table_of

_WORD = "local:"


def given_in(setting: Any, name: str = "profiles") -> Path | None:
    """The folder that `profiles=`, or another setting of this name, names, resolved; None where all goes into the run.
    Raises SettingError: it is no such setting.
    """
    if not setting:
        return None
    folder = setting[len(_WORD) :] if isinstance(setting, str) and setting.startswith(_WORD) else ""
    if not os.path.isabs(folder) or not folder.isprintable() or ".." in Path(folder).parts:
        raise SettingError(name, repr(setting), "local:/a/folder is needed, on a disk of each host")
    return Path(os.path.realpath(folder))


def root_of(disk: Path, run_id: str) -> Path:
    """The folder of this run and host on a disk, a folder that `profiles=` names. It need not be there."""
    return disk / f"mstxkit-{os.geteuid()}" / run_id / identity.name_host()


def make_session_folder(disk: Path, run_id: str, below: tuple[str, ...]) -> Path:
    """A folder of a session, each part of the way below the disk's made, or checked to be ours and no link.
    Raises OSError, CaptureError: it cannot be; the disk's folder itself is never made: it may not be mounted.
    """
    if not disk.is_dir():
        raise FileNotFoundError(f"{disk} is not there")
    return folders.make_below(disk, (*root_of(disk, run_id).relative_to(disk).parts, *below))


def sessions_below(folder: Path, parts: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The way to each session's folder below a root, on from these parts of it; no link is followed."""
    if len(parts) == layout.SESSION_DEPTH:
        yield parts
        return
    for name in documents.names_in(folder):
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            yield from sessions_below(folder / name, (*parts, name))


def root_named_by(document: dict[str, Any], below: tuple[str, ...], run_id: str) -> Path | None:
    """The root on this host that a session.json names, perhaps as one from which all was fetched; None where it names
    none, or one that cannot be believed. `below`: the way to the session's folder below profiles/.
    """
    stored = table_of(document.get("stored") or document.get("fetched_from"))
    if stored.get("host") != identity.name_host() or not isinstance(stored.get("folder"), str):
        return None
    folder = Path(stored["folder"])
    if not folder.is_absolute() or folder.parts[-len(below) :] != below:
        return None
    root = Path(*folder.parts[: -len(below)])
    is_ours = root == root_of(root.parents[2], run_id) if len(root.parts) > 3 else False
    return root if is_ours and is_own(folder) else None


def is_own(folder: Path) -> bool:
    """Does it belong to this user, with no link on the way to it? False also of what can be no path."""
    try:
        return os.path.realpath(folder) == str(folder) and os.lstat(folder).st_uid == os.geteuid()
    except (OSError, ValueError):
        return False
