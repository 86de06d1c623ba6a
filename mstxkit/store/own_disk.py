"""Where a host keeps sealed files on a disk of its own until they are in the run: in the folder of this run and host
(`local_place.root_of`), in `.sealed/`, which is no stage of profiles.

A token in the folder tells it from that of another host with the same name.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import MstxkitError, SettingError
from ..host import identity
from . import care_record, documents, local_place

FOLDER = ".sealed"
_TOKEN, _TOKEN_DIGITS = ".place", 16


class OwnDisk:
    """Where the recorder of this process has sealed files written, before they go into the run.
    `setting`: what `sealed=` was given. Raises SettingError: no such folder can be had.
    """

    def __init__(self, setting: str, run: Path, run_id: str) -> None:
        disk = local_place.given_in(setting, "sealed")
        assert disk is not None
        self._disk, self._run, self._run_id, self.place = disk, run, run_id, made(disk, run_id)

    def announce(self) -> None:
        """Before anything is there, the run says that there may be. Raises OSError, CaptureError: it cannot."""
        care_record.announce(self._run, self._run_id, self.place, token_of(self.place) or "")

    def put_back(self) -> None:
        """Somebody has removed the folder. Raises SettingError as before."""
        made(self._disk, self._run_id)


def made(disk: Path, run_id: str) -> Path:
    """The folder of this run and host on a disk, a folder that `sealed=` names, made where it is missing.
    Raises SettingError: it cannot be had.
    """
    try:
        folder = local_place.made(disk, run_id, (FOLDER,))
        documents.write_new(folder / _TOKEN, os.urandom(_TOKEN_DIGITS // 2).hex().encode())
        return folder
    except OSError as exc:
        wanted = "a folder is needed that is there on each host and that this user can write"
        raise SettingError("sealed", f"local:{disk}", f"{exc.strerror or exc}; {wanted}") from exc


def token_of(folder: Path) -> str | None:
    """What tells this folder from others; None where it says nothing."""
    try:
        token = documents.read(folder / _TOKEN, _TOKEN_DIGITS)
    except MstxkitError:
        return None
    text = (token or b"").decode("ascii", "replace")
    return text if len(text) == _TOKEN_DIGITS and set(text) <= set("0123456789abcdef") else None


def on_this_host(run: Path, run_id: str) -> list[Path]:
    """The folders on this host's disks that the run names, and that are really its own. Never raises."""
    folders = (believe_record(record, run_id) for record in care_record.records(run, run_id, identity.host()))
    return sorted({folder for folder in folders if folder is not None})


def believe_record(record: care_record.CareRecord, run_id: str) -> Path | None:
    """The folder that this record speaks of, if it can be read here."""
    folder = Path(record.folder)
    if record.host != identity.host() or not folder.is_absolute() or len(folder.parts) < 5:
        return None
    is_its_place = folder == local_place.root_of(folder.parents[3], run_id) / FOLDER
    is_believed = is_its_place and local_place.is_own(folder) and token_of(folder) == record.token
    return folder if is_believed else None
