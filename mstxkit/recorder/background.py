"""A thread of ours: held at rest around a fork, or paused, as at the end; left behind where it hangs.

It may be in the middle of a write that a dead file system never answers. Whoever pauses it then goes on without it. It
ends by itself once the write returns, or goes on if it was started again by then: there is never a second one.
"""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any, Callable, TypeVar

from .. import faults
from ..host import threads
from . import forking

# What the end of capture, or of the process, waits for a run folder that does not answer, unless it is told otherwise.
ENDS_WITHIN_S = 2.0
# After a fault that no turn expects: the next turn may succeed, but not at once.
_AFTER_A_FAULT_S = 1.0
# Between two looks whether a fork that it has made way for is over.
_GIVES_WAY_S = 0.0005
T = TypeVar("T")


class Background:
    """One thread that takes turn after turn, until it is paused or a turn says that there is nothing left to do.
    `name`: of the thread. `turn`: one piece of work, called again and again; False: it was the last. `wake`: ends the
    sleep that a turn may be in.

    Threads/fork: `start` and `pause` from any thread. A forked child makes a new object, and does not touch this one.
    """

    def __init__(self, name: str, turn: Callable[[], bool], wake: Callable[[], None] = lambda: None) -> None:
        self._name, self._turn, self._wake = name, turn, wake
        self._pausing = threads.Latch()
        self._changing = threads.kernel_lock()
        self._thread: threading.Thread | None = None
        self._next: threading.Thread | None = None  # made beforehand: it takes 0.15 ms of the fork it is started after
        self._asked: threading.Thread | None = None  # to end; it may have done so
        self._last: Callable[[], object] | None = None
        # Held by the thread, but where it rests; and by a fork, which then finds none of its locks taken.
        self._working = threads.kernel_lock()
        self._is_asked = self._is_held = False
        self._ident = 0  # of the thread

    def start(self) -> None:
        """Start the thread; one that was left behind goes on. Raises RuntimeError: no thread can be started. At the end
        of the interpreter, from Python 3.12 on, there is none, and nobody is told: `finish` does without.
        """
        with self._changing:
            self._pausing.clear()
            self._asked = None
            if self._thread is None:
                if (library := threads.replaced_by()) is not None:
                    raise RuntimeError(
                        f"{library} has replaced threads by tasks, which would wait in place of the program: leave "
                        "threads out (monkey.patch_all(thread=False), eventlet.monkey_patch(thread=False)), or this "
                        "process (MSTXKIT_OFF=1)"
                    )
                thread = self._next or threading.Thread(target=self._run, name=self._name, daemon=True)
                self._next = None
                try:
                    threads.start_unwaited(thread)
                    self._thread = thread
                except RuntimeError as exc:
                    if not str(exc).endswith("at interpreter shutdown"):  # CPython 3.12 to 3.14, _threadmodule.c
                        raise

    def pause(self, deadline: float | None = None) -> bool:
        """End the thread after the turn that it is in; wait no longer than `deadline` (of `time.monotonic`; None: as
        long as it takes). Has a thread ended? False where there was none, and where it is left behind.
        """
        self.ask()
        thread, self._asked = self._asked, None
        return thread is not None and threads.wait_for(thread, deadline)

    def ask(self) -> None:
        """Have the thread end after the turn that it is in; `pause` waits for that."""
        with self._changing:
            self._asked = self._thread or self._asked
            self._pausing.set()
        if self._asked is not None:
            self._wake()

    def hold(self, deadline: float) -> bool:
        """Around a fork: let it rest until `go_on`. False: it does not by then, and is left behind."""
        self._is_asked = True
        self._is_held = self._is_held or self._working.acquire(timeout=max(0.0, deadline - time.monotonic()))
        return self._is_held

    def go_on(self) -> None:
        """After `hold_threads`, whatever that gave."""
        self._is_asked, was_held, self._is_held = False, self._is_held, False
        if was_held:
            self._working.release()

    def rest(self, wait: Callable[[], T]) -> T:
        """In a turn, with no lock taken: wait for something, whether a fork comes meanwhile or not."""
        if threading.get_ident() != self._ident:
            return wait()  # its work is done by another thread, at the end
        self._working.release()
        try:
            return wait()
        finally:
            self._working.acquire()

    def give_way(self) -> bool:
        """In the midst of a long turn, with no lock taken: let a fork pass. Shall the turn go on?"""
        while self._is_asked:
            self.rest(lambda: time.sleep(_GIVES_WAY_S))
        return not self.is_pausing

    def finish(self, last: Callable[[], object], deadline: float) -> bool:
        """End the thread with one last piece of work, done in it after the turn that it is in; where there is no
        thread, here. No new thread is begun: from Python 3.12 on there can be none at the end of the interpreter.

        Is it done by `deadline` (of `time.monotonic`)? Else it is left behind, and done when what it waits for answers.
        `last` must not raise.
        """
        with self._changing:
            thread = self._thread
            self._last = last if thread is not None else None
            self._pausing.set()
        if thread is None:
            last()
            return True
        self._wake()
        return threads.wait_for(thread, deadline)

    def sleep(self, seconds: float) -> None:
        """In a turn: wait, but not while it is paused."""
        self.rest(lambda: self._pausing.wait(seconds))

    @property
    def runs(self) -> bool:
        """Is there a thread, perhaps one that was left behind?"""
        return self._thread is not None

    @property
    def lacks_cpu(self) -> bool:
        """Does it work, or wait for a CPU to work on? Else it sleeps, or waits for what is below."""
        thread = self._thread
        return thread is not None and threads.is_runnable(thread.native_id)

    @property
    def is_pausing(self) -> bool:
        """In a turn: shall it end soon?"""
        return self._pausing.is_set

    def _run(self) -> None:
        self._ident = threading.get_ident()
        with self._working:
            self._next = threading.Thread(target=self._run, name=self._name, daemon=True)
            while True:
                try:
                    goes_on = self._turn()
                except Exception as exc:
                    faults.note_fault(self._name, exc)
                    self.sleep(_AFTER_A_FAULT_S)
                    goes_on = True
                with self._changing:
                    last = self._last
                    if last is None and (self._pausing.is_set or not goes_on):
                        if not self._pausing.is_set:
                            forking.leave_thread()
                        self._thread = None
                        return
                if last is not None:
                    last()
                    return


_held: list[Background] = []


def hold_threads(ours: list[Background], deadline: float) -> None:
    """Around a fork: have these rest, those first that do so now; who does not by then is left behind."""
    _held[:] = ours
    for background in [background for background in ours if not background.hold(0.0)]:
        background.hold(deadline)


def go_on() -> None:
    """After `hold_threads`."""
    while _held:
        _held.pop().go_on()


class Postponed:
    """What works beside a recorder: a thread of ours loads and makes it once there is work for it.
    `maker`: the function that makes it, as `module:name`. `arguments`: what that is called with. `is_wanted`: is there
    work for it?
    """

    def __init__(self, maker: str, *arguments: Any, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._maker, self._arguments, self._is_wanted = maker, arguments, is_wanted
        self._making = threads.kernel_lock()
        self.made: Any = None

    def get(self) -> Any:
        """It; None while there is no work for it."""
        with self._making:
            if self.made is None and self._is_wanted():
                module, _, name = self._maker.partition(":")
                self.made = getattr(import_module(module), name)(*self._arguments)
            return self.made

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of it; None while there is no work for it."""
        made = self.get()
        return None if made is None else getattr(made, method)(*arguments)

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method of it, if it has been made."""
        if self.made is not None:
            getattr(self.made, method)(*arguments)
