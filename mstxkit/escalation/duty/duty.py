"""One rank on duty: its machine hears what training enters and leaves and what comes in by the control folder; what
the machine decides is carried out.

Two threads call: the one that trains, through the engine's hooks, and the watcher. Sessions begin and end on the first,
messages and files are the second's. While nothing is armed, the training thread meets this module only at each step.
Nothing here raises into training; only starting and stopping a session takes time, which `session.json` tells.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Mapping, Sequence

from ... import faults, stages
from ...engine.choose import engine
from ...errors import ConfigError, MstxkitError
from ...host import names
from ...pieces import edges
from ...profiling import backends, presets, profilers, theirs
from ...profiling.declare import Preset
from ...profiling.schedule import Schedule
from ...profiling.session import OneSession, Order, import_ahead, made_preset
from ...recorder.background import ENDS_WITHIN_S
from ...store import hccl, local_place, messages
from ...store.aftercare import Care
from ...store.limits import Policy
from ...store.report import Report, fit_report
from ...store.request import WHOLE_STEPS, Request
from ..machine import moves
from ..machine.machine import Machine
from ..machine.moves import Now
from ..machine.sessions import COMPLETE
from .beginning import Beginnings
from .caretaker import Caretaker
from .inbox import Inbox
from .light import LightOnDuty
from .mailbox import AckNumber
from .sentry import Sentry
from .settings import DutySettings, policy_of

_REMEMBERED_AT_MOST = 1000
# Another thread's profiler that begins waits so long for ours to end.
_GIVES_WAY_WITHIN_S = 0.05
# As machine.py asks of its owner: after these its memory is to be saved, whatever it answers.
_KEPT = (moves.RequestReceived, moves.CancelReceived, moves.Commit, moves.Drop)


class Duty:
    """A rank's machine with its mailbox and its session, from `start` to `stop`.
    `sentry`: who has stood by until now, and is taken over. `session`: the process's only session; default: a new one.
    `origin`: the step in which this process first entered a stage, where somebody saw that; None: not yet. Raises
    ConfigError: the schedule of light capture is none.
    """

    def __init__(
        self, sentry: Sentry, settings: DutySettings, session: OneSession | None = None, origin: int | None = None
    ) -> None:  # fmt: skip
        self.post = post = sentry.post
        self._sentry, self.watcher = sentry, sentry.watcher
        self._control, self._mailbox = sentry.control, sentry.mailbox
        self._session = OneSession() if session is None else session
        schedule = None if settings.light is None else Schedule.parse(settings.light)
        self._light = LightOnDuty(
            schedule, self._session,
            lambda step: self._order("light", step, presets.load_preset("light"), "", "light capture on duty"),
        )  # fmt: skip
        self._local = local_place.given_in(settings.profiles)
        limits = settings.profiles_mb_s, settings.profiles_host_bytes, settings.profiles_run_bytes
        self._caretaker = Caretaker(Care(post.run, post.run_id, self._local, *limits))
        self._lock = threading.RLock()  # a signal's handler of the program may have a stage, wherever this thread is
        self._inbox = Inbox(post.rank, post.world_size, post.role)
        self._to_send: deque[moves.Commit | moves.Drop] = deque()
        self._spoken_for: dict[tuple[str, int], Report] = {}
        self._step: int | None = None
        self._trains: int | None = None  # thread
        self._begun_beside: Order | None = None  # whose session another thread's profiler did not wait for
        self._sample_per: str | None = None
        self._entering = self._covers = ""  # ranges: which begins, and which the open session is to hold
        self._is_over, self._ends_early, self._is_changed = False, False, True
        self._coming: tuple[tuple[str, int], ...] = ()
        self._undo = contextlib.ExitStack()
        self._pid = os.getpid()
        self._begun: tuple[str | None, float] = None, 0.0  # the last session's preset, and how long its start took
        self._pauses_s: dict[str | None, float] = {}  # preset to what start and stop of a session took at most
        self._machine = self._make_machine(sentry.memory(), policy_of(settings))
        self._machine.pace = sentry.pace
        self._machine.placing.is_own |= bool(settings.planned)
        self._machine.placing.has_windows |= bool(settings.planned)
        self._machine.placing.origin = origin
        self._ask_patience()
        self.watcher.serve(self.look, self._places_of_news)
        self._beginnings = Beginnings(self._mailbox, self.watcher, self._say, self._control.path)

    def _make_machine(self, memory: Mapping[str, Any] | None, policy: Policy) -> Machine:
        """The machine as an earlier process of this rank left it."""
        about = self.post.rank, self.post.world_size, policy, not self.post.is_second
        machine = Machine(*about)
        try:
            if memory is not None:
                self._carry_out_all(machine.restore(memory, _look_now()))
            return machine
        except ConfigError as exc:
            faults.warn_once("control.memory", f"what rank {self.post.rank} remembered is no use: {exc}")
            return Machine(*about)

    # Life.

    def start(self) -> None:
        """Go on duty: from the next stage on."""
        self._step = engine.current_step()
        self._undo.callback(theirs.before_they_start(self._give_way))
        engine.set_watch(self.entered, self._left, self.stepped)
        self._watch_for(self._machine.active)
        if not self.watcher.background.runs:  # a sentry's goes on
            self.watcher.start()

    @property
    def origin(self) -> int | None:
        """The step in which this process first entered a stage of one; None while that is not known."""
        return self._machine.placing.origin

    def stop(self, deadline: float | None = None) -> None:
        """The process ends, or capture does: close what is open, on this thread, and say so, if the run folder answers
        by `deadline`. Once is enough.
        """
        if self._is_over or self._pid != os.getpid():
            return
        self._is_over = True
        atexit.unregister(self.stop)
        self._undo.close()
        self._light.finish()
        self._hear(moves.Ending(threading.get_ident()))
        self._close()
        self._say()
        deadline = time.monotonic() + ENDS_WITHIN_S if deadline is None else deadline
        if not self.watcher.background.finish(self._take_leave, deadline):
            faults.warn_once(
                "control.stop", f"{self.post.run} does not answer: how requests ended is not written there"
            )
        self._caretaker.consider(self._session.ended)

    def _take_leave(self) -> None:
        try:
            self._send()
        except OSError as exc:
            faults.note_fault("control.stop", exc)
        self._sentry.leave()

    def _close(self, *_: object) -> None:
        """End what is open where an interrupt has cost the order to. What another thread began, it ends at its next
        stage, boundary or step.
        """
        self._session.end("the end of capture", [])
        is_others = self._session.is_open
        engine.set_watch(*(self._close if is_others else None,) * 3)
        engine.watch(is_others)

    def retire(self) -> bool:
        """Leave a post that was only assumed, now that the rank is known; False while there is something to be done."""
        self.watcher.stop()  # first: it may just be arming
        if self._machine.active is not None or self._session.is_open:
            self.watcher.start()
            return False
        self._undo.close()
        engine.watch(False)
        engine.set_watch(None, None, None)
        self._mailbox.withdraw(self.post.rank, self.post.role)
        return True

    def cost_ns(self) -> int:
        """Once a second on the background thread: CPU time of the watcher's since the last call."""
        self._caretaker.consider(self._session.ended)
        return self.watcher.take_cost_ns()

    def doing(self) -> str | None:
        """What is recorded now, in words; None while nothing is."""
        if (order := self._session.order) is None:
            return None
        return f"{order.preset.name} of {order.stage} for request {order.request}" if order.request else "light capture"

    # On the thread that trains.

    def entered(self, site: Any, may_move: bool) -> None:
        """The engine's hook: a watched call begins on this thread."""
        thread, step = threading.get_ident(), engine.current_step()
        if step is not None and step != self._machine.step:
            self._hear(moves.StepAdvanced(step, thread if self._trains in (None, thread) else None))
        begun = edges.enter_call(site, may_move, self._sample_per)
        self._entering = names.as_text(site.name) if begun else ""
        events = [_event_of(edge, thread, may_move) for edge in begun]
        for event in events or [moves.Tick(thread)]:  # a limit may be over
            self._hear(event)

    def _left(self, site: Any, failed: bool) -> None:
        for edge in edges.leave_call(site, failed):
            self._hear(_event_of(edge, threading.get_ident(), failed))

    def stepped(self, step: int) -> None:
        """The engine's hook: this thread has said that another step begins."""
        self._step, self._trains = step, threading.get_ident()
        if self._machine.watches or self._machine.placing.has_windows:
            self._hear(moves.StepAdvanced(step, threading.get_ident()))
        self._light.stepped(step)

    def _give_way(self, who: str) -> None:
        """Somebody else's profiler is about to begin, on this thread: before that ours ends, if it is this thread's."""
        order = self._session.order
        if self._pid != os.getpid() or order is None or order is self._begun_beside:
            return
        self._light.give_way(f"cut short by {who}'s profile")
        self._hear(moves.GiveWay(who, threading.get_ident()))
        deadline = time.monotonic() + _GIVES_WAY_WITHIN_S
        while self._session.is_open and time.monotonic() < deadline:
            time.sleep(0.001)
        if self._session.is_open:
            self._begun_beside = order
            faults.warn_once(
                "another thread's profiler",
                f"{who}'s profile began on another thread while mstxkit records, which only its own thread can end: "
                "data of both may be missing; where that thread makes its profiler earlier, mstxkit waits for it",
            )

    def _hear(self, event: moves.Event) -> None:
        """Tell the machine, and do what it says, until it has nothing more to say. On either thread."""
        events = deque([event])
        while events:
            events.extend(self._carry_out_all(self._tell(events.popleft())))

    def _tell(self, event: moves.Event) -> tuple[moves.Action, ...]:
        with self._lock:
            before, watched = self._machine.active, self._machine.watches
            actions = self._machine.handle(event, _look_now())
            self._is_changed |= bool(actions) or isinstance(event, _KEPT)
            if (self._machine.active, self._machine.watches) != (before, watched):
                # Who has only looked for the first step has seen all that is under way.
                self._watch_for(self._machine.active, goes_on=watched and before is None)
        return actions

    def _watch_for(self, request: Request | None, goes_on: bool = False) -> None:
        """Another request is active, or none: what was under way before is none of its, unless watching goes on."""
        sample = None if request is None else request.sample
        self._sample_per = None if sample is None else sample.per
        if not goes_on:
            edges.forget_open()
        engine.watch(self._machine.watches)

    def _carry_out_all(self, actions: tuple[moves.Action, ...]) -> list[moves.Event]:
        return [answer for answer in map(self._carry_out, actions) if answer is not None]

    def _carry_out(self, action: moves.Action) -> moves.Event | None:
        if isinstance(action, moves.StartSession):
            return self._start_session(action)
        if isinstance(action, moves.StopSession):
            return self._session_ended(action)
        if isinstance(action, (moves.Commit, moves.Drop)):
            self._to_send.append(action)
        elif isinstance(action, moves.Acknowledge) and action.report.rank != self.post.rank:
            self._spoken_for[action.report.id, action.report.rank], self._is_changed = action.report, True
        elif isinstance(action, moves.ResumeLight):
            self._light.resume()
        return None

    def _start_session(self, start: moves.StartSession) -> moves.Event | None:
        waits_for = "" if self._session.is_open else profilers.in_the_way()  # light capture has nobody beside it
        if waits_for:
            return moves.SessionPutOff(f"{waits_for} came first", waits_for)
        obstacle = self._beginnings.obstacle(start.id, start.stage)
        if obstacle is not None:
            return obstacle
        self._light.pause()  # not before: a session that is put off takes nothing from it
        try:
            preset = made_preset(start.preset, start.options).preset
        except ConfigError as exc:
            return moves.SessionFailed(str(exc))
        self._covers = "" if self._sample_per is not None or start.stage == WHOLE_STEPS else self._entering
        reason, is_only = self._inbox.reasons.get(start.id, ""), start.id in self._inbox.of_one_window
        order = self._order(start.stage, start.step, preset, start.id, reason, start.seconds, start.bytes, is_only)
        before_s = time.monotonic()
        problem = self._session.begin(order)
        self._begun = start.preset, time.monotonic() - before_s
        if problem is not None and self._session.taken_by:  # until its turn has come: what is written down holds
            faults.say_once(f"request {start.id} of {start.stage} waits: {self._session.taken_by}")
            return moves.SessionPutOff(self._session.taken_by, is_taken=True)
        self._beginnings.is_over(start.id, start.stage)
        return None if problem is None else moves.SessionFailed(problem)

    def _session_ended(self, stop: moves.StopSession) -> moves.Event:
        """The machine gets its answer also where an interrupt comes in between, which goes on to the program."""
        try:
            return self._stop_session(stop)
        except BaseException:
            self._hear(self._stop_session(stop))
            raise

    def _stop_session(self, stop: moves.StopSession) -> moves.Event:
        (preset, began_s), before_s = self._begun, time.monotonic()
        recorded = self._session.end(stop.why, stop.steps, self._covers if stop.why == COMPLETE else "")
        self._pauses_s[preset] = max(began_s + time.monotonic() - before_s, self._pauses_s.get(preset, 0.0))
        if recorded is None or recorded.folder is None:
            why = "no session was open" if recorded is None else "; ".join(recorded.problems)
            return moves.SessionFailed(why or "nothing was written")
        return moves.SessionStopped(recorded.bytes, recorded.problems)

    def _order(self, stage: str, step: int | None, preset: Preset, *of_request: Any) -> Order:
        """What a session is to be. From the first one on, the end of the process ends what is open before frameworks
        that were imported meanwhile give their devices back (torch_npu 2.13.0 `_init/core/runtime_lifecycle.py`).
        """
        if not self._ends_early:
            self._ends_early = True
            atexit.register(self.stop)
        post = self.post
        whose = post.run, post.run_id, post.rank, post.world_size, post.role
        return Order(*whose, stage, step, preset, *of_request)._replace(local=self._local)

    # On the watcher's thread.

    def look(self) -> None:
        """Hear what has come, and say what is new; before it starts, what is planned already."""
        self._mailbox.flush()  # first: the training thread may be waiting for it
        if self._is_over:
            return
        self._mailbox.poll()
        self._ask_patience()
        step = self._step
        if step is not None and step != self._machine.step and not self._machine.watches:
            self._hear(moves.StepAdvanced(step, None))
        seen = {stages.canonical_key(key) for key in engine.stages_seen()}
        events = list(self._inbox.events(self._mailbox.take(), seen))
        if events or self._machine.has_work:
            coming = () if self._session.is_open else profilers.list_coming(self._trains)
            if import_ahead(begins=False) and not self._machine.placing.has_windows:  # a planned one never moves
                coming += (("what the profiler imports", 0),)
            if coming != self._coming:
                self._coming = coming
                self._hear(moves.TheirProfiles(coming))
        for event in events:
            self._hear(event)
        with self._lock:
            awaited, near = self._machine.awaited(), self._machine.announced()
            missing = self._machine.find_unrecorded() - seen
        self._machine.elsewhere |= self._inbox.find_stages_elsewhere(self._control, missing)
        for report in self._inbox.heard_from(self._control, awaited):
            self._hear(moves.Acknowledged(report))
        if self._machine.has_work:
            import_ahead()
            self._hear(moves.Tick(session_bytes=self._session.bytes_so_far()))
        is_stale, is_refused = self._sentry.are_stale(len(seen)), self._inbox.has_refused
        self._inbox.has_refused = False
        if is_stale or is_refused or self._is_changed:
            self._say()
            self._mailbox.flush()
        self._beginnings.write_ahead(near)
        self._send()

    def _places_of_news(self) -> Sequence[Path] | None:
        """Where news come from while nothing goes on and all is said; None while something does: others are awaited."""
        with self._lock:  # not in the midst of an event: it may leave no work, and something to say
            is_busy = self._machine.has_work or self._inbox.waiting or self._to_send or self._is_changed
        return None if is_busy else self._mailbox.places_of_news()

    def _ask_patience(self) -> None:
        """How long those wait that wait for this rank: nobody does for the only one of a run."""
        patience, is_connecting = None, self._step is not None and self._machine.pace.step_ns is None
        if self.post.world_size > 1 and backends.find_profiler()[0] not in (None, hccl.WITHOUT_HCCL):
            taken_s = dict(self._pauses_s)
            patience = hccl.find_patience(hccl.set_here(), "as set in its environment", is_connecting, taken_s)
        self._machine.patience = None if patience is None or patience.seconds == math.inf else patience

    def _say(self) -> AckNumber:
        """What this rank says of itself from now on: written by the next `flush`.

        Under the lock to its end: a thread that was held up must not replace what another said since.
        """
        with self._lock:
            self._is_changed, machine = False, self._machine
            memory = machine.memory(_look_now())
            memory.update({key: memory[key][-_REMEMBERED_AT_MOST:] for key in ("ended", "elsewhere")})
            reports = *self._inbox.refused.values(), *self._spoken_for.values(), *machine.reports().values()
            words = self._sentry.said(machine.pace._replace(step=self._step), machine.phase(_look_now()), reports)
            return self._mailbox.acknowledge(self.post.rank, fit_report({**words, "memory": memory}), self.post.role)

    def _send(self) -> None:
        """What the agreeing rank decided, once it is written down."""
        if self._to_send and self._is_changed:  # by the training thread, since it was last said
            self._say()
        while self._to_send and self._mailbox.flush():
            try:
                self._control.send(messages.of_decision(self._to_send[0]))
            except MstxkitError as exc:
                faults.warn_once("control.send", str(exc))
                return  # at the next poll again
            self._to_send.popleft()


def _look_now() -> Now:
    return Now(time.time_ns(), time.monotonic_ns())


def _event_of(edge: edges.Edge, thread: int, how: bool) -> moves.Event:
    """An edge as the machine is told it; `how`: of a stage, may it move, or at its end, did it fail?"""
    if edge.what == edges.STAGE:
        return (moves.StageEntered if edge.begins else moves.StageLeft)(edge.key, thread, how)
    return (moves.BoundaryEntered if edge.begins else moves.BoundaryLeft)(edge.key, edge.stages, thread)
