"""The control folder as one process of a job sees it: what came in, what is to go out.

On each host the process that holds a lock reads the shared folder, and passes on what it read through the host's own
memory; when it dies the lock is free, when it hangs the others look for themselves. What cannot be used is stated in
`Mailbox.problem`, and what was read before stays.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections import deque
from itertools import count
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from ... import faults
from ...errors import MstxkitError
from ...host import folders, identity
from ...host.descriptors import OwnDescriptor
from ...host.folders import is_local
from ...store import documents, layout
from ...store.control_folder import ControlFolder, messages_in
from ...store.documents import LIMIT_BYTES, Unusable
from ...store.report import encode_report
from .watcher import ASKING_S, TOLD_S

_LOOKS_EVERY_S = 0.0005  # who waits for what another thread writes
# An elected process that is so late with its next look hangs: in a file system that does not answer, or stopped.
LATE_S = 2.0
# A shared file system may say for long that a file is as it was (who opens it is told the truth), or that it changed
# while it gives what it held before.
_READ_AGAIN_S, _SETTLES_WITHIN_S = 10.0, 5.0
_BEAT = struct.Struct("<qq")  # when the elected process looked, and how long it may be until it looks again; ns


class AckNumber(NamedTuple):
    """One acknowledgement, to ask whether it is written: the name of its file, and its number in this process."""

    name: str
    number: int


class Mailbox:
    """The control folder as one process of the job sees it: what came in, what is to go out.

    Everything that touches a file is done by `poll`, which a background thread calls. One for each process.

    `host_folder` is the run's on this host, as `folders.live_folder` gives it.

    Threads/fork: `poll` from one thread; all others from any. In a forked child it is empty, and does nothing.
    """

    def __init__(self, control: ControlFolder, host_folder: Path) -> None:
        self.problem: str | None = None
        # A host folder may lie inside the run, on a disk that all hosts share: then each has names of its own.
        own = identity.boot_id()[:8] or identity.name_host()
        self._control, self._pid = control, os.getpid()
        # A folder by itself: who is told of what is renamed into it need not wake up for all else that is.
        place = host_folder / f"{layout.PASSED_ON}{own}"
        self._turn = _Turn(place / layout.REQUESTS_LOCK)
        self._shared = _Source(control.path / layout.REQUESTS, control.run_id)
        self._relay = _Source(place / layout.REQUESTS, control.run_id)
        self._news: deque[dict[str, Any]] = deque()
        self._seen: set[str] = set()
        self._numbers = count(1)
        self._outgoing: dict[str, tuple[int, bytes]] = {}
        self._written: dict[str, int] = {}
        self._writing = threading.Lock()
        self._is_local: bool | None = None
        self.unwritten: str | None = None  # why what was said last could not be written

    def take(self) -> list[dict[str, Any]]:
        """The messages that came in since the last time, oldest first. Each id comes once in the life of a process."""
        if self._pid != os.getpid():
            self._news.clear()
        return [self._news.popleft() for _ in range(len(self._news))]

    def poll(self) -> bool:
        """Look for messages, and write what is to go out. Is there anything new? Never raises for what it finds.

        Cost: tens of microseconds where nothing changed; the elected process reads a file of the shared folder.
        """
        if self._pid != os.getpid():
            return False
        problem, count = None, len(self._seen)
        try:
            for message in self._look():
                if message["id"] not in self._seen:
                    self._seen.add(message["id"])
                    self._news.append(message)
        except (OSError, MstxkitError) as exc:
            problem = str(exc)
        self._state(problem if self.flush() else self.problem)
        return len(self._seen) > count

    def places_of_news(self) -> list[Path] | None:
        """The folders into which what is new for this process is renamed, as far as the kernel can tell of it: who
        reads a folder that other hosts write into has to ask. None while what is there has just changed, or is no use.
        """
        if self.problem is not None:
            return None
        control = [self._control.path] if self._is_told() else []
        if not self._turn.is_held:
            # Also where requests come from: who was to pass them on may have been killed.
            return [self._relay.path.parent, *control]
        # What is read of a file that was replaced just now may still be what it was.
        return None if time.monotonic() < self._shared.settled_at else control

    def _is_told(self) -> bool:
        """Does the kernel tell of all that is renamed into the control folder?"""
        if self._is_local is None and self._control.path.exists():
            self._is_local = is_local(self._control.path)
        return bool(self._is_local)

    def _look(self) -> list[dict[str, Any]]:
        if self._turn.is_ours(TOLD_S if self._is_told() else ASKING_S):
            try:
                return self._shared.changed() or []
            finally:
                content = self._shared.content  # for the other processes of this host, also what they lost
                if content is not None and not self._relay.holds(content):
                    documents.replace_file(self._relay.path, content)
        try:
            arrived = self._relay.changed()
            look_again = arrived is None and self._turn.is_stalled()
        except Unusable:
            arrived, look_again = None, True
        return (self._shared.changed() if look_again else arrived) or []

    def _state(self, problem: str | None) -> None:
        if problem is not None and problem != self.problem:
            faults.warn_once("control.files", problem)
        self.problem = problem

    def acknowledge(self, rank: int, document: Mapping[str, Any], role: str = "") -> AckNumber:
        """Say what became of the requests; it replaces what this rank said before, at the next `poll` or `flush`.

        Processes with the same rank and role are one another's successors. Cost: no file is touched.
        """
        word = AckNumber(layout.ack_name(rank, role), next(self._numbers))
        self.unwritten = None
        self._outgoing[word.name] = word.number, encode_report(self._control.run_id, rank, role, document)
        return word

    def flush(self) -> bool:
        """Write what is to go out, now: before something must never be done twice. Is all of it written?

        Never raises; what could not be written is in `problem`, and is tried again.
        """
        if self._pid != os.getpid():
            return False
        with self._writing:
            for name, (number, content) in list(self._outgoing.items()):
                if self._written.get(name) != number:
                    try:
                        self._write(name, content)
                    except (OSError, MstxkitError) as exc:
                        self.unwritten = f"{self._control.path / layout.ACKS / name} cannot be written: {exc}"
                        self._state(self.unwritten)
                        return False
                    self._written[name] = number
            self.unwritten = None
        return True

    def is_written(self, word: AckNumber) -> bool:
        """Is this written, or what replaced it?"""
        return self._written.get(word.name, 0) >= word.number

    def wait_until_written(self, word: AckNumber, seconds: float) -> None:
        """Wait for another thread to write this, or to fail at it, so long at most."""
        deadline = time.monotonic() + seconds
        while not self.is_written(word) and self.unwritten is None and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOKS_EVERY_S))

    def withdraw(self, rank: int, role: str = "") -> None:
        """Take back what was said as this rank, which was another's, and close. Never raises."""
        name = layout.ack_name(rank, role)
        self._outgoing.pop(name, None)
        try:
            (self._control.path / layout.ACKS / name).unlink(missing_ok=True)
        except OSError as exc:
            self._state(f"{name} cannot be taken back: {exc}")
        self.close()

    def _write(self, name: str, content: bytes) -> None:
        if len(content) > LIMIT_BYTES:
            raise MstxkitError(f"it has {len(content)} bytes, and may have {LIMIT_BYTES}")
        file = self._control.path / layout.ACKS / name
        try:
            documents.replace_file(file, content)
        except (FileNotFoundError, NotADirectoryError):
            folders.make_folder(self._control.path)
            folders.make_folder(self._control.path / layout.ACKS)
            documents.replace_file(file, content)

    def close(self) -> None:
        """Write what is to go out, and let another process of this host read the shared folder. Never raises."""
        if self._pid != os.getpid():
            return
        self.flush()
        try:
            if self._turn.is_ours():  # or nobody's: whoever is left makes them again
                self._relay.path.unlink(missing_ok=True)
                self._turn.path.unlink(missing_ok=True)
        except (OSError, MstxkitError):
            pass  # the folder is gone
        self._turn.give_up()


class _Turn:
    """Whose turn it is on this host to read the shared folder: that of the process that holds a file's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: OwnDescriptor | None = None
        self.is_held = False  # was it ours at the last look?

    def is_ours(self, looks_within_s: float = ASKING_S) -> bool:
        """Is it this process's turn, from now on if it was nobody's? Raises OSError or MstxkitError where the lock
        cannot be had. `looks_within_s`: what the others are told: this process looks again within so many seconds.
        """
        if self._file is None or not (self._file.is_ours and documents.is_still(self._file.number, self.path)):
            self.give_up()
            for folder in (self.path.parent.parent, self.path.parent):
                folders.make_folder(folder)
            self._file = OwnDescriptor.of(documents.open_lock_file(self.path), self.path.name)
        number = self._file.number
        if not self.is_held:
            try:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return False
            self.is_held = True
        os.pwrite(number, _BEAT.pack(time.monotonic_ns(), int(looks_within_s * 1e9)), 0)
        return True

    def is_stalled(self) -> bool:
        """Is the process whose turn it is late with its next look?"""
        beat = b"" if self._file is None else os.pread(self._file.number, _BEAT.size, 0)
        if len(beat) < _BEAT.size:
            return True
        looked_ns, within_ns = _BEAT.unpack(beat)
        return bool(time.monotonic_ns() - looked_ns > within_ns + LATE_S * 1e9)

    def give_up(self) -> None:
        """Let another process have its turn."""
        file, self._file, self.is_held = self._file, None, False
        if file is not None:
            file.close()


class _Source:
    """A file of messages that is read again and again. What it said before holds until it says something else."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path, self._run_id = path, run_id
        self.content: bytes | None = None
        self._held_last: bytes | None = None  # damaged or not
        self._state: tuple[int, ...] = ()
        self.settled_at = self._read_again_at = 0.0
        self._damage: Unusable | None = None
        self._held: tuple[tuple[int, ...], bytes] | None = None

    def changed(self) -> list[dict[str, Any]] | None:
        """Its messages, if its content is another than the last time; None if not, and where there is no file. Raises
        Unusable where it cannot be used.
        """
        state, now = documents.state_of(self.path), time.monotonic()
        if state != self._state:
            self._state, self.settled_at = state, now + _SETTLES_WITHIN_S
        is_seen = self.settled_at < now < self._read_again_at or (not state and now < self._read_again_at)
        if self._damage is None and is_seen:
            return None
        content = documents.read_small(self.path, is_private=True)
        self._read_again_at = now + _READ_AGAIN_S
        if content is None:
            return None
        if content == self._held_last:
            if self._damage is not None:
                raise self._damage
            return None
        self._held_last, self._damage = content, None
        try:
            arrived = messages_in(content, self.path, self._run_id)
        except Unusable as exc:
            self._damage = exc
            raise
        self.content = content
        return arrived

    def holds(self, content: bytes) -> bool:
        """Does it hold exactly this? It is read where it may have been replaced since it was seen to."""
        state = documents.state_of(self.path)
        if state and self._held == (state, content):
            return True
        try:
            is_so = documents.read_small(self.path, is_private=True) == content
        except Unusable:
            return False
        self._held = (state, content) if is_so else None
        return is_so
