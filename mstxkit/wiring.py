"""Capture on and off: the one place that starts and stops this process's recorder, and carries it over fork, spawn
and exit.

`capture()` is configuring: what it is told wrongly raises `CaptureError`. Everything after that only counts faults.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Callable, NamedTuple

from . import faults, identity, names
from .errors import CaptureError, MstxkitError

RUN_VARIABLE = "MSTXKIT_RUN"


class _Wiring:
    """The recorder of this process, and what must be put back when it stops."""

    recorder: Any = None
    adopter: Any = None
    standby: Any = None
    settings: Any = None
    environment_before: dict[str, str | None] = {}
    hooks_are_set = False
    lock = threading.RLock()


_wiring = _Wiring()
# Called in this process each time a recorder has started in it, a forked child's among them.
when_started: list[Callable[[], None]] = []


class Status(NamedTuple):
    """What mstxkit does in this process at this moment."""

    on: bool
    native: bool
    clock: str
    clock_reason: str
    run: str | None
    live_file: str | None
    sinks: dict[str, str]
    session: str | None
    counters: dict[str, int]
    faults: dict[str, int]
    own_cost_ratio: float | None
    coalesced: dict[str, int] = {}
    governor: dict[str, Any] = {}


class Capture:
    """A running capture. A context manager; `stop` may be called more than once.

    Attributes:
        run: The run folder; None with MSTXKIT_OFF=1.
    """

    def __init__(self, run: Path | None) -> None:
        self.run = run

    def stop(self) -> None:
        """Stop recording in this process and seal what it has. Its children go on by themselves."""
        if self.run is not None:
            stop(self.run)

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Capture({str(self.run)!r})"


def is_off() -> bool:
    """Is mstxkit switched off for the life of this process (MSTXKIT_OFF=1)?"""
    return os.environ.get("MSTXKIT_OFF", "0") not in ("", "0")


def capture(
    run: str | os.PathLike[str] | None = None, *, config: dict[str, Any] | None = None, **overrides: Any
) -> Capture:
    """Start the always-on recorder in this process, and by way of MSTXKIT_RUN in the children it starts from now on.

    Args:
        run: The run folder; made if it is missing. Default: MSTXKIT_RUN, else `mstxkit-runs/<time>` here.
        config: Limits by name, as in `overrides`.
        overrides: Limits of this recorder: bank_bytes, banks, slots, quota_bytes, rotate_bytes, seal_every_s,
            heartbeat_s, live_folder, budget_ratio. And what this process and its children do about requests:
            poll_every_s, light, cooldown_s, session_s, hour_s, run_s, agreement_s, transport_s, run_bytes
            (`control.standby.Settings`). Each also as MSTXKIT_<NAME> in the environment.

    Raises:
        CaptureError: the folder or a limit cannot be used, or this process captures into another run already.

    Cost: a few milliseconds once: the live file is made and its pages are faulted in.
    """
    if is_off():
        return Capture(None)
    from .bootstrap import settings

    with _lock():
        folder = _run_folder(run)
        if _wiring.recorder is not None:
            return _joined(folder)
        limits, _wiring.settings = settings.told(config, overrides)
        recorder = _new_recorder(folder, limits)
        _take(recorder)
        _tell_children({RUN_VARIABLE: str(recorder.run), **settings.as_variables(config, overrides)})
        _set_hooks()
        _stop_with_multiprocessing()
        _wiring.adopter = _new_adopter(recorder.run)
        _wiring.adopter.start()
        _tell_started()
        _arrange_for_ray()
        return Capture(recorder.run)


def _arrange_for_ray() -> None:
    """Workers of a Ray job are no children of this process: they are told by `ray.init`."""
    from .bootstrap import ray

    for note in ray.arrange("capture"):
        faults.warn_once("capture and Ray", note)


def _leave_ray() -> None:
    from .bootstrap import ray

    ray.undo("capture")


def _tell_started() -> None:
    for call in list(when_started):
        try:
            call()
        except Exception as exc:
            faults.note("wiring.when_started", exc)


def recorded_process() -> tuple[Path, str] | None:
    """The run folder that this process records into, and the name of its files there; None while it does not."""
    recorder = _wiring.recorder
    return None if recorder is None or recorder.pid != os.getpid() else (recorder.run, recorder.live.name)


def _lock() -> Any:
    """The lock of this process. A child forked from C has inherited a recorder: it must not touch its parent's file."""
    recorder = _wiring.recorder
    if recorder is not None and recorder.pid != os.getpid():
        _take(None)
        _wiring.adopter = None
        _wiring.lock = threading.RLock()
        recorder.abandon()
    return _wiring.lock


def _take(recorder: Any) -> None:
    _wiring.recorder = recorder
    identity.on_learnt = None if recorder is None else recorder.learn_identity
    _wiring.standby = None if recorder is None else _new_standby(recorder)


def _new_standby(recorder: Any) -> Any:
    from .control.standby import Place, Standby

    standby = Standby(Place(recorder.run, recorder.run_id, recorder.live.path.parent), _wiring.settings)
    recorder.sealer.each_second = standby.consider
    return standby


def _run_folder(run: str | os.PathLike[str] | None) -> Path:
    if run is None:
        run = os.environ.get(RUN_VARIABLE) or Path("mstxkit-runs") / time.strftime("%Y%m%d-%H%M%S")
    try:
        return Path(os.path.realpath(run))
    except (TypeError, ValueError) as exc:
        raise CaptureError(f"run={run!r} (of capture or {RUN_VARIABLE}) is no path: {exc}") from exc


def _joined(folder: Path) -> Capture:
    current = _wiring.recorder.run
    if current != folder:
        raise CaptureError(f"this process captures into {current}; stop that first, then capture into {folder}")
    return Capture(current)


def _new_recorder(folder: Path, limits: Any) -> Any:
    from . import __version__
    from .recorder.process import Recorder

    return Recorder(folder, limits, __version__)


def _new_adopter(folder: Path) -> Any:
    from .recorder.adopt import Adopter

    return Adopter(folder)


def stop(run: Path | None = None) -> None:
    """Stop the recorder of this process, if it records into `run` (None: whatever it records into). Never raises."""
    _end("stop", run)


def discard() -> None:
    """Stop the recorder and leave nothing of this process in the run: for our own commands, which only look at runs."""
    _end("discard", None)


def _end(how: str, run: Path | None) -> None:
    with _lock():
        recorder, adopter, standby = _wiring.recorder, _wiring.adopter, _wiring.standby
        if recorder is None or (run is not None and recorder.run != run):
            return
        _take(None)
        _wiring.adopter = None
        try:
            adopter.leave_off()
            standby.stop()
            getattr(recorder, how)()
        except Exception as exc:
            faults.note(f"wiring.{how}", exc)
        _put_back_environment()
        _leave_ray()


def _tell_children(variables: dict[str, str]) -> None:
    _wiring.environment_before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)


def _put_back_environment() -> None:
    for name, value in _wiring.environment_before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def start_from_environment() -> None:
    """Capture into MSTXKIT_RUN, if it is set. Never raises: a bad folder is logged, and the program runs unrecorded."""
    if not os.environ.get(RUN_VARIABLE) or is_off():
        return
    try:
        capture()
    except Exception as exc:
        faults.note("capture from the environment", exc)


def _set_hooks() -> None:
    """Once per process: none of them can be taken back, all of them do nothing while nothing is captured."""
    if not _wiring.hooks_are_set:
        from .recorder import forking

        _wiring.hooks_are_set = True
        atexit.register(stop)
        os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
        )
        forking.watch_forks()


def _before_fork() -> None:
    """End our threads: they do not survive a fork, could hold locks in it, and Python 3.12 warns of them."""
    _lock().acquire()
    try:
        if _wiring.recorder is not None:
            from .recorder import forking

            forking.end_threads(_park)
    except Exception as exc:
        faults.note("wiring.before_fork", exc)


def _park() -> int:
    # The recorder's first: its thread may just be going on duty.
    return int(_wiring.adopter.leave_off()) + int(_wiring.recorder.park()) + int(_wiring.standby.park())


def _after_fork_in_parent() -> None:
    try:
        if _wiring.recorder is not None:
            from .recorder import forking

            forking.start_threads(_resume)
    except Exception as exc:
        faults.note("wiring.after_fork", exc)
    finally:
        _wiring.lock.release()


def _resume() -> None:
    with _lock():
        if _wiring.recorder is not None:
            _wiring.recorder.resume()
            _wiring.standby.resume()
            _wiring.adopter.start()


def _after_fork_in_child() -> None:
    parent, _wiring.adopter = _wiring.recorder, None
    _take(None)
    _wiring.lock = threading.RLock()
    faults.reset()
    if parent is None:
        return
    try:
        parent.abandon()
        if not _is_about_to_exec(sys._getframe().f_back):
            _take(_new_recorder(parent.run, parent.limits))
            _wiring.adopter = _new_adopter(parent.run)
            _stop_with_multiprocessing()
            _tell_started()
    except Exception as exc:
        faults.note("wiring.in_forked_child", exc)


def _is_about_to_exec(caller: FrameType | None) -> bool:
    """A child of `subprocess` with a `preexec_fn` runs Python for a moment: a live file would outlast it, with
    nothing in it.

    Source: CPython 3.9 to 3.13, `subprocess.py`, `Popen._execute_child`, which calls `_posixsubprocess.fork_exec`.
    """
    return caller is not None and caller.f_code.co_name == "_execute_child"


class _Token:
    """multiprocessing keys its after-fork calls by a living object."""


_token = _Token()


def _stop_with_multiprocessing() -> None:
    """A child of multiprocessing leaves by os._exit (fork, forkserver), past atexit: stop by its own finalizers.

    Source: CPython 3.9 to 3.13, `multiprocessing/process.py`, `BaseProcess._bootstrap`: finalizers are cleared, then
        after-fork
    calls run; so both what is captured before it (a fork, an import of the main module) and what its target captures
    is stopped.
    """
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is None or process is None:
        return
    util.register_after_fork(_token, lambda token: util.Finalize(None, stop, exitpriority=-100))
    if process.parent_process() is not None:
        util.Finalize(None, stop, exitpriority=-100)


def live_view() -> memoryview | None:
    """The live file this process writes, or None: for `mstxkit.testing`."""
    recorder = _wiring.recorder
    return None if recorder is None else recorder.live.view


def status() -> Status:
    """What mstxkit does in this process: on or off, which engine and clock, where to, what was lost."""
    if is_off():
        return Status(False, False, "", "MSTXKIT_OFF is set", None, None, {}, None, {}, {}, None)
    from . import clock, livefile, sinks
    from .recorder.engine import engine

    with _lock():
        recorder = _wiring.recorder
    counters = dict(engine.counters())
    if recorder is not None:
        counters.update(livefile.read_counters(recorder.live.view))
    reason = recorder.clock.reason if recorder is not None else clock.choose(engine.NATIVE).reason
    return Status(
        on=recorder is not None,
        native=engine.NATIVE,
        clock=livefile.CLOCKS.get(engine.clock_kind(), "?"),
        clock_reason=reason,
        run=None if recorder is None else str(recorder.run),
        live_file=None if recorder is None else str(recorder.live.path),
        sinks=sinks.states(),
        session=None if recorder is None else _wiring.standby.doing(),
        counters=counters,
        faults=dict(faults.counts),
        own_cost_ratio=None if recorder is None else recorder.own_cost_ratio(),
        coalesced=_coalesced(engine.site_costs()),
        governor={} if recorder is None else recorder.governed(),
    )


def _coalesced(costs: list[tuple[Any, int, int, int]]) -> dict[str, int]:
    """Site name to calls that were not recorded one by one, since the process began."""
    found: dict[str, int] = {}
    for site, _, _, calls in costs:
        if calls:
            name = names.as_text(site.name)
            found[name] = found.get(name, 0) + calls
    return found


def stage_times(step: int | None = None) -> dict[str, float]:
    """Stage to seconds in this process: of `step`, or of the last finished one. {} while nothing is recorded."""
    if is_off():
        return {}
    from .recorder.engine import engine

    return engine.stage_times(step)


__all__ = ["Capture", "CaptureError", "MstxkitError", "Status", "capture", "stage_times", "status"]
