"""One session per device: a lock between the processes of a host, and a refusal that says who has it and what to do.

CANN records a device for one session at a time; a second one is ignored, or ends the first. So a session of mstxkit
takes its device first, and is refused while anybody else has it.

What the lock sees: all processes of this user on this host, of any job. It is a file in the user's own folder on
/dev/shm (in /tmp where that cannot be had), locked with `lockf`: a forked child does not inherit it, and the kernel
frees it when its owner dies. What it does not see: another user's jobs; and a process in another container, unless
both have the host's /dev/shm (`--ipc=host`) and the same user id. A container that has its devices under other names
(`--device=/dev/davinci4:/dev/davinci0`) counts them by these names.

Source of the variables: CANN 9.0 (ASCEND_RT_VISIBLE_DEVICES), MindCluster 7.3 (ASCEND_VISIBLE_DEVICES).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, NamedTuple, Sequence

from ..errors import MstxkitError
from ..host import folders, identity, life
from ..host.descriptors import OwnDescriptor
from ..store import documents
from . import profilers

_FOLDER, _INSTEAD_OF_SHARED_MEMORY = "devices", Path("/tmp")
# In the file of a lock: first who has the device, padded to this; then who was refused it since, and waits.
_OWNER_LIMIT_BYTES = 4096
# Who waits comes back with its next step, which may take minutes.
_LEFT_FOR_S = 300.0
# A lock is taken a moment before its file says by whom.
_ASK_AGAIN, _ASK_AGAIN_AFTER_S = 20, 0.005


class Owner(NamedTuple):
    """Who has a device."""

    pid: int
    host: str
    run: str  # its id; empty where there is none
    stage: str | None  # that it records; None: all of them
    since_ns: int  # wall clock
    device: int | None  # physical id; None for a process that has no device

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since_ns / 1e9))
        return f"process {self.pid} on {self.host} (run {self.run or '?'}, stage {self.stage or 'any'}, since {since})"


class Refusal(NamedTuple):
    """Why no session may start now: who has the device, and what to do."""

    sentence: str
    owner: Owner | None = None  # None where it is another profiler, or unknown


@dataclass(eq=False)
class Claim:
    """A device that this process has, until `release`, its end or its death; in a forked child it is nothing."""

    owner: Owner
    _file: OwnDescriptor | None = None
    _left: tuple[str, Owner | None, float] = ("", None, 0.0)  # the lock's file, to whom, and until when

    @property
    def wanted_by(self) -> Owner | None:
        """Who was refused it last since this process has it; None: nobody that lives."""
        file = self._file
        return _read_owner(file.number, _OWNER_LIMIT_BYTES) if file is not None and file.is_ours else None

    def is_left(self) -> bool:
        """After `release`: is it left to who waited for it? Until anybody has had it, or has not come for minutes."""
        path, to, until_s = self._left
        if to is not None and time.monotonic() < until_s:
            with suppress(OSError), open(path, "rb") as file:
                return _read_owner(file.fileno(), _OWNER_LIMIT_BYTES) == to  # whoever takes it begins the file anew
        return False

    def release(self) -> None:
        """Give the device back. Once is enough, more do no harm. Never raises."""
        if _taken.get(os.getpid()) is not self:
            return
        to, file, self._file = self.wanted_by, self._file, None
        if file is not None:
            if file.is_ours:  # else the program has closed it, and the number may be a file of its own
                with suppress(OSError):
                    if to is None:
                        os.ftruncate(file.number, 0)
                    else:
                        os.pwrite(file.number, b" " * _OWNER_LIMIT_BYTES, 0)
                self._left = file.target, to, time.monotonic() + _LEFT_FOR_S
            file.close()  # frees the lock
        # Only now: closing any other descriptor of that file would free the lock of the next claim.
        _taken.pop(os.getpid(), None)

    def lock(self, folder: Path) -> Refusal | None:
        """Lock the device between processes, or say who has it. Raises OSError, MstxkitError: it cannot be locked."""
        path = folder / f"npu-{self.owner.device}.lock"
        about = json.dumps({**life.of_this(), **self.owner._asdict()}).encode().ljust(_OWNER_LIMIT_BYTES)
        while True:
            file = documents.open_lock_file(path)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if documents.is_still(file, path):
                    with suppress(OSError):
                        os.ftruncate(file, 0)
                    with suppress(OSError):  # a full tmpfs: locked all the same
                        os.pwrite(file, about, 0)
                    self._file, file = OwnDescriptor.of(file, path.name), -1
                    return None
                # It was removed meanwhile, and whoever comes next would lock another one: once more.
            except (BlockingIOError, PermissionError):
                with suppress(OSError):
                    os.pwrite(file, about, _OWNER_LIMIT_BYTES)
                return _refused_by(file, self.owner.device)
            finally:
                if file >= 0:
                    os.close(file)


# By pid, so that a forked child finds none: one session in a process, on whatever device.
_taken: dict[int, Claim] = {}


def take_device(
    device: int | None, *, run: str = "", stage: str | None = None, folder: Path | None = None
) -> Claim | Refusal:
    """Take a device for a session, or learn who has it. Never raises, never waits for the owner.
    `device`: as `physical_device` gives it; None without NPU, where only this process itself can be in the way. `run`,
    `stage`: for those who are refused meanwhile. `folder`: parent of the folder of locks instead of /dev/shm; the same
    for all that are to meet.
    """
    pid = os.getpid()
    claim = Claim(Owner(pid, identity.name_host(), run, stage, time.time_ns(), device))
    first = _taken.setdefault(pid, claim)
    if first is not claim:
        return Refusal(f"a session of mstxkit runs in this process already: {first.owner}; stop it first", first.owner)
    elsewhere = "; ".join(other.sentence for other in profilers.find_others())
    if elsewhere:
        _taken.pop(pid, None)
        return Refusal(elsewhere)
    refusal, preferred = None, None if folder is None else str(folder)
    try:
        if device is not None:
            refusal = claim.lock(folders.live_folder(_FOLDER, preferred, lambda: _INSTEAD_OF_SHARED_MEMORY))
    except (OSError, MstxkitError) as exc:
        refusal = Refusal(f"device {device} cannot be locked against other processes: {exc}")
    if refusal is None:
        return claim
    _taken.pop(pid, None)
    return refusal


def _refused_by(file: int, device: int | None) -> Refusal:
    for _ in range(_ASK_AGAIN):
        owner = _read_owner(file)
        if owner is not None:
            return Refusal(f"device {device} is taken by {owner}; ask again when that has ended, or stop it", owner)
        time.sleep(_ASK_AGAIN_AFTER_S)
    return Refusal(f"device {device} is taken by another process of this user, which does not say who it is")


def _read_owner(file: int, at: int = 0) -> Owner | None:
    """Who the file names there; None where that is nobody yet, or somebody dead."""
    try:
        about = json.loads(os.pread(file, _OWNER_LIMIT_BYTES, at))
        if life.is_alive(about) is False:
            return None
        owner = Owner(**{field: about[field] for field in Owner._fields})
        return owner if str(owner) else None  # it can be told: fields of other types cannot
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def physical_device(
    index: int, environment: Mapping[str, str] | None = None, nodes: Sequence[int] | None = None
) -> int:
    """The host's own number of a device that this process knows by `index`.

    ASCEND_RT_VISIBLE_DEVICES picks among the devices that there are, by their order; a container has only those that
    were given to it. These are its /dev/davinci nodes, which keep their numbers, or what ASCEND_VISIBLE_DEVICES lists
    where no node can be seen.
    `environment`: default: this process's. `nodes`: numbers of the /dev/davinci nodes; default: those that there are.
    """
    variables = os.environ if environment is None else environment
    names = documents.names_in("/dev") if nodes is None else [f"davinci{node}" for node in nodes]
    there = sorted(int(match[1]) for name in names if (match := re.fullmatch(r"davinci(\d+)", name)))
    there = there or _devices_of_container(variables.get("ASCEND_VISIBLE_DEVICES", ""))
    # CANN reads up to the first character that belongs to no list of numbers: "1, 2" is 1.
    listed = re.match(r"\d+(,\d+)*", variables.get("ASCEND_RT_VISIBLE_DEVICES", ""))
    visible = [int(number) for number in listed[0].split(",")] if listed else []
    logical = visible[index] if 0 <= index < len(visible) else index
    return there[logical] if 0 <= logical < len(there) else logical


def _devices_of_container(text: str) -> list[int]:
    """`0-2,4` or `Ascend910-1,Ascend910-3`, in ascending order; nothing for `void` and what cannot be read."""
    devices: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"(?:Ascend\d+[A-Z]*-)?(\d{1,4})|(\d{1,4})-(\d{1,4})", part)
        if match is None:
            return []
        devices.update(range(int(match[1] or match[2]), int(match[1] or match[3]) + 1))
    return sorted(devices)
