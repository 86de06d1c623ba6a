"""One recording of any backend: the order of its steps, and what holds whatever the profiler under it does.

Never two sessions in one process; started and stopped on one thread; a stop is always tried; nothing raises; what a
profiler says is not believed (torch_npu and MindSpore print errors and go on), what it left on disk is.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Protocol, Sequence, TypeVar

from ... import faults
from ...errors import MstxkitError
from ...host.folders import size_bytes
from ...store.session_file import SessionOutcome
from ..declare import Options, Preset

T = TypeVar("T")


class Refused(MstxkitError):
    """A session cannot begin, for a reason that is no fault: it goes into the outcome as it is."""


class Profiler(Protocol):
    """A profiler that has been built for one recording. Its calls may raise, but for `is_recording`."""

    on_disk: bool  # does it write while it records?
    notes: list[str]  # what is good to know, and no problem; it may grow until the stop
    start: Callable[[], None]
    stop: Callable[[], None]  # ends, and has everything on disk
    close: Callable[[], None]  # the last resort, where it still records after `stop`
    is_recording: Callable[[], bool | None]  # on this thread; None where that cannot be found out
    output: Callable[[], Path | None]  # what it wrote, once there is something
    # What an output must hold and does not. The text: a range's name, where its data can be looked through.
    lacking: Callable[[Path, str], str | None]


class Backend(Protocol):
    """A profiler that sessions are made with: `mstxkit.profiling.backends.<name>.BACKEND`."""

    name: str  # as in `backends.list_backends()`; that of the framework's module, too
    on_disk: bool  # does it write while it records? Else no limit of bytes can hold
    recorder: Any  # class of its `Profiler`s, made of options, folder and limit in bytes

    def device(self) -> int | None:
        """The device that this thread uses, as this process numbers them; None where it has none. No wait for it."""
        return None

    def why_not(self) -> str | None:
        """Why it cannot record in this process now; None if it can. Imports nothing."""

    def why_not_now(self, preset: Preset) -> str | None:
        """Why it cannot begin with this preset here, where it can record; None if it can."""

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """A preset by the profiler's own names, and what this version drops; as for the newest where not imported."""

    def start(self, preset: Preset, folder: Path, limit_bytes: int | None = None) -> ProfilerSession:
        """Begin to record on this thread, below `folder`, which is made. Never raises.

        At `limit_bytes` the owner ends the session; the profiler's own limit, if it has one, is set a little above.
        """

        def build(made: Path) -> Profiler:
            reason = self.why_not() or self.why_not_now(preset)
            if reason:
                raise Refused(reason)
            recorder: Profiler = self.recorder(self.described(preset)[0], made, limit_bytes)
            return recorder

        return ProfilerSession.begun(self.name, folder, build)


Build = Callable[[Path], Profiler]

# By process, so that a forked child does not take its parent's session for its own. setdefault and pop are atomic.
_open: dict[int, ProfilerSession] = {}


class ProfilerSession:
    """One recording of the backend `name`, from its start to `stop`, both on the same thread. No call of it raises."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._owner = (os.getpid(), threading.get_ident())
        self._recorder: Profiler | None = None
        self._outcome: SessionOutcome | None = None
        self._problems: list[str] = []
        self._start_ns = 0

    @classmethod
    def begun(cls, name: str, folder: Path, build: Build) -> ProfilerSession:
        """A session that records, or whose `stop` says why it does not. `build` is called right before the start."""
        session = cls(name, folder)
        other = _open.setdefault(os.getpid(), session)
        if other is not session:
            session._problems.append(f"refused: a session of {other.name} records in this process already")
            return session
        try:
            session._begin_recording(build)
        finally:
            if not session.is_running:
                _open.pop(os.getpid(), None)
        return session

    @property
    def is_running(self) -> bool:
        """Does it record? False at once where the start went wrong: `stop` says why."""
        return self._recorder is not None

    def bytes_so_far(self) -> int | None:
        """Raw data on disk up to now, by a look at every file; None where they are in memory until the stop."""
        recorder = self._recorder
        if recorder is None:
            return None if self._outcome is None else self._outcome.bytes
        try:
            return size_bytes(recorder.output()) if recorder.on_disk else None
        except OSError:
            return None

    def stop(self, steps: Sequence[int] = (), holds: str = "") -> SessionOutcome:
        """End the recording, of these training steps. A second call gives the same outcome.

        `holds` names a range that the data must hold, as far as this profiler's can be looked through.

        On another thread, or in a forked child, nothing is touched: the outcome says so, and the owner may still stop.
        """
        if self._outcome is not None:
            return self._outcome
        if self.is_running and self._owner != (os.getpid(), threading.get_ident()):
            return self._nothing(steps, "not stopped: only the thread that started a session may stop it")
        self._outcome = self._end_it(self._recorder, steps, holds) if self._recorder else self._nothing(steps)
        return self._outcome

    def _nothing(self, steps: Sequence[int], *more: str) -> SessionOutcome:
        problems = (*self._problems, *more)
        return SessionOutcome(None, tuple(steps), self._start_ns, 0, 0, problems)

    def _begin_recording(self, build: Build) -> None:
        is_made, _ = self._try_action("start", lambda: self._folder.mkdir(parents=True, exist_ok=True, mode=0o700))
        recorder = self._try_action("start", lambda: build(self._folder))[1] if is_made else None
        if recorder is None:
            return
        try:
            started, _ = self._try_action("start", recorder.start)
        except BaseException:  # an interrupt, which goes on to the program
            self._stop_recorder(recorder)
            raise
        self._start_ns = time.time_ns()
        if started and recorder.is_recording() is not False:
            self._recorder = recorder
            return
        if started:
            self._problems.append(f"{self.name} did not start: it said so in its own log, if at all")
        self._stop_recorder(recorder)
        self._start_ns = 0

    def _end_it(self, recorder: Profiler, steps: Sequence[int], holds: str) -> SessionOutcome:
        end_ns = time.time_ns()
        if recorder.is_recording() is False:
            self._problems.append(f"{self.name} had ended before it was told to: somebody else stopped it")
        try:
            self._stop_recorder(recorder)
        except BaseException:  # an interrupt, which goes on to the program
            self._problems.append("the stop was interrupted: data may be missing")
            self._close_recorder(recorder)
            raise
        finally:
            self._recorder = None
            _open.pop(os.getpid(), None)
        could_look, output = self._try_action("look", recorder.output)
        is_whole, lacking = False, "nothing was written" if could_look else None
        if output is not None:  # does it hold what it must?
            is_whole, lacking = self._try_action("look", lambda: recorder.lacking(output, holds))
        self._problems += [lacking] if lacking else []
        return SessionOutcome(
            output, tuple(steps), self._start_ns, end_ns, size_bytes(output), tuple(self._problems),
            is_whole and not lacking, tuple(recorder.notes),
        )  # fmt: skip

    def _stop_recorder(self, recorder: Profiler) -> None:
        self._try_action("stop", recorder.stop)
        if recorder.is_recording():
            problem = f"{self.name} did not stop when told to, and was closed by force: data may be missing"
            self._problems.append(problem)
            self._close_recorder(recorder)

    def _close_recorder(self, recorder: Profiler) -> None:
        if recorder.is_recording():
            self._try_action("close", recorder.close)
        if recorder.is_recording():
            self._problems.append(f"{self.name} still records: no other session can begin on this thread")

    def _try_action(self, what: str, action: Callable[[], T]) -> tuple[bool, T | None]:
        """Did it go well, and its answer."""
        try:
            return True, action()
        except Refused as exc:
            self._problems.append(f"refused: {exc}")
        except OSError as exc:
            self._problems.append(f"{what}: {exc}")
        except Exception as exc:
            faults.note_fault(f"backends.{self.name}.{what}", exc)
            self._problems.append(f"{what}: {type(exc).__name__}: {exc}")
        return False, None
