"""What happens to sealed files once they are written, in a process of its own on each host, at the lowest priority: it
moves them from the host's own disk into the run, keeps the quotas of host and run, and removes what is too old.

`recorder/caretaking.py` starts it every few minutes and at the end; nothing of a training is in it. One of a host is at
work for a run. Only sealed files of this run are ever removed: no summary, no verdict, nothing that a link leads to.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

from ..errors import MstxkitError
from ..host import apart, identity, life
from ..host.priority import give_way
from . import care_record, documents, layout, own_disk, run_file, sealed_place, tidying
from .care_record import CareRecord, Cost, SealedCare
from .fetching import Pace
from .moving import Moved, Writers, move_all

LOCK = f"{layout.PASSED_ON}care.lock"
_OWN_COPY = f"{layout.PASSED_ON}care.json"
_WAIT_S, _ASK_S = 600.0, 0.2
# The run as a whole is looked at by one host, so many periods of a host apart: it is a listing of all files.
RUN_EVERY = 5
_AT_ONCE = 512  # files that one look removes


def main() -> None:
    """The process: let go of who started it, then take care. Its words are those of a `SealedCare`, after `last` where
    nobody will come after it.
    """
    is_last, words = sys.argv[1] == "last", sys.argv[2:]
    apart.let_go()
    give_way()
    care = SealedCare.of_words(words)
    # What ended meanwhile found the lock held: look again until there is nothing more.
    while (moved := take_care(care, _WAIT_S if is_last else 0)) is not None and moved.names:
        pass


def take_care(care: SealedCare, within_s: float = 0.0) -> Moved | None:
    """Do all that there is to do on this host; what was moved, and why the rest was not. None: somebody else is at it.
    `within_s`: so long is waited for somebody else. Raises OSError, MstxkitError: it cannot be done.
    """
    with documents.alone((care.place or care.live) / LOCK, within_s) as is_alone:
        if not is_alone:
            return None
        if not _is_there(care):
            return Moved([], f"{care.run} is not there: what is on this host stays")
        ledger = _Ledger(care)
        ledger.finish()
        moved = Moved([])
        if care.place is not None and care.mb_s > 0:
            moved = move_all(care.place, care.run, Writers(care.run, care.live), Pace(care.mb_s * 1e6))
        try:
            _tidied_here(care, ledger, moved)
            ledger.say(moved.problem)
        except OSError as exc:  # a full disk: what was moved is moved
            moved = moved._replace(problem=moved.problem or str(exc))
    if care.run_bytes or care.keep_days:
        _tidied_as_a_whole(care)
    return moved


def _is_there(care: SealedCare) -> bool:
    """Is the run's folder? One that was removed under its processes is made again, as the same run."""
    names = [] if os.path.lexists(care.run) else documents.names_in(care.live, life.SUFFIX)
    if any(life.is_held(str(care.live / name)) for name in names):
        run_file.put_back_run_folder(care.run, care.run_id)
    return run_file.id_of(care.run) == care.run_id


class _Ledger:
    """What was removed, here and in the run: a copy here counts, as the run's disk may be full."""

    def __init__(self, care: SealedCare, name: str = "") -> None:
        self._care, self._is_of_run = care, bool(name)
        token = None if care.place is None else own_disk.token_of(care.place)
        self._own = None if name else (care.place or care.live) / _OWN_COPY
        # Of a host with no place of its own: containers may share its name, and have another /dev/shm each.
        key = hashlib.sha256(f"{identity.boot_id()} {care.live}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._file = care.run / layout.CARE / (name or care_record.name_of(identity.host(), token or key))
        own = None if self._own is None else care_record.read_file(self._own, care.run_id)
        before = own or care_record.read_file(self._file, care.run_id) or CareRecord("")
        place = ("", "") if care.place is None or name else (str(care.place), token or "")
        self.record = before._replace(host="" if name else identity.host(), folder=place[0], token=place[1])
        self._before = before

    def finish(self) -> None:
        """What the one before has begun to remove, and could not say to be done."""
        if self.record.removing:
            for name in filter(layout.is_sealed, self.record.removing):
                self._unlink_file(name)
            removed = care_record.counted(self.record.removed, self.record.removing)
            self._keep_record(self.record._replace(removed=removed, removing={}))

    def remove(self, files: list[tidying.SealedFile]) -> None:
        """Remove these, and count what it costs. Raises OSError: it could not be written down first."""
        for some in (files[at : at + _AT_ONCE] for at in range(0, len(files), _AT_ONCE)):
            paths = {file.name: sealed_place.path_of(self._care.folders, file.name) for file in some}
            costs = {file.name: Cost(1, file.bytes, tidying.records_in(paths[file.name])) for file in some}
            self._keep_record(self.record._replace(removing=costs))
            gone = {name: cost for name, cost in costs.items() if self._unlink_file(name)}
            self._keep_record(self.record._replace(removed=care_record.counted(self.record.removed, gone), removing={}))

    def _unlink_file(self, name: str) -> bool:
        """Was it there? Another one that removes it counts it."""
        try:
            path = sealed_place.path_of(self._care.folders, name)
            with documents.closing(documents.open_folder(path.parent)) as folder:
                os.unlink(path.name, dir_fd=folder)
            return True
        except FileNotFoundError:
            return False

    def _keep_record(self, record: CareRecord) -> None:
        self.record = record
        if self._own is None:
            care_record.write(self._file, self._care.run_id, record)
        else:
            care_record.write_file(self._own, self._care.run_id, record)

    def say(self, problem: str = "") -> None:
        """Let the run know: what is here still, and what was removed.
        Raises OSError, CaptureError: it cannot be written there; it is kept here, and said the next time.
        """
        sizes = [] if self._care.place is None or self._is_of_run else _list_sealed(self._care, self._care.folders[:1])
        record = self.record._replace(files=len(sizes), bytes=sum(file.bytes for file in sizes), problem=problem)
        is_news = record != self._before._replace(as_of_ns=record.as_of_ns)
        if is_news or self._is_of_run or care_record.read_file(self._file, self._care.run_id) is None:
            self._keep_record(record._replace(as_of_ns=time.time_ns()))
            if self._own is not None:
                care_record.write(self._file, self._care.run_id, self.record)


def _tidied_here(care: SealedCare, ledger: _Ledger, moved: Moved) -> None:
    """The quotas of processes and of this host, and what is too old on its own disk."""
    writers = Writers(care.run, care.live)
    if care.place is not None:
        here = _list_sealed(care, [care.place])
        names = [file.name for file in here]
        # What of a process is in the run is newer than nothing that is here.
        ledger.remove(tidying.too_old(here, care.before_ns(), writers.may_write, layout.newest_of_each(names)))
        for process in sorted({layout.sealed_process(name) for name in moved.names}):
            ledger.remove(tidying.beyond(_of_process(care, process), care.quota_bytes))
    if care.host_bytes:
        ledger.remove(tidying.beyond(_list_sealed(care, care.folders, f"{identity.host()}-"), care.host_bytes))


def _of_process(care: SealedCare, process: str) -> list[tidying.SealedFile]:
    """All of its files, here and in the run. The run's are asked for by number, downwards: its folder is not listed."""
    here = [name for name in sealed_place.names_in(care.folders[0]) if layout.sealed_process(name) == process]
    files = [tidying.looked_at(sealed_place.path_of(care.folders, name), name) for name in here]
    number = min(map(layout.sealed_number, here), default=0)
    if not number:  # all is in the run, and nothing will follow
        files = [file for file in _list_sealed(care, care.folders, f"{process}.") if file.name not in here]
    misses = 0
    while number > 0 and misses < 2:
        number -= 1
        name = layout.sealed_name(process, number)
        file = tidying.looked_at(care.run / layout.SEALED / name, name)
        misses = misses + 1 if file is None else 0
        files.append(file)
    return [file for file in files if file is not None]


def _tidied_as_a_whole(care: SealedCare) -> None:
    """The quota of the run, and what is too old in it: by one host at a time, and not by each in turn."""
    name = f"{care_record.RUN}{layout.CARE_SUFFIX}"
    if not _is_due(care, name):
        return
    try:
        with documents.locked(care.run / layout.CARE / f"{care_record.RUN}.lock", _ASK_S):
            if _is_due(care, name):
                ledger = _Ledger(care._replace(place=None), name)
                ledger.finish()
                files = _list_sealed(care, care.folders[-1:])
                newest = layout.newest_of_each([file.name for file in files])
                writers = Writers(care.run, care.live)
                old = tidying.too_old(files, care.before_ns(), writers.may_write, newest)
                ledger.remove(old)
                ledger.remove(tidying.beyond([file for file in files if file not in old], care.run_bytes))
                ledger.say()
    except (FileNotFoundError, MstxkitError):
        pass  # the run is gone, or another host is at it


def _is_due(care: SealedCare, name: str) -> bool:
    record = care_record.read_file(care.run / layout.CARE / name, care.run_id)
    return record is None or abs(time.time_ns() - record.as_of_ns) / 1e9 >= RUN_EVERY * care.every_s


def _list_sealed(care: SealedCare, folders: list[Path], prefix: str = "") -> list[tidying.SealedFile]:
    """The sealed files of these folders that begin so, each once; links and what is none are left out."""
    names = (name for name in sealed_place.all_names(folders) if name.startswith(prefix) and layout.is_sealed(name))
    looks = (tidying.looked_at(sealed_place.path_of(care.folders, name), name) for name in names)
    return [file for file in looks if file is not None]
