"""Where a sealed file is: on its host's own disk until it is in the run, else in the run at once.

On its own disk a host keeps them in the folder of this run and host (`local_place.root_of`), in `.sealed/`, which is no
stage of profiles. A token in the folder tells it from that of another host with the same name.

A file is in one of four states, and goes from one to the next by one rename or removal each: `<name>` here; `<name>`
claimed, as `<name>.moving`; claimed, and whole in the run; only in the run. Who looks in this order finds it, however
it moves meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

from ..errors import FormatError, MstxkitError, SettingError
from ..host import identity
from . import care_record, documents, layout, local_place

MOVING = ".moving"
FOLDER = ".sealed"
_TOKEN, _TOKEN_DIGITS = ".place", 16


class OwnDisk:
    """Where the recorder of this process has sealed files written, before they go into the run.
    `setting`: what `sealed=` was given. Raises SettingError: no such folder can be had.
    """

    def __init__(self, setting: str, run: Path, run_id: str) -> None:
        disk = local_place.given_in(setting, "sealed")
        assert disk is not None
        self._disk, self._run, self._run_id, self.place = disk, run, run_id, make_own_folder(disk, run_id)

    def announce(self) -> None:
        """Before anything is there, the run says that there may be. Raises OSError, CaptureError: it cannot."""
        care_record.announce_place(self._run, self._run_id, self.place, token_of(self.place) or "")

    def put_back(self) -> None:
        """Somebody has removed the folder. Raises SettingError as before."""
        make_own_folder(self._disk, self._run_id)


def make_own_folder(disk: Path, run_id: str) -> Path:
    """The folder of this run and host on a disk, a folder that `sealed=` names, made where it is missing.
    Raises SettingError: it cannot be had.
    """
    try:
        folder = local_place.make_session_folder(disk, run_id, (FOLDER,))
        documents.write_new(folder / _TOKEN, os.urandom(_TOKEN_DIGITS // 2).hex().encode())
        return folder
    except OSError as exc:
        wanted = "a folder is needed that is there on each host and that this user can write"
        raise SettingError("sealed", f"local:{disk}", f"{exc.strerror or exc}; {wanted}") from exc


def token_of(folder: Path) -> str | None:
    """What tells this folder from others; None where it says nothing."""
    try:
        token = documents.read_small(folder / _TOKEN, _TOKEN_DIGITS)
    except MstxkitError:
        return None
    text = (token or b"").decode("ascii", "replace")
    return text if len(text) == _TOKEN_DIGITS and set(text) <= set("0123456789abcdef") else None


def on_this_host(run: Path, run_id: str) -> list[Path]:
    """The folders on this host's disks that the run names, and that are really its own. Never raises."""
    folders = (believe_record(record, run_id) for record in care_record.read_records(run, run_id, identity.name_host()))
    return sorted({folder for folder in folders if folder is not None})


def believe_record(record: care_record.CareRecord, run_id: str) -> Path | None:
    """The folder that this record speaks of, if it can be read here."""
    folder = Path(record.folder)
    if record.host != identity.name_host() or not folder.is_absolute() or len(folder.parts) < 5:
        return None
    is_its_place = folder == local_place.root_of(folder.parents[3], run_id) / FOLDER
    is_believed = is_its_place and local_place.is_own(folder) and token_of(folder) == record.token
    return folder if is_believed else None


def names_in(folder: Path) -> list[str]:
    """The sealed files in it, sorted, those that are being moved too. Raises OSError: it cannot be listed."""
    names = {name.removesuffix(MOVING) for name in os.listdir(folder)}
    return sorted(name for name in names if name.endswith(layout.SEALED_SUFFIX))


def all_names(folders: Sequence[Path], process: str = "") -> list[str]:
    """The sealed files in these folders, first those of hosts and last that of the run, sorted; of one process.

    One that cannot be listed, or is a link, holds none.
    """
    names = {name.removesuffix(MOVING) for folder in folders for name in documents.names_in(folder)}
    prefix = f"{process}." if process else ""
    return sorted(name for name in names if name.endswith(layout.SEALED_SUFFIX) and name.startswith(prefix))


def path_of(folders: Sequence[Path], name: str) -> Path:
    """Where a sealed file is now; in the last folder, the run's, where it is in none."""
    for folder in folders[:-1]:
        for path in (folder / name, folder / f"{name}{MOVING}"):
            if os.path.lexists(path):
                return path
    return folders[-1] / name


def open_sealed(folders: Sequence[Path], name: str) -> int:
    """A descriptor of a sealed file, wherever it is.
    Raises FormatError: not a regular file; OSError: it is nowhere, or cannot be opened.
    """
    for folder in folders[:-1]:
        for path in (name, f"{name}{MOVING}"):
            try:
                return _opened_in(folder, path)
            except (FileNotFoundError, FormatError):
                continue
    return _opened_in(folders[-1], name)


def _opened_in(folder: Path, name: str) -> int:
    with documents.close_after(documents.open_folder(folder)) as descriptor:
        return documents.open_regular(name, descriptor)
