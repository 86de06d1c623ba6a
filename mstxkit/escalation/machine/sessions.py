"""What the machine of one rank does with its one session: begin it, bound it, end it. `machine.py` says when."""

from __future__ import annotations

import math

from ...store.hccl import LEAST_S, Patience
from ...store.limits import Policy
from ...store.report import ARMED, DRAINING, EXPIRED, FAILED, RUNNING, StepPace
from ...store.request import WHOLE_STEPS, Request
from . import moves
from .moves import NS, Now
from .task import CoveringSession, Occurrence, Spending, Task

# Why a session ends that has all that it was begun for.
COMPLETE = "its stage or sample is complete"


class SessionMoves:
    """The part of `Machine` that is about sessions."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.pace = policy, StepPace()
        self.patience: Patience | None = None  # of the other ranks, as its owner says; None: nobody waits, or for ever
        self._steps_by: int | None = None  # the thread that has said a step last; None: none has
        self._active: Task | None = None
        self._occurrence: Occurrence | None = None
        self._session: CoveringSession | None = None
        self._spending = Spending(policy)
        self._out: list[moves.Action] = []

    @property
    def step(self) -> int | None:
        """The rank's; None before its first."""
        return self.pace.step

    def _end(self, task: Task, state: str, reason: str, now: Now) -> None:
        raise NotImplementedError

    def _start(self, task: Task, inside: Occurrence, now: Now) -> None:
        left_ns = self._spending.left_ns(now)
        if not left_ns or self._spending.used_up() or now.mono_ns >= task.deadline_ns:
            task.note("" if left_ns else "an occurrence was passed over: the budget for sessions was used up")
            return
        request, limits = task.request, task.request.limits
        seconds = min(limits.seconds_within(self.policy.session_s), self._bound_s(request), left_ns / NS)
        session = inside.stage, inside.thread, self.step, now.mono_ns, int(seconds * NS), task.had_session
        inside.had_session = task.had_session = True
        self._session = CoveringSession(*session, steps=() if self.step is None else (self.step,))
        task.state, task.reason = RUNNING, ""
        order = request.id, inside.stage, self.step, request.preset, request.options, seconds, limits.bytes
        self._out.append(moves.StartSession(*order))

    def _cover_steps(self, event: moves.Event, now: Now) -> None:
        """A session of whole steps begins with what the thread that trains says first in one of them: the one that
        counts them, and will say that they are over.
        """
        task, thread = self._active, getattr(event, "thread", None)
        says_it = isinstance(event, (moves.StepAdvanced, moves.StageEntered)) and thread is not None
        says_it = says_it and self._steps_by in (None, thread)
        is_free = self._occurrence is None and self._session is None
        if task is not None and says_it and is_free and task.wants(WHOLE_STEPS, self.step):
            self._occurrence = Occurrence(WHOLE_STEPS, thread or 0)
            self._start(task, self._occurrence, now)

    def _bound_s(self, request: Request) -> float:
        """What the patience of others leaves for a session."""
        if self.patience is None or request.force:
            return math.inf
        return max(LEAST_S, self.patience.bound_s(request.preset))

    def _drain(self, why: str) -> None:
        """The session is to end with the next event of its thread."""
        if self._session is not None and self._active is not None and not self._session.stopping:
            self._session.stop_because = self._session.stop_because or why
            self._active.state = DRAINING

    def _stop_if_due(self, thread: int | None, now: Now) -> None:
        session = self._session
        if session is None or session.stopping or session.thread != thread:
            return
        took_ns = now.mono_ns - session.started_ns
        if took_ns >= max(1, session.limit_ns):
            self._drain(f"its limit of {session.limit_ns / NS:g} s, at {took_ns / NS:g} s")
        if session.stop_because:
            self._stop(f"{session.stage} was cut short by {session.stop_because}")

    def _stop(self, note: str) -> None:
        session, task = self._session, self._active
        if session is not None and task is not None and not session.stopping:
            session.stopping = True
            task.state = DRAINING
            task.note(note)
            why = note or COMPLETE
            self._out.append(moves.StopSession(task.request.id, why, session.steps))

    def _session_stopped(self, event: moves.SessionStopped, now: Now) -> None:
        session, task = self._closed(event.bytes, now), self._active
        if session is None or task is None:
            return
        for problem in event.problems:
            task.note(problem)
        if session.stopping:
            task.has_recorded(session.stage, session.steps, event.bytes)
        else:
            self._end(task, FAILED, f"its session was ended by somebody else; {task.progress()}", now)

    def _session_failed(self, event: moves.SessionFailed, now: Now) -> None:
        task = self._active
        if self._closed(0, now) is not None and task is not None:
            self._end(task, FAILED, f"{event.reason}; {task.progress()}", now)

    def _session_put_off(self, event: moves.SessionPutOff, now: Now) -> None:
        """This occurrence is passed over. The task counts as one that had a session, for its memory may say so by now;
        not where it waits for somebody else's profile, which is asked before anything is written. Whoever agreed with
        other ranks, and has recorded nothing, is then too late, like a rank that hears of the agreed step when it has
        begun: it expires, and records no other step. The others go on. While the device is taken, it takes its turn.
        """
        session, task = self._session, self._active
        if session is None or task is None:
            return
        self._session, task.state = None, ARMED
        self._occurrence = None if session.stage == WHOLE_STEPS else self._occurrence
        if event.waits_for:
            task.reason, task.had_session = f"waits for {event.waits_for}", session.had_one_before
        self._out.append(moves.ResumeLight())
        too_late = task.passes_over(session.stage, session.step, event.reason, event.is_taken)
        if too_late:
            self._end(task, EXPIRED, too_late, now)

    def _closed(self, size_bytes: int, now: Now) -> CoveringSession | None:
        """The session is over; None where there was none."""
        session, self._session = self._session, None
        if session is not None and self._active is not None:
            self._spending.add(now.mono_ns - session.started_ns, size_bytes, now)
            self._active.state = ARMED
            self._out.append(moves.ResumeLight())
        return session
