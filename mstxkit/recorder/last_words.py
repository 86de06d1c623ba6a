"""What a process says of itself as it hangs or dies, beside its live file: stacks, exceptions, its ring.

A thread of ours sleeps in a pipe until the host's watchman asks for them. It begins a second after the recorder, so a
child that lives for a moment has none.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from .. import faults
from ..host import identity, jitter
from ..host.descriptors import OwnDescriptor
from ..store import documents, layout, stacks
from .background import Background
from .exits import Unhandled

if TYPE_CHECKING:
    from .stack_file import StackFile

_READS_BYTES = 4096
# How often it is looked whether the program has closed descriptors of ours.
_LOOKS_EVERY_S = 5.0
# At the end: what is still to be sealed is worth more than a thread that does not answer.
_ENDS_WITHIN_S = 0.2


class LastWordsHere:
    """This process's. No call of it raises.
    `live_file`: of this process. `also`: what is done where more than threads is asked for: torch's ring is read.
    `learn`: what is done whenever it is asked: who it is may be known only now.

    Threads/fork: any thread of ours. `background`, its own, ends around a fork; a forked child calls `forget` on its
        parent's, and makes a new one.
    """

    def __init__(
        self, live_file: Path, also: Callable[[], object] = lambda: None, learn: Callable[[], object] = lambda: None
    ) -> None:
        self._live_file, self._also, self._learn = live_file, also, learn
        self._starting, self._is_over, self._has_raised = threading.Lock(), False, False
        self._looks = jitter.Every(_LOOKS_EVERY_S, "words", time.monotonic())
        self._pipe: OwnDescriptor | None = None
        self._stacks: StackFile | None = None
        self._unhandled: Unhandled | None = None
        self.background = Background("mstxkit-stacks", self._answer, self._wake)
        with faults.noted("last_words", (ImportError, OSError)):
            from .stack_file import StackFile  # a sub-interpreter, and a Python without libffi, cannot load it

            self._stacks = StackFile(live_file.with_suffix(layout.STACKS_SUFFIX))
            self._unhandled = Unhandled(self._of_exception)

    def consider(self) -> None:
        """Once a second, on a thread of ours."""
        with self._starting, faults.noted("last_words"):
            if not self._is_over and (self._pipe is None or self._looks.is_due(time.monotonic())):
                self._look()

    def _look(self) -> None:
        if self._stacks is not None:
            self._stacks.look()
        before = self._pipe
        if before is None or not before.is_ours:
            self._open()
            if before is not None and before.is_removed:
                os.write(before.number, b"\0")  # who sleeps in it goes on in the new one
        self.start()

    def start(self) -> None:
        """Start the thread, or go on after `leave_off`, where it can be asked."""
        with faults.noted("last_words", RuntimeError):  # no thread can be started
            if self._pipe is not None and not self.background.runs:
                self.background.start()

    def end(self, deadline: float) -> None:
        """Say no more, and leave signals and hooks as they were. The file goes, as who reads it has it open; where it
        tells of an exception, the watchman may not have seen this process yet: it removes the file.
        """
        self._is_over = True
        if self._starting.acquire(timeout=_ENDS_WITHIN_S):  # the sealer's thread, which considers, ends after this
            self._starting.release()
        if self._unhandled is not None:
            self._unhandled.put_back()
        self.background.pause(min(deadline, time.monotonic() + _ENDS_WITHIN_S))
        if self._stacks is not None:
            self._stacks.close(is_left=self._has_raised)
        self._close(is_removed=True)

    def tell_of(self, exc: BaseException | None) -> None:
        """An exception ends what is recorded here; None: none does."""
        if exc is not None and self._unhandled is not None:
            self._unhandled.tell_of(exc)

    def forget(self) -> None:
        """In a forked child: all of it is its parent's."""
        if self._unhandled is not None:
            self._unhandled.put_back()
        if self._stacks is not None:
            self._stacks.close(is_left=True)
        self._close(is_removed=False)

    def _open(self) -> None:
        path = self._live_file.with_suffix(layout.ASK_SUFFIX)
        if not os.path.lexists(path):
            os.mkfifo(path, documents.FILE_MODE)
        # Both ends are ours: it is never at an end, and opening it waits for nobody.
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._pipe = OwnDescriptor.of(number, path.name)

    def _close(self, is_removed: bool) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
        if is_removed:
            with faults.noted("last_words", OSError):
                self._live_file.with_suffix(layout.ASK_SUFFIX).unlink(missing_ok=True)

    def _answer(self) -> bool:
        """Sleep until it is asked, then write."""
        pipe = self._pipe
        if pipe is None or not pipe.is_ours:
            return False
        asked = self.background.rest(lambda: os.read(pipe.number, _READS_BYTES))
        if self.background.is_pausing or self._stacks is None:
            return True
        if stacks.ASK_THREADS in asked or stacks.ASK_ALL in asked:
            self._stacks.write("asked")
            self._learn()
            if stacks.ASK_ALL in asked:
                self._also()
            self._stacks.say(stacks.TOLD, {})
        if stacks.NEWS in asked:
            news = documents.read_small(self._live_file.with_name(layout.INCIDENT_NEWS), _READS_BYTES) or b""
            faults.say_once(news.decode("utf-8", "backslashreplace"))
        return True

    def _wake(self) -> None:
        """Also where the pipe was removed, or its number closed by the program: who sleeps in it hears of neither."""
        with faults.noted("last_words", OSError):
            if self._pipe is not None and not (self._pipe.is_ours or self._pipe.is_removed):
                self._open()
            if self._pipe is not None:
                os.write(self._pipe.number, b"\0")

    def _of_exception(self, about: dict[str, object]) -> None:
        if self._stacks is not None:
            who = {"host": identity.name_host(), "pid": os.getpid(), **identity.read_current()}
            self._stacks.say(stacks.EXCEPTION, {**about, "who": who})
            self._has_raised = True
