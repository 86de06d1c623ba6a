"""Waiting for a file that is renamed into a folder: Linux's inotify, without asking again and again.

It serves to be quick, not to be right: who waits looks all the same every so often, whatever is told or is not. A
kernel lets a user have 128 of these, in most installations; a process that gets none goes on asking.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterable

from .descriptors import OwnDescriptor, WakePipe

# Source: Linux 6.1, include/uapi/linux/inotify.h.
_MOVED_TO, _DELETE_SELF, _MOVE_SELF, _ONLY_FOLDERS = 0x80, 0x400, 0x800, 0x01000000
_ASKED_FOR = _MOVED_TO | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC are these
# The kernel says that a folder is removed or moved, but not that one above it is: so often each is looked at all the
# same. Seconds.
_SURE_FOR_S = 120.0


class FolderEvents:
    """What is waited for on one thread: files renamed into some folders, or a call of `wake` on any other thread.

    Threads/fork: all but `wake` from one thread. Close it before a fork: a child would share it.

    `is_refused`: did the kernel not take the last `watch`, because the user's limits are used up, say? `is_new`: did
    the last `watch` begin with a folder, or was there something new in one? Nobody was told of it.
    """

    def __init__(self) -> None:
        self._pipe: WakePipe | None = None
        self._events: OwnDescriptor | None = None
        self._watched: dict[str, tuple[tuple[int, int], int]] = {}
        self._sure_until_s = 0.0
        self.is_refused = self.is_new = False

    def open(self) -> bool:
        """Can it be waited on? Opens what is not open, or was closed by somebody else."""
        if self._pipe is None or not self._pipe.is_ours:
            self._pipe = None
            with suppress(OSError):
                self._pipe = WakePipe()
        return self._pipe is not None

    def watch(self, folders: Iterable[Path]) -> bool:
        """Watch these and no others; each is looked at again where the kernel has told of anything, as it may have been
        removed and made anew. Are all of them watched?
        """
        wanted = {os.fspath(folder) for folder in folders}
        if self._events is None or not self._events.is_ours:
            self._events, self._watched = None, {}
            with suppress(OSError):
                self._events = OwnDescriptor.of(_call_library("inotify_init1", _FLAGS), "inotify")
        self.is_refused, self.is_new = self._events is None, False
        if self._events is None:
            return False
        for path in [path for path in self._watched if path not in wanted]:
            _call_library("inotify_rm_watch", self._events.number, self._watched.pop(path)[1])
        # Are those that are watched still where they were? Where something has come, it is new.
        is_sure = time.monotonic() < self._sure_until_s
        if not is_sure:
            self._sure_until_s = time.monotonic() + _SURE_FOR_S
        elif self._take_events(self._events.number):
            is_sure, self.is_new = False, True
        unsure = [path for path in sorted(wanted) if not (is_sure and path in self._watched)]
        watched = [self._is_watched(path, self._events.number) for path in unsure]
        return all(watched)

    def _is_watched(self, path: str, events: int) -> bool:
        try:
            status = os.stat(path)
        except OSError:
            self._watched.pop(path, None)
            return False
        which = status.st_dev, status.st_ino
        if path not in self._watched or self._watched[path][0] != which:
            number = _call_library("inotify_add_watch", events, os.fsencode(path), _ASKED_FOR)
            if number < 0:
                self.is_refused = True
                self._watched.pop(path, None)
                return False
            self._watched[path] = which, number
            self.is_new = True
        return True

    def wait(self, seconds: float) -> None:
        """Until something is renamed into one of the folders, `wake` is called, or so long."""
        poll = select.poll()
        for end in (None if self._pipe is None else self._pipe.end, self._events):
            if end is not None and end.is_ours:
                poll.register(end.number, select.POLLIN)
        ready = {number for number, _ in poll.poll(int(1000 * seconds))}
        if self._pipe is not None and self._pipe.end.number in ready:
            self._pipe.clear()
        if self._events is not None and self._events.number in ready and self._events.is_ours:
            self._take_events(self._events.number)

    def _take_events(self, number: int) -> bool:
        """Has anything come?"""
        try:
            os.read(number, 1 << 14)
            self._sure_until_s = 0.0
            return True
        except OSError:
            return False  # nothing has; or somebody has closed it: `watch` sees that

    def wake(self) -> None:
        """End a `wait`, or the next one. Never raises."""
        pipe = self._pipe  # the thread may just be closing it
        if pipe is not None:
            pipe.wake()

    def close(self) -> None:
        """Watch nothing any more. Never raises."""
        for end in (self._pipe, self._events):
            if end is not None:
                end.close()
        self._pipe, self._events, self._watched = None, None, {}


def _call_library(name: str, *values: int | bytes) -> int:
    """A function of the C library; -1 where it has none of that name, or refuses."""
    try:
        return int(getattr(ctypes.CDLL(None, use_errno=True), name)(*values))
    except (OSError, AttributeError, TypeError):
        return -1
