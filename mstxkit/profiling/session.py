"""One profiler session of this process, from an order to what became of it: device, folder, backend and session.json.

`begin` and `end` are calls of the thread that trains; they alone take time, and nothing is raised into it. Whatever
goes wrong, the device is given back and session.json says what happened. An interrupt goes on to the program then.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Sequence

from .. import __version__, faults
from ..errors import MstxkitError
from ..host import threads
from ..store.session_file import Order as Order
from ..store.session_file import SessionFile, SessionOutcome, SessionStart
from . import backends, guard, metadata, theirs
from .backends._session import Backend, ProfilerSession
from .declare import Recorded as Recorded
from .presets import made_preset as made_preset

# Looking how much there is takes at most a fiftieth of the looker's time, and not more often than 5 times a second.
_LOOK_EVERY_NS, _LOOK_SHARE = 200_000_000, 50
_importing: list[threading.Thread] = []
# Less room than that on the disk: nothing begins, as CANN (collector, `file_ageing.cpp`) records nothing below 20 MB;
# at the end, what was to be written may be missing.
_ROOM_TO_BEGIN_BYTES, _ROOM_AT_END_BYTES = 32 << 20, 1 << 16


def import_ahead(begins: bool = True) -> bool:
    """While a request waits: have what the profiler imports as it first starts, seconds of it, imported by a thread of
    ours. Once a process; never raises. `begins`: False: only look. Returns: is something of it not there yet?
    """
    if not _importing:
        backend = backends.find_profiler()[0]
        late = () if backend is None else getattr(backends.load_backend(backend), "imports_late", ())
        names = [name for name in late if name not in sys.modules]
        if not names or not begins:
            return bool(names)
        _importing.append(threading.Thread(target=_import_all, args=[names], name="mstxkit-imports", daemon=True))
        try:
            threads.start_without_signals(_importing[-1])
        except RuntimeError as exc:
            faults.note_fault("session.imports", exc)
    return _importing[-1].is_alive()


def _import_all(names: Sequence[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as exc:  # the profiler meets the same, and says so
            faults.note_fault("session.imports", exc)


@dataclass(eq=False)
class OneSession:
    """This process's session, if any; none in a forked child. `begin` and `end` on one thread, the rest on any."""

    ended: int = 0  # so many
    taken_by: str = ""  # which process had the device, as `begin` was called last, in words; "": none
    claim: guard.Claim | None = None  # of the device, for the last session
    _opened: _Opened | None = None

    @property
    def is_open(self) -> bool:
        """Does a session record, as far as we know?"""
        return self._own_session() is not None

    @property
    def order(self) -> Order | None:
        """What the open session was ordered as."""
        opened = self._own_session()
        return None if opened is None else opened.order

    def begin(self, order: Order) -> str | None:
        """Record from now on: None where that is so, else why not, in whole sentences. `session.json` has the cost."""
        opened, self.taken_by = self._own_session(), ""
        if opened is not None:
            return f"a session of stage {opened.order.stage} is open in this process already"
        try:
            return self._begin_order(order)
        except Exception as exc:
            faults.note_fault("session.begin", exc)
            return f"the session could not begin: {_show_error(exc)}"

    def _begin_order(self, order: Order) -> str | None:
        before_ns = time.perf_counter_ns()
        backend, refused = backends.choose_backend()
        if backend is None:
            return "no profiler can record in this process: " + "; ".join(f"{k}: {why}" for k, why in refused.items())
        device = backend.device()
        physical = None if device is None else guard.physical_device(device)
        claim = guard.take_device(physical, run=order.run_id, stage=order.stage)
        if isinstance(claim, guard.Refusal):
            if (owner := claim.owner) is not None:
                self.taken_by = f"device {owner.device} is taken by process {owner.pid} on {owner.host}"
            return claim.sentence
        # Before it begins: an interrupt right after the start must not leave a session that nobody can end.
        self.claim, opened = claim, _Opened(order, backend, claim)
        self._opened = opened
        try:
            return opened.begin(before_ns)
        finally:
            self._close_unless_recording(opened)

    def end(self, why: str, steps: Sequence[int], holds: str = "") -> Recorded | None:
        """End what is open; None where nothing is. `why` and the recorded training steps go into session.json.
        `holds`: name of a range that was begun and ended in it: data without it are those of something else.

        On a thread that did not begin it nothing is touched, and the session stays open: the problems say so. They
        also say where somebody else ended it meanwhile.
        """
        opened = self._own_session()
        if opened is None:
            return None
        try:
            return opened.end(why, steps, holds)
        except Exception as exc:
            faults.note_fault("session.end", exc)
            return Recorded(None, 0, (f"the session could not be ended as it should: {_show_error(exc)}",), 0, 0)
        finally:
            self._close_unless_recording(opened)

    def _close_unless_recording(self, opened: _Opened) -> None:
        if not opened.records:
            self._opened = None
            if opened.file is not None and not opened.file.is_settled:  # wherever an interrupt of the program has come
                opened.file.fail("an interrupt of the program: what was recorded is as the profiler left it")
            opened.claim.release()
            self.ended += 1

    def bytes_so_far(self) -> int | None:
        """Raw data of the open session on disk, as of the last look; None where there is none, or all is in memory."""
        opened = self._own_session()
        return None if opened is None else opened.bytes_so_far()

    def _own_session(self) -> _Opened | None:
        opened = self._opened
        return opened if opened is not None and opened.pid == os.getpid() else None


@dataclass(eq=False)
class _Opened:
    """One order that is being carried out."""

    order: Order
    backend: Backend
    claim: guard.Claim
    pid: int = field(default_factory=os.getpid)
    file: SessionFile | None = None
    _session: ProfilerSession | None = None
    _size: int | None = None
    _look_at_ns: int = 0

    @property
    def records(self) -> bool:
        return self._session is not None and self._session.is_running

    def begin(self, before_ns: int) -> str | None:
        place = self.order.local or self.order.run
        room = _room_bytes(place)
        if room is not None and room < _ROOM_TO_BEGIN_BYTES:
            left = f"only {room >> 20} MiB are left on the disk of {place}"
            return f"{left}, too little to record; make room there"
        try:
            self.file = SessionFile(self.order.run, self._describe_start())
        except (OSError, MstxkitError) as exc:
            return f"the session's folder cannot be made: {exc}"
        try:
            with theirs.mark_ours():
                self._session = self.backend.start(self.order.preset, self.file.data, self.order.bytes)
        except BaseException:  # an interrupt, which goes on to the program
            self.file.fail("the start was interrupted")
            raise
        self.file.document["start_cost_ns"] = time.perf_counter_ns() - before_ns
        if self.records:
            return None
        why = "; ".join(self._session.stop().problems)
        why = why or f"{self.backend.name} did not start, and does not say why"
        self.file.fail(why)
        return why

    def end(self, why: str, steps: Sequence[int], holds: str) -> Recorded:
        assert self.file is not None and self._session is not None
        before_ns = time.perf_counter_ns()
        try:
            with theirs.mark_ours():
                outcome = self._session.stop(steps, holds)
        except BaseException:  # an interrupt, which goes on to the program
            self.file.fail("the stop was interrupted: data may be missing")
            raise
        if self.records:  # another thread's
            return Recorded(None, 0, outcome.problems, outcome.start_ns, 0)
        try:
            problems = self._complete_data(outcome)
        except BaseException as exc:  # an interrupt, or a fault of ours: the file must not say that it still records
            self.file.end(outcome, why, [f"what was recorded is as the profiler left it: {_show_error(exc)}"])
            raise
        self.file.document["stop_cost_ns"] = time.perf_counter_ns() - before_ns
        unwritten = self.file.end(outcome, why, problems)
        problems += [unwritten] if unwritten else []
        folder = self.file.folder if outcome.is_whole else None
        return Recorded(folder, outcome.bytes, (*outcome.problems, *problems), outcome.start_ns, outcome.end_ns)

    def _complete_data(self, outcome: SessionOutcome) -> list[str]:
        """Add to the data what the profiler cannot know; what is wrong with it or with the disk."""
        assert self.file is not None
        room = _room_bytes(self.file.data)
        is_full = room is not None and room < _ROOM_AT_END_BYTES
        problems = [
            f"no room is left on the disk of {self.order.local or self.order.run}: what was recorded is cut short"
        ] * is_full
        if outcome.folder is None or not outcome.folder.is_dir():
            return problems
        try:
            metadata.complete_metadata(outcome.folder, self.order, self.file.document["distributed_args"])
        except OSError as exc:
            problems.append(f"the profiler's metadata could not be completed: {exc}")
        return problems

    def bytes_so_far(self) -> int | None:
        now_ns = time.monotonic_ns()
        if self._session is not None and now_ns >= self._look_at_ns:
            self._size = self._session.bytes_so_far()
            ended_ns = time.monotonic_ns()
            self._look_at_ns = ended_ns + max(_LOOK_EVERY_NS, _LOOK_SHARE * (ended_ns - now_ns))
        return self._size

    def _describe_start(self) -> SessionStart:
        order, backend = self.order, self.backend
        options, notes = backend.described(order.preset)
        version = str(getattr(sys.modules.get(backend.name), "__version__", ""))
        try:
            sizes = metadata.distributed_args(order.rank, order.world_size)
        except Exception as exc:  # Megatron's asserts, in whatever state it is
            faults.note_fault("session.distributed_args", exc)
            sizes = {"rank": order.rank, "world_size": order.world_size}
        return SessionStart(
            order, None if order.preset.name == "custom" else order.preset.name, options, notes, backend.on_disk,
            backend.name, version, __version__, sizes,
        )  # fmt: skip


def _room_bytes(folder: Path) -> int | None:
    """Room on a disk for this user; None where it cannot be had."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize if disk.f_blocks else None


def _show_error(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}"
