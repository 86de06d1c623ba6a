"""Does a process still live? Its proof of life is a file lock, which the kernel drops when the process ends or execs.

The lock is a POSIX record lock on a file of the process's own, beside its live file. Other pid and time namespaces see
it, a pause of ten minutes keeps it, a child forked from C does not inherit it. A lock of an open file description would
live on in such a child (docs/decisions/0013-proof-of-life.md). The price: the process that holds one loses it when it
closes any descriptor of that file. So nobody else has a reason to open it, and nothing here opens what is held here.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Mapping

from . import identity, lease, proc_files
from .folders import is_local

# `<process>.life` beside `<process>.live`.
SUFFIX, LIVE_SUFFIX = ".life", ".live"
_FILE_MODE = 0o640
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
# struct flock of Linux on 64 bits: l_type, l_whence, l_start, l_len, l_pid (fcntl.h).
_FLOCK = struct.Struct("@hhqqi0q")
_TRIES = 20
_MAPS_AT_MOST_BYTES = 64 << 20
# In place of a pid: of a process that has none here, and of none.
_ELSEWHERE, _NOBODY = 0, -1


class _Held:
    """The locks of this process, path to descriptor; a forked child has none of them."""

    pid = 0
    by_path: dict[str, int] = {}
    lock = threading.RLock()


_held = _Held()


def _held_here() -> dict[str, int]:
    if _held.pid != os.getpid():
        inherited, _held.by_path, _held.lock, _held.pid = _held.by_path, {}, threading.RLock(), os.getpid()
        for name, descriptor in inherited.items():  # the locks stay the parent's
            if _is_still(descriptor, name):  # a daemon has closed it by now, and its number is another file's
                with suppress(OSError):
                    os.close(descriptor)
    return _held.by_path


def hold_lock(path: Path) -> bool:
    """Take the lock of this file, made if it is missing, until `let_go` or the end of this process. Is it held? False
    where another process holds it, and where this file system has no locks. Raises OSError: the file cannot be made.
    """
    name = str(path)
    held = _held_here()
    with _held.lock:
        if name in held:
            return False  # by another thread of this process
        for _ in range(_TRIES):
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | _FLAGS, _FILE_MODE)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                os.close(descriptor)
                if exc.errno not in (errno.EAGAIN, errno.EACCES):  # no locks here: a file would say that nobody lives
                    os.unlink(name)
                return False
            if _is_still(descriptor, name):
                os.fchmod(descriptor, _FILE_MODE)
                held[name] = descriptor
                return True
            os.close(descriptor)  # somebody removed it before it was locked
    return False


def _is_still(descriptor: int, name: str) -> bool:
    try:
        there = os.lstat(name)
        return stat.S_ISREG(there.st_mode) and os.path.samestat(os.fstat(descriptor), there)
    except OSError:
        return False


def keep_lock(path: Path) -> bool:
    """Take a lock again that a program lost for us: by closing every descriptor it has, or by clearing the folder. Is
    it held? False where another process has it by now. Raises OSError: the file cannot be made.

    *Cost*: two calls of the kernel where it is still held.
    """
    name = str(path)
    descriptor = _held_here().get(name)
    if descriptor is not None and not _is_still(descriptor, name):
        with _held.lock:
            _held.by_path.pop(name, None)  # not closed: the number may be another file's by now
        return hold_lock(path)
    return descriptor is not None


def show_life(path: Path) -> None:
    """As `lease.show_life`, where this lock is held here."""
    descriptor = _held_here().get(str(path), -1)
    if _is_still(descriptor, str(path)):  # else the number may be another file's by now
        lease.show_life(descriptor)


def let_go(path: Path, remove: bool = True) -> None:
    """Give up a lock, and remove its file. Never raises; nothing where it is not held."""
    name = str(path)
    held = _held_here()
    with _held.lock:
        descriptor = held.pop(name, None)
        if descriptor is None:
            return
        if not _is_still(descriptor, name):
            return  # the number may be another file's by now
        if remove:
            with suppress(OSError):  # the folder is gone, or nothing can be removed in it
                os.unlink(name)
        with suppress(OSError):
            os.close(descriptor)


def is_held(path: str) -> bool | None:
    """Does any process hold this lock? None where there is no such file, or it cannot be told. Never waits."""
    holder = _holder_of(path)
    return None if holder is None else holder != _NOBODY


def _holder_of(path: str) -> int | None:
    """Who holds this lock, as `_find_holder` says it, or this process. None as of `is_held`."""
    if not path.endswith(SUFFIX):
        return None  # opening and closing another file could cost this process a lock of somebody else's
    held = _held_here()
    with _held.lock:
        if path in held:
            return os.getpid()
        try:
            return _find_holder(path)
        except OSError:
            return None


def has_holder(path: Path) -> bool | None:
    """Does another process hold the lock of this file, of any name? None: its file system has no locks. Not for who
    may hold it: to ask would cost it the lock.
    """
    try:
        return holder_of(path) is not None
    except OSError:
        return None


def holder_of(path: Path) -> int | None:
    """The pid of who holds it, 0 where that is not known here; None: nobody does. Raises OSError without locks."""
    if str(path) in _held_here():
        return os.getpid()
    holder = _find_holder(path)
    return None if holder == _NOBODY else holder


def _find_holder(path: str | Path) -> int | None:
    """The pid of another process that holds the lock of this file, `_ELSEWHERE` where that is not known here, or
    `_NOBODY`; None: it cannot be opened, or is no regular file. Raises OSError: its file system has no locks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return _NOBODY if answer[0] == fcntl.F_UNLCK else max(_ELSEWHERE, answer[4])
    finally:
        os.close(descriptor)


def of_this() -> dict[str, Any]:
    """What `is_alive` needs to know of this process: `identity.of_life`, and its lock where it holds one."""
    own = f"{os.sep}{identity.name_host()}-{os.getpid()}-"
    locks = [path for path in list(_held_here()) if own in path]
    return {**identity.of_life(), **({"life": locks[-1]} if locks else {})}


def is_alive(who: Mapping[str, Any]) -> bool | None:
    """Does the process that a pointer, or what it said of itself, names still run what it ran then?

    False also where its pid has gone on to another program by exec. None where this host cannot tell: it is another
    host's, or of a pid namespace that says nothing here and left no lock.
    `who`: as `identity.of_life`, with `life`, the path of its lock, where it has one.
    """
    lock = str(who.get("life"))
    if is_of_earlier_boot(who):  # a disk of this host's still has its lock; another host's may be free only here
        return False if is_held(lock) is False and is_local(Path(lock).parent) else None
    if who.get("host") != identity.name_host() or who.get("boot") != identity.boot_id():
        return None
    holder = _holder_of(lock)
    is_neighbour = who.get("pidns") == identity.read_namespace("pid")
    if holder is None:
        return _has_same_pid(who) if is_neighbour else None
    if not is_neighbour:
        return holder != _NOBODY
    # Whoever seals what a dead one left holds its lock meanwhile.
    return holder in (_ELSEWHERE, who.get("pid")) or _maps_its_file(who)


def is_of_earlier_boot(who: Mapping[str, Any]) -> bool:
    """Did the process of a pointer begin before this host was started anew? Later ones are on another of its name."""
    try:
        began_ns = int(str(who.get("start"))[:-4], 16)
    except ValueError:
        return False
    is_other = who.get("host") == identity.name_host() and who.get("boot") not in (None, "", identity.boot_id())
    return is_other and began_ns < time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _has_same_pid(who: Mapping[str, Any]) -> bool:
    pid, started = who.get("pid"), who.get("pid_start")
    return isinstance(pid, int) and started is not None and identity.pid_start(pid) == started


def _maps_its_file(who: Mapping[str, Any]) -> bool:
    """Has the process whose lock is free its live file still mapped? Then it closed the lock by mistake."""
    path = str(who.get("life"))[: -len(SUFFIX)] + LIVE_SUFFIX
    try:
        maps = proc_files.read_content(f"/proc/{int(who.get('pid') or 0)}/maps", _MAPS_AT_MOST_BYTES)
        return any(line.endswith(os.fsencode(path)) for line in maps.split(b"\n"))
    except (OSError, ValueError, TypeError, OverflowError):
        return False


def has_execed(who: Mapping[str, Any]) -> bool:
    """Of a process that `is_alive` says is gone: is its pid still there, the same process to the kernel? It execed."""
    return who.get("pidns") == identity.read_namespace("pid") and _has_same_pid(who)
