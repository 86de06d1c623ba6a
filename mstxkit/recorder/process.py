"""This process's recorder from start to stop: live file, engine, sealer and heartbeat belong together here."""

from __future__ import annotations

import functools
import os
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .. import faults
from ..engine.choose import engine
from ..errors import CaptureError, SettingError
from ..host import clock, descriptors, identity, names
from ..store import layout, livefile, process_pointer, run_file
from . import exits, live
from .background import ENDS_WITHIN_S
from .late_start import LateChildren
from .sealer import Sealer

if TYPE_CHECKING:
    from ..store.care_record import SealedCare
    from ..store.sealed_place import OwnDisk
    from .figures import FiguresHere
    from .sealed import SealedFiles

_CLOCK = struct.Struct("<I4xd")


class RecorderLimits(NamedTuple):
    """What a recorder may use. Defaults suit a training process; all are per process, but for those of sealed files on
    disks (`OF_ALL_PROCESSES`).
    """

    bank_bytes: int = 1 << 20  # size of one bank of the live file, 24 bytes a record
    banks: int = 4  # banks: one is written, the others are ready or being sealed
    slots: int = 1024  # ranges that can be open at once and be seen after a kill
    quota_bytes: int = 256 << 20  # sealed files together; the oldest are dropped beyond it. 0 keeps nothing on disk.
    rotate_bytes: int = 32 << 20  # size at which a sealed file is followed by a new one
    seal_every_s: float = 30.0  # A bank with records is sealed after this many seconds although it is not full
    heartbeat_s: float = 1.0  # seconds between heartbeats
    live_folder: str | None = None  # parent folder for live files instead of /dev/shm
    budget_ratio: float = 0.005  # own cost of ranges over wall time; beyond it the costliest are coalesced. 0: never.
    # How long `stop` and the end of the process wait for a run folder that does not answer. What is not sealed by then
    # stays in the live file, and is sealed later.
    stop_s: float = ENDS_WITHIN_S
    # "local:/a/folder": sealed files are written there, on each host's own disk; None: into the run.
    sealed: str | None = None
    # From there they go into the run, so many megabytes a second, by a process of its own; 0: they stay.
    sealed_mb_s: float = 20.0
    # sealed_host_bytes, sealed_run_bytes: so much is kept of all processes of a host, and in the run; 0: no limit.
    # Beyond it the oldest sealed files are removed, never the newest of a process.
    sealed_host_bytes: int = 0
    sealed_run_bytes: int = 0
    keep_days: float = 0.0  # sealed files that were last written to so many days ago are removed; 0: none is
    care_every_s: float = 120.0  # how often a host looks after that; the run as a whole is looked at a fifth as often


# Of the limits those that are of a host or a run, and so of all its processes: they are handed on in the environment.
OF_ALL_PROCESSES = ("sealed", "sealed_mb_s", "sealed_host_bytes", "sealed_run_bytes", "keep_days", "care_every_s")


class Recorder:
    """The recorder of this process, running from construction to `stop`.
    `run`: the run folder; made if it is missing. `limits`: what it may use, `checked`. `version`: mstxkit's version,
    for the files. `parent`: in a forked child, the name of the process that it was forked from. Raises CaptureError:
    the run folder or the live file cannot be used.
    """

    def __init__(self, run: str | Path, limits: RecorderLimits, version: str, parent: str | None = None) -> None:
        self.limits = limits
        descriptors.leave_standard_ones()
        self.run, self.run_id = run_file.open_run_folder(run)
        self.pid, self.late_children = os.getpid(), LateChildren()
        self._closing, self._is_closed = threading.Lock(), False
        self.is_sealed = False  # is all that it had in the run folder?
        self.clock = clock.choose_clock(engine.NATIVE)
        who = {**identity.of_process(self.run_id, engine.NATIVE, version), "parent": parent}
        self._disk: OwnDisk | None = None
        if limits.sealed:
            from ..store.sealed_place import OwnDisk

            self._disk = OwnDisk(limits.sealed, self.run, self.run_id)
        shape = livefile.Layout(limits.slots, limits.banks, limits.bank_bytes // 4096 * 4096)
        self.live = live.make_file(self.run, who, shape, limits.live_folder, engine.NATIVE)
        self._figures: FiguresHere | None = None
        try:
            if self._disk is not None:
                self._disk.announce()
            self.sealer = Sealer(self.live, self._files, limits.seal_every_s, limits.budget_ratio)
            self.sealer.each_tick.append(self.late_children.count)
            self._begin()
        except BaseException as exc:
            engine.detach()
            live.remove_file(self.live)
            if isinstance(exc, (RuntimeError, OSError)):  # no thread can be started, no file opened
                raise CaptureError(f"the recorder cannot be started: {exc}") from exc
            raise

    def _files(self) -> SealedFiles:
        from .sealed import SealedFiles

        limits, disk = self.limits, self._disk
        folder, put_back = (self.run / layout.SEALED, self._put_back) if disk is None else (disk.place, disk.put_back)
        count = functools.partial(livefile.add_to_counter, self.live.view, "evicted")
        return SealedFiles(folder, self.live.name, limits.rotate_bytes, limits.quota_bytes, count, put_back)

    @property
    def name(self) -> str:
        """Of its files."""
        return self.live.name

    @property
    def figures(self) -> FiguresHere:
        """What the job's judge has said last; read ahead from the first time on that anybody asks."""
        if self._figures is None:
            from .figures import FiguresHere

            self._figures = FiguresHere(self.live.path.parent / layout.FIGURES_HERE, self.run_id)
            self.sealer.each_tick.append(self._figures.read_ahead)
        return self._figures

    @property
    def care(self) -> SealedCare | None:
        """What is to be done with the sealed files of this run on this host; None: nothing."""
        limits = self.limits
        if not (self._disk or limits.sealed_host_bytes or limits.sealed_run_bytes or limits.keep_days):
            return None
        from ..store.care_record import SealedCare

        place = None if self._disk is None else self._disk.place
        return SealedCare(
            self.run, self.run_id, self.live.path.parent, place, limits.sealed_mb_s, limits.quota_bytes,
            limits.sealed_host_bytes, limits.sealed_run_bytes, limits.keep_days, limits.care_every_s,
        )  # fmt: skip

    def _begin(self) -> None:
        self._started_ns = time.monotonic_ns()
        engine.detach()
        engine.set_clock(self.clock.kind)
        _CLOCK.pack_into(self.live.view, livefile.CLOCK_AT, engine.clock_kind(), engine.ticks_per_ns())
        self.live.view[livefile.CLOCK_AT + 4] = int(engine.NATIVE)
        engine.attach(self.live.view, self.live.nonce)
        engine.anchor()
        livefile.set_state(self.live.view, livefile.RECORDING)
        self.resume()
        engine.set_recording(True)
        exits.watch_exits(self._say_exit_status)

    def _say_exit_status(self, status: int) -> None:
        if os.getpid() == self.pid:
            livefile.write_exit_status(self.live.view, status)
            live.shrink_file(self.live)

    def _put_back(self) -> None:
        """Somebody has removed the run folder: what comes from now on is kept all the same, and can be found."""
        run_file.put_back_run_folder(self.run, self.run_id)
        process_pointer.write_pointer(self.live.pointer, self.live.path, livefile.read_identity(self.live.view))

    def resume(self) -> None:
        """Start the background threads, unless they run."""
        engine.start_heartbeat(self.limits.heartbeat_s)
        self.sealer.background.start()

    def park(self, deadline: float | None = None) -> int:
        """End the background threads, sealer and heartbeat, around a fork, but wait no longer than `deadline` for the
        sealer. How many have ended?
        """
        return self.sealer.park(deadline) + engine.stop_heartbeat()

    def stop(self, deadline: float | None = None, then: Callable[[], object] = lambda: None) -> None:
        """Seal what is there, say what is open, and remove the live file; where that fails, or is not done by
        `deadline`, the file stays, to be collected later.
        `deadline`: of `time.monotonic`. `then`: called when all that is done; must not raise.

        Done in the sealer's thread: nobody can tell beforehand that a write into the run folder returns.
        """
        engine.set_recording(False)
        if deadline is None:
            deadline = time.monotonic() + self.limits.stop_s
        error = exits.name_error()
        if not self.sealer.background.finish(lambda: self._close_and_seal(error, then), deadline):
            self._close()
            what = (
                f"what processes of {self.run} that are gone have left was more than {self.limits.stop_s:g} s of work: "
                f"the rest stays in {self.live.path.parent}"
                if self.is_sealed
                else f"{self.run} has not answered for {self.limits.stop_s:g} s: what is not sealed stays in "
                f"{self.live.path}"
            )
            by = "to be sealed by the next process of this run here, or by `mstxkit collect`"
            faults.warn_once("recorder.stop", f"{what}, {by}")

    def _close_and_seal(self, error: str | None, then: Callable[[], object]) -> None:
        # Before anything that may hang, and again once nothing ends any more.
        self._try("recorder.hand_over", lambda: self.sealer.handing_over.hand_over(everything=True))
        self._try("recorder.seal", self.sealer.seal_full_banks)
        self._close()
        self._try("recorder.hand_over", lambda: self.sealer.handing_over.hand_over(everything=True, is_end=True))
        self.is_sealed = self._try("recorder.stop", lambda: self.sealer.seal_the_rest(error))
        (live.take_away if self.is_sealed else live.let_go)(self.live)
        then()
        if self.is_sealed:
            live.remove_file(self.live)

    def _close(self) -> None:
        """Nothing changes in the live file from here on: no range is both ended and open. Touches no run folder."""
        if not self._closing.acquire(timeout=ENDS_WITHIN_S):  # its holder may wait for an import that this interrupts
            return
        try:
            if self._is_closed:
                return
            self._is_closed = True
            exits.leave_off()
            engine.stop_heartbeat()
            engine.anchor()
            self.late_children.count()
            self._try("recorder.coalesced", self.sealer.finish)
            self.sealer.close()
            engine.detach()
            livefile.set_state(self.live.view, livefile.CLOSED)
            self._try("recorder.identity", self.sealer.learn_identity)
        finally:
            self._closing.release()

    def discard(self) -> None:
        """Stop without a trace: nothing of this process is kept."""
        engine.set_recording(False)
        exits.leave_off()
        self.park()
        self.sealer.let_go()
        engine.detach()
        self._try("recorder.discard", self.sealer.handing_over.forget)
        live.remove_file(self.live)

    def _try(self, where: str, act: Callable[[], object]) -> bool:
        with faults.noted(where):
            act()
            return True
        return False

    def learn_identity(self) -> None:
        """Rank and role are known now: write them down before anything can happen. Never raises."""
        self._try("recorder.identity", self.sealer.learn_identity)

    def own_cost_ratio(self) -> float:
        """CPU time of the sealer's thread and the estimated cost of ranges, over the time since the start."""
        cost_ns = livefile.read_counters(self.live.view)["own_cost_ns"]
        return cost_ns / max(time.monotonic_ns() - self._started_ns, 1)

    def governed(self) -> dict[str, Any]:
        """The budget, what ranges cost in the last second, both over wall time, and the names coalesced for that."""
        budget_ratio, governor = self.sealer.budget_ratio, self.sealer.governor
        if governor is None:  # for the first second
            return {"budget_ratio": budget_ratio, "cost_ratio": 0.0, "coalescing": []}
        held = sorted(names.as_text(site.name) for site in governor.held)
        return {"budget_ratio": budget_ratio, "cost_ratio": governor.cost_ratio, "coalescing": held}

    def abandon(self) -> None:
        """In a forked child: let go of the parent's live file without touching it."""
        engine.set_recording(False)
        exits.leave_off()
        engine.detach()
        self.sealer.let_go()
        live.forget_file(self.live)


def check_limits(limits: RecorderLimits) -> RecorderLimits:
    """The same, with a live folder that is absolute. Raises SettingError: one of them cannot be."""
    least = {"bank_bytes": 16 << 10, "banks": 2, "slots": 1, "quota_bytes": 0, "rotate_bytes": 64 << 10}
    least |= {"sealed_host_bytes": 0, "sealed_run_bytes": 0}
    for field, minimum in least.items():
        value = getattr(limits, field)
        if not isinstance(value, int) or value < minimum:
            raise SettingError(field, repr(value), f"an int of at least {minimum} is needed")
    seconds = dict.fromkeys(("seal_every_s", "heartbeat_s", "stop_s", "care_every_s"), (0.01, 86400, " of seconds"))
    for field, (low, high, of) in {
        **seconds, "budget_ratio": (0, 1, ""), **dict.fromkeys(("sealed_mb_s", "keep_days"), (0, 1_000_000, "")),
    }.items():  # fmt: skip
        value = getattr(limits, field)
        if not isinstance(value, (int, float)) or not low <= value <= high:
            raise SettingError(field, repr(value), f"a number{of} from {low} to {high} is needed")
    if limits.sealed:
        from ..store import local_place

        local_place.given_in(limits.sealed, "sealed")
    if limits.live_folder is None:
        return limits
    if not isinstance(limits.live_folder, (str, os.PathLike)):
        raise SettingError("live_folder", repr(limits.live_folder), "a folder is needed")
    # Once and for all: the program may go to another folder, and who seals what it leaves is in another one.
    return limits._replace(live_folder=os.path.abspath(limits.live_folder))
