"""Requests in and acknowledgements out through a folder of the run, with no network and no server.

    <run>/control/requests.json                every message, each with an id; whoever asks adds one
    <run>/control/requests.lock                held by whoever adds one
    <run>/control/acks/rank<R>[-<role>].json   what became of them, one file per rank and role

Names are fixed and files are replaced whole, because a shared file system shows changes of folders late. A message is
never changed; the same id is the same message. Nothing is read from a file that is half written, empty, of another
type, owner or run, writable by others, behind a link, or larger than 1 MiB. `mailbox.py` is the side of the job.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple

from .. import faults, identity, places
from ..errors import CaptureError, MstxkitError

CONTROL, ACKS, REQUESTS, REQUESTS_LOCK = "control", "acks", "requests.json", "requests.lock"
FORMAT = 1
LIMIT_BYTES, MESSAGES_AT_MOST, ID_AT_MOST = 1 << 20, 1000, 200
_SEND_WITHIN_S, _TRIES = 10.0, 5
_sending = threading.Lock()  # between threads, where `lockf` does nothing


class Unusable(MstxkitError):
    """A file or folder from which nothing may be taken, and why."""


class Acknowledgement(NamedTuple):
    """What one rank says of the requests it knows.

    Args:
        rank, role, host, pid: Who wrote it; the role is empty where none is known.
        written_ns: When, by the wall clock of that host.
        document: As it was given to `Mailbox.acknowledge`.
    """

    rank: int
    role: str
    host: str
    pid: int
    written_ns: int
    document: dict[str, Any]


class ControlFolder:
    """The control folder of one run, as everybody sees it who may write to the run: the job's processes, the CLI.

    Args:
        run: The run folder, resolved.
        run_id: Its id; files that name another one are not looked at.
    """

    def __init__(self, run: Path, run_id: str) -> None:
        self.path, self.run_id = run / CONTROL, run_id

    def send(self, message: Mapping[str, Any]) -> bool:
        """Add a message for all processes of the run; False when its id is there already, so nothing was done.

        Args:
            message: What JSON can hold; `id` is a text that no other message has.

        Raises:
            MstxkitError: it is no such message, or the folder cannot be used.
        """
        text = _checked(message)
        try:
            places.make_folder(self.path)
            os.close(_open_folder(self.path))
            with _locked(self.path / REQUESTS_LOCK):
                return self._add(str(message["id"]), json.loads(text))
        except (OSError, Unusable, CaptureError) as exc:
            raise MstxkitError(f"no request can be left in {self.path}: {exc}") from exc

    def _add(self, message_id: str, message: dict[str, Any]) -> bool:
        for attempt in range(_TRIES):
            known = self._known()
            if message_id in {one["id"] for one in known}:
                return attempt > 0
            places.replace_file(self.path / REQUESTS, self._encoded([*known, message]))
        # Seen once more after each writing: on a file system without locks another writer may have been faster.
        if message_id in {one["id"] for one in self._known()}:
            return True
        raise MstxkitError(f"{self.path / REQUESTS} is written by too many at once; try again")

    def _known(self) -> list[dict[str, Any]]:
        """What is there and can be used; the rest is replaced."""
        try:
            content = read(self.path, REQUESTS)
            return [] if content is None else messages_of(content, self.run_id)
        except Unusable as exc:
            faults.warn_once("control.requests", f"what is in {self.path} cannot be used and is replaced: {exc}")
            return []

    def _encoded(self, messages: list[dict[str, Any]]) -> bytes:
        """The newest of them that fit."""
        messages = messages[-MESSAGES_AT_MOST:]
        while True:
            content = json.dumps({"format": FORMAT, "run": self.run_id, "messages": messages}).encode()
            if len(content) <= LIMIT_BYTES:
                return content
            del messages[: max(1, len(messages) // 8)]

    def acknowledgement(self, rank: int, role: str = "") -> Acknowledgement | None:
        """What a rank said last, in an earlier process of its too; None when that cannot be read."""
        try:
            content = read(self.path / ACKS, ack_name(rank, role))
            found = None if content is None else _acknowledgement(content, self.run_id)
        except Unusable:
            return None
        # A copy of another rank's file says nothing of this one.
        return found if found and (found.rank, found.role) == (rank, role_in_names(role)) else None

    def acknowledgements(self) -> list[Acknowledgement]:
        """What every rank said last, by rank and role. Files that cannot be used are left out."""
        try:
            names = sorted(os.listdir(self.path / ACKS))
        except OSError:
            return []
        found = []
        for name in names:
            known = re.fullmatch(r"rank(0|[1-9]\d{0,8})(?:-(\w+))?\.json", name)
            if known:
                found.append(self.acknowledgement(int(known[1]), known[2] or ""))
        return sorted((one for one in found if one is not None), key=lambda one: (one.rank, one.role))


def _open_folder(folder: Path) -> int:
    """A descriptor of a folder into which only this user may write.

    Raises:
        FileNotFoundError: there is none.
        Unusable: it is not such a folder.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise Unusable(f"{folder} cannot be opened as a folder: {exc.strerror}") from None
    try:
        _check_owner(os.fstat(descriptor), folder)
    except Unusable:
        os.close(descriptor)
        raise
    return descriptor


def _check_owner(found: os.stat_result, path: Path) -> None:
    if found.st_uid != os.geteuid():
        raise Unusable(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise Unusable(f"{path} may be written by others: its mode is {stat.S_IMODE(found.st_mode):o}")


def read(folder: Path, name: str) -> bytes | None:
    """All of a file into which only this user may write; None where there is none.

    Raises:
        Unusable: the folder or the file is not what it should be.
    """
    try:
        descriptor = _open_folder(folder)
    except FileNotFoundError:
        return None
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise Unusable(f"{folder / name} cannot be opened (a file is needed, no link): {exc.strerror}") from None
    finally:
        os.close(descriptor)
    try:
        return _content(file, folder / name)
    except OSError as exc:
        raise Unusable(f"{folder / name} cannot be read: {exc.strerror}") from None
    finally:
        os.close(file)


def _content(file: int, path: Path) -> bytes:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(f"{path} is no file")
    _check_owner(found, path)
    content, piece = b"", b"-"
    while piece and len(content) <= LIMIT_BYTES:
        piece = os.read(file, LIMIT_BYTES + 1)
        content += piece
    if len(content) > LIMIT_BYTES:
        raise Unusable(f"{path} is larger than {LIMIT_BYTES} bytes")
    return content


def _document(content: bytes, run_id: str) -> dict[str, Any]:
    """The JSON object of this run in a file.

    Raises:
        Unusable: there is none.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise Unusable("is half written, or no JSON" if content else "is empty") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise Unusable(f"is no control file of format {FORMAT}")
    if found.get("run") != run_id:
        raise Unusable("belongs to another run")
    return found


def messages_of(content: bytes, run_id: str) -> list[dict[str, Any]]:
    """The messages in the content of a file of requests; entries that are none are left out.

    Raises:
        Unusable: it is no such file of this run.
    """
    found = _document(content, run_id).get("messages")
    if not isinstance(found, list):
        raise Unusable("holds no list of messages")
    return [one for one in found if isinstance(one, dict) and _is_id(one.get("id"))]


def _acknowledgement(content: bytes, run_id: str) -> Acknowledgement:
    found = _document(content, run_id)
    types = {"rank": int, "role": str, "host": str, "pid": int, "written_ns": int, "document": dict}
    if not all(isinstance(found.get(field), kind) for field, kind in types.items()):
        raise Unusable("lacks a field of an acknowledgement")
    return Acknowledgement(**{field: found[field] for field in types})


def _checked(message: Mapping[str, Any]) -> str:
    if not _is_id(message.get("id")):
        raise MstxkitError(f"id={message.get('id')!r}: a text of 1 to {ID_AT_MOST} printable characters is needed")
    try:
        text = json.dumps(dict(message), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise MstxkitError(f"message {message['id']} cannot be written as JSON: {exc}") from exc
    if len(text) > LIMIT_BYTES // 2:
        raise MstxkitError(f"message {message['id']} has {len(text)} characters; {LIMIT_BYTES // 2} at most")
    return text


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= ID_AT_MOST and value.isprintable()


def role_in_names(role: str) -> str:
    """A role, fit for a file name."""
    return re.sub(r"\W", "_", role, flags=re.ASCII)[: identity.ROLE_LIMIT]


def ack_name(rank: int, role: str) -> str:
    """The file of a rank's acknowledgement."""
    return f"rank{rank}-{role_in_names(role)}.json" if role else f"rank{rank}.json"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among the writers of all hosts, as far as their file system has locks."""
    if not _sending.acquire(timeout=_SEND_WITHIN_S):
        raise MstxkitError(f"another thread of this process holds {path} for {_SEND_WITHIN_S:.0f} s")
    try:
        file = places.open_lock_file(path)
        try:
            _wait_for(file, path)
            yield
        finally:
            os.close(file)
    finally:
        _sending.release()


def _wait_for(file: int, path: Path) -> None:
    deadline = time.monotonic() + _SEND_WITHIN_S
    while time.monotonic() < deadline:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            time.sleep(0.01)
        except OSError:
            return  # a file system without locks: `_add` looks whether somebody was faster
    raise MstxkitError(f"{path} is locked by another process for {_SEND_WITHIN_S:.0f} s; try again")
