"""This process's recorder and what runs beside it, from start to stop: over fork, spawn and exit.

`bootstrap.capture` starts it, as `mstxkit.capture()`. Once it runs, nothing here raises: faults are counted.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping

from . import __version__, faults
from .engine.choose import engine
from .errors import CaptureError
from .escalation.duty.settings import of_metrics
from .escalation.duty.standby import Standby
from .host import environment, identity, imports
from .host.slow_folder import SlowFolder
from .recorder import current, exits, forking, pool_children
from .recorder.background import Background, Postponed, go_on, hold_threads
from .recorder.last_words import LastWordsHere
from .recorder.late_start import LateStart
from .recorder.process import Recorder


class _Beside:
    """What runs beside the recorder of this process, and what must be put back when it stops."""

    keeper: Postponed | None = None
    rings: Postponed | None = None
    last_words: Any = None
    standby: Any = None
    settings: Any = None
    environment_before: dict[str, str | None] = {}
    hooks_are_set = False
    lock = threading.RLock()
    has_lock = 0  # the thread whose fork is under way and holds it
    at_forks: list[int] = []  # threads that fork; twice where a signal's handler forks in the midst of that
    stops_late: list[tuple[Path | None, BaseException | None]] = []  # and where one stops in the midst of it
    late_start: LateStart | None = None  # of who does not record yet
    inherits_groups = False  # was torch set up in the parent as this child was forked?


_beside = _Beside()
# Called in this process when its recorder has been stopped; not in a child that lets go of its parent's.
when_stopped: list[Callable[[], None]] = []


def start_recording(folder: Path, limits: Any, settings: Any, told_to_children: Mapping[str, str]) -> bool:
    """Record this process, unless it records into this folder already; False then.

    Args:
        folder: The run folder, resolved; made if it is missing.
        limits: What the recorder may use.
        settings: What this process does about requests.
        told_to_children: Variables of the environment while it records.

    Raises:
        CaptureError: the folder or a limit cannot be used, or this process records into another run already.
    """
    _begin_now(limits.stop_s)
    with _lock_of_process():
        if records_into(folder):
            return False
        _beside.settings = settings
        _beside.environment_before = {name: os.environ.get(name) for name in told_to_children}
        os.environ.update(told_to_children)
        try:
            recorder = Recorder(folder, limits, __version__)
        except BaseException:
            environment.put_back(_beside.environment_before)
            raise
        os.environ[environment.RUN_ID] = recorder.run_id
        _take_recorder(recorder)
        _set_hooks()
        pool_children.stop_with_finalizers(_stop_in_child)
        faults.tell_hooks(current.when_started)
        return True


def start_late(slow: SlowFolder, settings: Any, told_to_children: Mapping[str, str]) -> None:
    """As `start_recording`, once a run folder answers that does not now; ranges until then are not recorded."""
    with _lock_of_process():
        _beside.settings = settings
        _beside.environment_before = {name: os.environ.get(name) for name in told_to_children}
        os.environ.update(told_to_children)
        _set_hooks()
        _beside.late_start = LateStart(slow, _begin_late, slow.answers)
        try:
            _beside.late_start.start()
        except RuntimeError as exc:
            raise CaptureError(f"the recorder cannot be started: {exc}") from exc


def is_begun(late: bool = False) -> bool:
    """Does this process record, or will it, once its folder answers (`late`: that only)? Waits for nothing."""
    return _late_start() is not None or (not late and current.of_this_process() is not None)


def records_into(folder: Path) -> bool:
    """Does this process record into that folder? Raises CaptureError: it records into another one."""
    recorder = recorder_here()
    # Whose C engine records without us is an mstxkit that was imported before this one.
    before = Path(os.environ.get(environment.RUN, "")) if engine.recording() else None
    run, late = before if recorder is None else recorder.run, _late_start()
    run = late.parent.run if run is None and late is not None else run
    if run is not None and run != folder:
        raise CaptureError(
            f"this process captures into {run} already: MSTXKIT_RUN, `mstxkit run` or a capture(); "
            f"call capture() without a folder to join it, or stop it before you capture into {folder}"
        )
    return run is not None


def recorder_here() -> Recorder | None:
    """The recorder of this process, if any. Not locked: a finalizer may ask on a thread of ours that a stop awaits."""
    _begin_now()
    return current.recorder if _lock_of_process() else None


def in_force() -> dict[str, Any]:
    """The limits and settings by which this process records, by name."""
    recorder = recorder_here()
    return {} if recorder is None else {**recorder.limits._asdict(), **_beside.settings._asdict()}


def _late_start() -> LateStart | None:
    late = _beside.late_start
    return late if late is not None and late.pid == os.getpid() else None


def _begin_now(wait_s: float = forking.WAITS_AT_MOST_S) -> None:
    if (late := _late_start()) is not None:
        late.now(wait_s)


current.begin_now = _begin_now


def describe_session() -> str | None:
    """What a profiler session records now, in words; None while nothing is."""
    standby = _beside.standby
    return None if standby is None else standby.doing()


def _lock_of_process() -> Any:
    """The lock of this process. A child forked from C has inherited a recorder: it must not touch its parent's file."""
    recorder = current.recorder
    if recorder is not None and recorder.pid != os.getpid():
        _forget_parts()
        identity.forget_part()
        _take_recorder(None)
        _beside.lock = threading.RLock()
        recorder.abandon()
    return _beside.lock


def _take_recorder(recorder: Any, is_forked: bool = False) -> None:
    current.recorder = recorder
    identity.on_learnt = learn = recorder and recorder.learn_identity
    _beside.standby = _beside.keeper = _beside.rings = _beside.last_words = None
    if recorder is not None:
        settings, place = _beside.settings, (recorder.run, recorder.run_id, recorder.live.path.parent)
        standby = Standby(place, settings)
        agent = Postponed("mstxkit.cluster.agent:Agent", *place, bool(settings.judge), of_metrics(settings))
        watching = settings.hang_s, settings.incidents, settings.incidents_bytes
        keeper = Postponed("mstxkit.recorder.keeper:Keeper", recorder, agent, watching, is_forked)
        of_rings = "mstxkit.recorder.rings:open_rings", recorder.live.path, _beside.inherits_groups
        entering = "torch.distributed", "mstxkit.recorder.entries"
        rings = Postponed(*of_rings, is_wanted=lambda: any(map(sys.modules.get, entering)))
        if (entries := sys.modules.get(entering[1])) is not None:
            entries.forget_entries()
        if settings.hang_s:
            _beside.last_words = LastWordsHere(recorder.live.path, partial(rings.ask, "read_now"), learn)
        words = [] if _beside.last_words is None else [_beside.last_words.consider]
        recorder.sealer.each_tick.append(partial(rings.ask, "tell_calls"))
        recorder.sealer.start_others = _resume_others
        recorder.sealer.each_quiet_look = partial(keeper.ask, "consider")
        recorder.sealer.is_looked_for = lambda: standby.background is not None
        standby.each_look = partial(faults.tell_hooks, [partial(keeper.ask, "look"), recorder.sealer.tick_too])

        def consider_all() -> int:
            spent_ns: int = standby.consider() + keeper.ask("consider")
            faults.tell_hooks([*words, partial(rings.ask, "consider"), *current.each_second])
            return spent_ns

        recorder.sealer.each_second = consider_all
        _beside.standby, _beside.keeper, _beside.rings = standby, keeper, rings
        if settings.planned:
            standby.expect_plans()


def expect_plans() -> None:
    """Windows were planned for the run that this process records into already."""
    with _lock_of_process():
        if _beside.standby is not None:
            _beside.settings = _beside.settings._replace(planned=1)
            _beside.standby.expect_plans()


def _list_parts() -> list[Any]:
    """What of this process's has a thread of its own beside the recorder's."""
    keeper = None if _beside.keeper is None else _beside.keeper.made
    return [part for part in (keeper, _beside.last_words, _beside.standby) if part is not None]


def _forget_parts() -> None:
    """In a forked child: what its parent watches, and says of itself, is nothing to it."""
    for part in _list_parts():
        part.forget()


def stop_recording(run: Path | None = None, exc: BaseException | None = None) -> None:
    """Stop the recorder of this process, if it records into `run` (None: whatever it records into). Never raises.
    `run`: the run folder. `exc`: the exception by which that comes.
    """
    if threading.get_ident() in _beside.at_forks:
        _beside.stops_late.append((run, exc))
        return
    late = _late_start()
    if late is not None and run in (None, late.parent.run):
        # A forked child that has recorded nothing when it stops leaves nothing, unless an exception ends it: this one.
        wait_s = late.parent.limits.stop_s
        if exc is not None or exits.name_error() is not None:
            late.now(wait_s)
            exc = exc or getattr(sys, "last_value", None)
        else:
            late.leave_off(time.monotonic() + wait_s)
            _beside.late_start = None
            if late.parent.name is None:
                environment.put_back(_beside.environment_before)
    last_words, recorder = _beside.last_words, current.recorder
    if last_words is not None and recorder is not None and run in (None, recorder.run):
        last_words.tell_of(exc)
    _end_recording(lambda ended, keeper, deadline: ended.stop(deadline, lambda: _hand_over(keeper, deadline)), run)


def discard_recording() -> None:
    """Stop the recorder and leave nothing of this process in the run: for our own commands, which only look at runs."""
    _end_recording(lambda ended, keeper, _: faults.tell_hooks([ended.discard, partial(keeper.tell, "resign")]), None)


def _end_recording(end: Callable[[Recorder, Postponed, float], object], run: Path | None) -> None:
    with _lock_of_process():
        recorder, keeper, standby, rings = current.recorder, _beside.keeper, _beside.standby, _beside.rings
        last_words = _beside.last_words
        if recorder is None or keeper is None or rings is None or (run is not None and recorder.run != run):
            return
        faults.tell_hooks(current.when_ending)
        _take_recorder(None)
        deadline = time.monotonic() + recorder.limits.stop_s
        with faults.noted("capturing.end"):
            rings.ask("finish")
            keeper.tell("end", deadline)
            standby.stop(deadline)
            if last_words is not None:
                last_words.end(deadline)
            end(recorder, keeper, deadline)
        environment.put_back(_beside.environment_before)
        faults.tell_hooks(when_stopped)


def _set_hooks() -> None:
    """Once per process: none of them can be taken back, all of them do nothing while nothing is captured."""
    if not _beside.hooks_are_set:
        _beside.hooks_are_set = True
        imports.call_at_the_end(_at_exit)
        os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
        )
        forking.watch_forks()


def _before_fork() -> None:
    """Hold our threads where they rest, with no lock taken: they do not survive a fork. Where Python would warn of it
    for them, as there are no others, end them.

    A thread that hangs in a write is left behind after 20 ms, so that all of it takes no more than 50. It goes on in
    the parent. In the child its lock, its half-written block and its live file are nobody's: it begins with new ones.
    """
    _beside.at_forks.append(forker := threading.get_ident())
    if _beside.at_forks.count(forker) > 1:
        return
    faults.hold_logging()  # from here on locks of logging may be held for the fork, by this very thread
    deadline = time.monotonic() + forking.WAITS_AT_MOST_S * forking.SHARE
    with faults.noted("capturing.before_fork"):
        if (late := _late_start()) is not None:  # before the lock, which it needs to end
            forking.end_threads(late.leave_off, deadline)
        if _lock_of_process().acquire(timeout=max(0.0, deadline - time.monotonic())):
            _beside.has_lock = forker
        if current.recorder is not None and forking.warns_of(1 + sum(thread.runs for thread in _list_backgrounds())):
            forking.end_threads(_park_threads, deadline)
        elif _beside.has_lock == forker:
            hold_threads(_list_backgrounds(), deadline)


def _park_threads(deadline: float) -> int:
    """All are asked to end before any is waited for: each of them needs a CPU and the GIL for that."""
    for thread in _list_backgrounds():
        thread.ask()
    parked = 0 if current.recorder is None else current.recorder.park(deadline)  # its thread may just be making them
    return int(parked + sum(thread.pause(deadline) for thread in _list_backgrounds()[1:]))


def _list_backgrounds() -> list[Background]:
    """Those of our threads that there are, the sealer's first."""
    sealer = [] if current.recorder is None else [current.recorder.sealer]
    return [part.background for part in sealer + _list_parts() if part.background is not None]


def _after_fork_in_parent() -> None:
    if _beside.at_forks.count(threading.get_ident()) > 1:
        _beside.at_forks.remove(threading.get_ident())
        return
    try:
        with faults.noted("capturing.after_fork"):
            if current.recorder is not None or _late_start() is not None:
                forking.start_threads(_resume_threads)
    finally:
        if _beside.has_lock == threading.get_ident():
            go_on()
            _beside.has_lock = 0
            _beside.lock.release()
        _beside.at_forks.remove(threading.get_ident())
        faults.go_on()
        while _beside.stops_late:
            stop_recording(*_beside.stops_late.pop())


def _resume_threads(due_s: float = 0.0) -> bool:
    """Start what starts the others. Where no thread can be started, a range of a second later calls this again."""
    if due_s and (time.monotonic() < due_s or _beside.at_forks):
        return True
    if not _lock_of_process().acquire(timeout=0 if due_s else forking.WAITS_AT_MOST_S * forking.SHARE):
        return due_s > 0  # another thread is just stopping or starting all of them
    _beside.at_forks.append(threading.get_ident())
    try:
        late = _late_start()
        if current.recorder is not None:
            current.recorder.sealer.background.start()
        elif late is not None:
            late.start()
        return late is not None  # it waits for a range itself
    except RuntimeError as exc:
        engine.await_first(partial(_resume_threads, time.monotonic() + 1.0))
        faults.note_fault("capturing.resume", exc)
        return True
    finally:
        _beside.at_forks.remove(threading.get_ident())
        _beside.lock.release()


def _resume_others() -> bool:
    """In the sealer's thread, some time after a fork. False: not now, as another thread forks, or starts or stops."""
    if not _lock_of_process().acquire(timeout=forking.RETURNS_WITHIN_S):
        return False
    try:
        if current.recorder is not None:
            current.recorder.resume()
            if _beside.standby.background is not None:
                _beside.standby.background.start()
            if _beside.keeper is not None:
                _beside.keeper.tell("start")
            if _beside.last_words is not None:
                _beside.last_words.start()
        return True
    finally:
        _beside.lock.release()


def _after_fork_in_child() -> None:
    late = _beside.late_start
    parent = late.parent if current.recorder is None and late is not None else current.recorder
    _forget_parts()
    _take_recorder(None)
    _beside.lock, _beside.has_lock, _beside.at_forks, _beside.late_start = threading.RLock(), 0, [], None
    _beside.stops_late.clear()
    faults.reset_counts()
    identity.forget_part()
    if parent is None:
        return
    with faults.noted("capturing.in_forked_child"):
        parent.abandon()
        _beside.inherits_groups = identity.has_process_group()
        if forking.is_about_to_exec(sys._getframe().f_back):
            return
        pool_children.stop_with_finalizers(_stop_in_child)
        _beside.late_start = LateStart(parent, _begin_late)
        _resume_threads()


def _begin_late(slow: Any) -> None:
    """What a fork or a slow folder has put off; not where it was stopped meanwhile. Raises CaptureError."""
    try:
        recorder = Recorder(slow.run, slow.limits, __version__, slow.name)
        with _beside.lock:
            if _beside.late_start is None:
                return recorder.discard()
            _take_recorder(recorder, is_forked=slow.name is not None)
        if slow.name is None:
            os.environ[environment.RUN_ID] = recorder.run_id
        faults.tell_hooks(current.when_started)
    except CaptureError:
        raise
    except Exception as exc:
        faults.note_fault("capturing.late", exc)
    finally:
        _beside.late_start = None


def _at_exit() -> None:
    """The end of the interpreter. What others end after this is sealed once they have; ranges after it are counted."""
    recorder, keeper = current.recorder, _beside.keeper
    stop_recording()
    if recorder is not None and keeper is not None and recorder.pid == os.getpid() and recorder.is_sealed:
        from .recorder import last_at_exit

        last_at_exit.when_others_have_ended(lambda: _hand_over(keeper, time.monotonic() + recorder.limits.stop_s))
        engine.await_first(recorder.sealer.writing().count_late)


def _hand_over(keeper: Postponed, deadline: float) -> None:
    """In the sealer's thread, which may have made the keeper just now; or at the end of the interpreter."""
    with faults.noted("keeper"):
        keeper.ask("end", deadline)
        keeper.ask("hand_over", lambda: time.monotonic() < deadline)


def _stop_in_child() -> None:
    """Called while the exception is handled that ends the child, if one does; no hook hears of it."""
    stop_recording(exc=sys.exc_info()[1])
