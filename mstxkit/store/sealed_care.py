"""What happens to sealed files once they are written, in a process of its own on each host, at the lowest priority: it
moves them from the host's own disk into the run, keeps the quotas of host and run, and removes what is too old.

`recorder/keeper.py` starts it every few minutes and at the end; nothing of a training is in it. One of a host is at
work for a run. Only sealed files of this run are ever removed: no summary, no verdict, nothing that a link leads to.

A file is claimed by a rename, copied under another name, read again, compared, renamed into its place, and only then
removed here (`sealed_place.py`): each once, and to be gone on with after any kill. What may still be written to stays.
Of a process, a host or a run beyond a limit the oldest go first. The newest of a process stays: its writer holds it
open, and it says how the process ended. By age it goes as well, once nobody can write to it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from pathlib import Path
from typing import Iterable, NamedTuple

from ..errors import FormatError, MstxkitError
from ..host import detached, identity, life
from . import block_index, care_record, documents, layout, process_pointer, run_file, sealed_place, segment
from .care_record import CareRecord, Cost, SealedCare
from .fetching import copy_file, is_same, why_no_room
from .values import whole_number

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
    detached.let_go()
    detached.give_way()
    care = detached.of_words(SealedCare, words)
    # What ended meanwhile found the lock held: look again until there is nothing more.
    while (moved := take_care(care, _WAIT_S if is_last else 0)) is not None and moved.names:
        pass


def take_care(care: SealedCare, within_s: float = 0.0) -> Moved | None:
    """Do all that there is to do on this host; what was moved, and why the rest was not. None: somebody else is at it.
    `within_s`: so long is waited for somebody else. Raises OSError, MstxkitError: it cannot be done.
    """
    with documents.try_lock((care.place or care.live) / LOCK, within_s) as is_alone:
        if not is_alone:
            return None
        if not _is_there(care):
            return Moved([], f"{care.run} is not there: what is on this host stays")
        ledger = _Ledger(care)
        ledger.finish()
        moved = Moved([])
        if care.place is not None and care.mb_s > 0:
            moved = move_all(care.place, care.run, Writers(care.run, care.live), care.mb_s)
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
        self._care = care
        token = None if care.place is None else sealed_place.token_of(care.place)
        self._own = None if name else (care.place or care.live) / _OWN_COPY
        # Of a host with no place of its own: containers may share its name, and have another /dev/shm each.
        key = hashlib.sha256(f"{identity.boot_id()} {care.live}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._file = care.run / layout.CARE / (name or care_record.name_of(identity.name_host(), token or key))
        own = None if self._own is None else care_record.read_file(self._own, care.run_id)
        before = own or care_record.read_file(self._file, care.run_id) or CareRecord("")
        folder, host = "" if care.place is None else str(care.place), "" if name else identity.name_host()
        self.record = before._replace(host=host, folder=folder, token=token or "")
        self._before = before

    def finish(self) -> None:
        """What the one before has begun to remove, and could not say to be done."""
        if self.record.removing:
            for name in filter(layout.is_sealed, self.record.removing):
                self._unlink_file(name)
            removed = care_record.add_removals(self.record.removed, self.record.removing)
            self._keep_record(self.record._replace(removed=removed, removing={}))

    def remove(self, files: list[SealedFile]) -> None:
        """Remove these, and count what it costs. Raises OSError: it could not be written down first."""
        for some in (files[at : at + _AT_ONCE] for at in range(0, len(files), _AT_ONCE)):
            paths = {file.name: sealed_place.path_of(self._care.folders, file.name) for file in some}
            costs = {file.name: Cost(1, file.bytes, records_in(paths[file.name])) for file in some}
            self._keep_record(self.record._replace(removing=costs))
            gone = {name: cost for name, cost in costs.items() if self._unlink_file(name)}
            removed = care_record.add_removals(self.record.removed, gone)
            self._keep_record(self.record._replace(removed=removed, removing={}))

    def _unlink_file(self, name: str) -> bool:
        """Was it there? Another one that removes it counts it."""
        try:
            path = sealed_place.path_of(self._care.folders, name)
            with documents.close_after(documents.open_folder(path.parent)) as folder:
                os.unlink(path.name, dir_fd=folder)
            return True
        except FileNotFoundError:
            return False

    def _keep_record(self, record: CareRecord) -> None:
        self.record = record
        if self._own is None:
            care_record.write_record(self._file, self._care.run_id, record)
        else:
            care_record.write_file(self._own, self._care.run_id, record)

    def say(self, problem: str = "") -> None:
        """Let the run know: what is here still, and what was removed.
        Raises OSError, CaptureError: it cannot be written there; it is kept here, and said the next time.
        """
        sizes = [] if self._care.place is None else _list_sealed(self._care, self._care.folders[:1])
        record = self.record._replace(files=len(sizes), bytes=sum(file.bytes for file in sizes), problem=problem)
        is_news = record != self._before._replace(as_of_ns=record.as_of_ns)
        if is_news or self._own is None or care_record.read_file(self._file, self._care.run_id) is None:
            self._keep_record(record._replace(as_of_ns=time.time_ns()))
            if self._own is not None:
                care_record.write_record(self._file, self._care.run_id, self.record)


def _tidied_here(care: SealedCare, ledger: _Ledger, moved: Moved) -> None:
    """The quotas of processes and of this host, and what is too old on its own disk."""
    if care.place is not None:
        # What of a process is in the run is newer than nothing that is here.
        ledger.remove(too_old(_list_sealed(care, [care.place]), care))
        for process in sorted({layout.sealed_process(name) for name in moved.names}):
            ledger.remove(find_beyond(_of_process(care, process), care.quota_bytes))
    if care.host_bytes:
        ledger.remove(find_beyond(_list_sealed(care, care.folders, f"{identity.name_host()}-"), care.host_bytes))


def _of_process(care: SealedCare, process: str) -> list[SealedFile]:
    """All of its files, here and in the run. The run's are asked for by number, downwards: its folder is not listed."""
    here = [name for name in sealed_place.names_in(care.folders[0]) if layout.sealed_process(name) == process]
    files = [looked_at(sealed_place.path_of(care.folders, name), name) for name in here]
    number = min(map(layout.sealed_number, here), default=0)
    if not number:  # all is in the run, and nothing will follow
        files = [file for file in _list_sealed(care, care.folders, f"{process}.") if file.name not in here]
    misses = 0
    while number > 0 and misses < 2:
        number -= 1
        name = layout.sealed_name(process, number)
        file = looked_at(care.run / layout.SEALED / name, name)
        misses = misses + 1 if file is None else 0
        files.append(file)
    return [file for file in files if file is not None]


def _tidied_as_a_whole(care: SealedCare) -> None:
    """The quota of the run, and what is too old in it: by one host at a time, and not by each in turn."""
    name = f"{care_record.RUN}{layout.CARE_SUFFIX}"
    if not _is_due(care, name):
        return
    try:
        with documents.hold_lock(care.run / layout.CARE / f"{care_record.RUN}.lock", _ASK_S):
            if _is_due(care, name):
                ledger = _Ledger(care._replace(place=None), name)
                ledger.finish()
                files = _list_sealed(care, care.folders[-1:])
                old = too_old(files, care)
                ledger.remove(old)
                ledger.remove(find_beyond([file for file in files if file not in old], care.run_bytes))
                ledger.say()
    except (FileNotFoundError, MstxkitError):
        pass  # the run is gone, or another host is at it


def _is_due(care: SealedCare, name: str) -> bool:
    record = care_record.read_file(care.run / layout.CARE / name, care.run_id)
    return record is None or abs(time.time_ns() - record.as_of_ns) / 1e9 >= RUN_EVERY * care.every_s


def _list_sealed(care: SealedCare, folders: list[Path], prefix: str = "") -> list[SealedFile]:
    """The sealed files of these folders that begin so, each once; links and what is none are left out."""
    names = (name for name in sealed_place.all_names(folders) if name.startswith(prefix) and layout.is_sealed(name))
    looks = (looked_at(sealed_place.path_of(care.folders, name), name) for name in names)
    return [file for file in looks if file is not None]


class Moved(NamedTuple):
    """What was moved, and why the rest was not."""

    names: list[str]
    problem: str = ""


class Writers:
    """Which processes may still write to their files: those that live, and those whose rest is still to be sealed.
    `live`: the folder of the live files of this host.
    """

    def __init__(self, run: Path, live: Path) -> None:
        self._run, self._live = run, live
        self._announced: set[str] | None = None

    def may_write(self, process: str) -> bool:
        """May this one? Ask after its files were listed: it says that it is there before it writes the first one.
        Raises OSError: the run folder cannot be listed.
        """
        if life.is_held(str(self._live / f"{process}{life.SUFFIX}")):
            return True
        if self._announced is None:
            self._announced = {process_pointer.announced_by(name) for name in os.listdir(self._run / layout.LIVE)}
        return process in self._announced


def pick_finished(names: list[str], writers: Writers) -> list[str]:
    """Of all sealed files in a place those to which nobody will write any more, oldest of a process first.
    Raises OSError: it cannot be told.
    """
    newest = layout.newest_of_each(names)
    return [name for name in layout.in_order(names)
            if name not in newest or not writers.may_write(layout.sealed_process(name))]  # fmt: skip


def move_all(place: Path, run: Path, writers: Writers, mb_s: float) -> Moved:
    """Move all that is finished, until one cannot be moved. Never raises."""
    moved: list[str] = []
    problem = ""
    try:
        for name in pick_finished(sealed_place.names_in(place), writers):
            try:
                move_file(place, run / layout.SEALED, name, mb_s)
                moved.append(name)
            except MstxkitError as exc:
                problem = str(exc)
    except OSError as exc:
        problem = f"{run}: {exc.strerror or exc}"
    return Moved(moved, problem)


def move_file(place: Path, sealed: Path, name: str, mb_s: float) -> None:
    """Move one file, from whatever state it is in.
    Raises OSError, MstxkitError: it cannot be; then it is where it was, or claimed.
    """
    claimed, target = place / f"{name}{sealed_place.MOVING}", sealed / name
    source = claimed if os.path.lexists(claimed) else place / name
    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise MstxkitError(f"{source} is no file")
    with documents.close_after(documents.open_folder(sealed)) as folder:
        # Before it is claimed: its writer's own quota goes on counting it.
        if not is_same(source, target) and (why := why_no_room(sealed, os.lstat(source).st_size)):
            raise OSError(28, why)
        if source != claimed:
            os.rename(source, claimed)
        if not is_same(claimed, target):
            copy_file(claimed, target, mb_s)
        os.fsync(folder)
    claimed.unlink()


class SealedFile(NamedTuple):
    """One that is there: its name, how large, and when it was last written to."""

    name: str
    bytes: int
    mtime_ns: int


def find_beyond(files: list[SealedFile], limit_bytes: int) -> list[SealedFile]:
    """What is to go so that no more than so many bytes are left, where that can be had; 0: no limit."""
    newest = layout.newest_of_each([file.name for file in files])
    total, chosen = sum(file.bytes for file in files), []
    for file in sorted(files, key=_age_of):
        if 0 < limit_bytes < total and file.name not in newest:
            chosen.append(file)
            total -= file.bytes
    return chosen


def too_old(files: list[SealedFile], care: SealedCare) -> list[SealedFile]:
    """What was last written to too long ago, but for the newest file of a process that may still write to it."""
    before_ns, writers = care.before_ns(), Writers(care.run, care.live)
    newest = layout.newest_of_each([file.name for file in files])
    old = [file for file in sorted(files, key=_age_of) if file.mtime_ns < before_ns]
    return [file for file in old if file.name not in newest or not writers.may_write(layout.sealed_process(file.name))]


def _age_of(file: SealedFile) -> tuple[int, str, int]:
    """Files of one process in the order of their numbers, also where the clock was put back between them."""
    return file.mtime_ns, layout.sealed_process(file.name), layout.sealed_number(file.name)


def looked_at(path: Path, name: str) -> SealedFile | None:
    """A file as it is; None where it is gone, or none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return SealedFile(name, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def records_in(path: Path) -> int:
    """How many records a sealed file holds, by its index or the heads of its blocks. Damage counts for none."""
    try:
        with documents.close_after(documents.open_regular(path)) as descriptor:
            size = os.fstat(descriptor).st_size
            index = block_index.index_at_end(descriptor, size)
            if index is None:  # heads are never compressed
                return sum(_by_heads(descriptor, size))
            entries = (entry for entry in index.entries if entry.kind == segment.RECORDS)
            return sum(whole_number(entry.fields.get("records")) for entry in entries)
    except (OSError, FormatError):
        return 0


def _by_heads(descriptor: int, size: int) -> Iterable[int]:
    at = segment.FILE_HEADER_BYTES
    while at < size:
        head = segment.head_of(documents.read_part(descriptor, at, segment.HEAD_AT_MOST_BYTES), at, size)
        if isinstance(head, segment.BlockDamage):
            return
        if head.kind == segment.RECORDS:
            part = documents.read_part(descriptor, at, head.payload_at - at)
            meta = segment.meta_of(part, head)
            yield 0 if isinstance(meta, segment.BlockDamage) else whole_number(meta.get("records"))
        at = head.end
