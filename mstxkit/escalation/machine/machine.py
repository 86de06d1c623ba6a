"""Escalation on one rank, as a pure state machine: events in, actions out, and every request ends in a stated state.

No clock, no thread, no file, no profiler: each event comes with the time, and whoever owns the machine carries out its
actions in their order. Before that it saves the machine's memory: whenever there are actions, and after what others
sent. Sessions begin and end only in answer to an event of the training thread, and at most one is open
(docs/internals/control.md has the states and their moves).

Threads: one call at a time; the owner holds a lock where a watcher calls too.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ...errors import ConfigError
from ...store.limits import Policy
from ...store.report import ARMED, CANCELLED, DONE, EXPIRED, FAILED, QUEUED, REFUSED, Report
from ...store.request import WHOLE_STEPS, Request
from . import moves
from .agreement import Agreement, choose_agreeing, choose_lead, needs_agreement
from .moves import NS, Now
from .plans import Placing
from .sessions import SessionMoves
from .task import Ledger, Occurrence, Task, life_ns, remembered_request


class Machine(SessionMoves):
    """What one rank does about requests. The lowest rank of a request agrees on its step for all of them.
    `agrees`: may it agree for others? Not where another process speaks as this rank.
    """

    def __init__(self, rank: int, world_size: int, policy: Policy | None = None, agrees: bool = True) -> None:
        super().__init__(Policy() if policy is None else policy)
        self.rank, self.world_size = rank, world_size
        self._agreement = Agreement(rank, self.policy, agrees)
        self._tasks: dict[str, Task] = {}  # in order of arrival
        self._cool_until_ns = 0  # monotonic clock
        self._ledger = Ledger()
        self.placing = Placing(is_own=rank == 0)
        self._said: dict[str, Report] = {}
        self._process_ends = False
        self._theirs: tuple[tuple[str, int], ...] = ()
        self.elsewhere = frozenset[str]()  # stages that other processes of this rank enter, and this one never has
        self._is_handling = False

    @property
    def watches(self) -> bool:
        """Does it want to know of stages and boundaries? What the training thread's flag says."""
        return self._active is not None or self.placing.seeks_origin

    @property
    def active(self) -> Request | None:
        """The request that is armed or being recorded."""
        return None if self._active is None else self._active.request

    @property
    def has_work(self) -> bool:
        """Does time matter to it: is any request under way, here or for others?"""
        return bool(self._tasks) or bool(self.awaited())

    def awaited(self) -> dict[str, list[int]]:
        """Request id to the ranks whose reports matter to this one, where it agrees or speaks for others."""
        return self._agreement.awaited()

    def announced(self) -> list[tuple[str, str]]:
        """Request and stage of sessions that begin in a step that is known and near: memory says so from now on."""
        near = [task for task in self._tasks.values() if task.is_near(self.step, self.pace.step_ns)]
        for task in near:
            task.is_announced = True
        return [(task.request.id, stage) for task in near for stage in task.request.stages]

    def find_unrecorded(self) -> set[str]:
        """Stages of requests for several, of which nothing is recorded: other processes of this rank may enter them."""
        several = [task for task in self._tasks.values() if len(task.request.stages) > 1]
        return {stage for task in several for stage in task.request.stages if not task.counts[stage]}

    def phase(self, now: Now) -> str:
        """What the rank is in: idle, armed, running, draining or cooldown."""
        if self._active is not None:
            return self._active.state
        return moves.COOLDOWN if now.mono_ns < self._cool_until_ns else moves.IDLE

    def reports(self) -> dict[str, Report]:
        """Every request that this rank was asked for, by id, with its state."""
        return {**self._ledger.ended, **{id: task.report(self.rank, self.step) for id, task in self._tasks.items()}}

    def handle(self, event: moves.Event, now: Now) -> tuple[moves.Action, ...]:
        """What is to be done about an event, in this order; nothing about one in the middle of another."""
        if self._is_handling:  # this very thread is: a signal's handler of the program has a stage
            return ()
        self._out = []
        try:
            self._is_handling = True
            _HANDLERS[type(event)](self, event, now)
            self._stop_if_due(getattr(event, "thread", None), now)
            self._go_on(now)
            self._cover_steps(event, now)
            self._tell_changes(now)
            self._agree(now)
        finally:
            self._is_handling = False
        return tuple(self._out)

    def memory(self, now: Now) -> dict[str, Any]:
        """What a restarted process needs to know, for `json.dumps`: what ran, what waits, what was spent."""
        return {
            **self._ledger.memory(),
            "tasks": [task.remembered(self.rank, self.step) for task in self._tasks.values()],
            "spending": self._spending.memory(now),
            "agreement": self._agreement.memory(),
        }

    def restore(self, memory: Mapping[str, Any], now: Now) -> tuple[moves.Action, ...]:
        """Go on from what `memory` gave, as the machine of a rank that was restarted; what is new to tell.

        A request that had a session is failed, as that ended with its process; those that had none wait again. As
        ever, `memory` is to be saved before what this gives is carried out: else the next restart says it again.

        Raises ConfigError where this is no such memory: this machine is of no use then.
        """
        try:
            self._ledger.restore(memory)
            self._said = dict(self._ledger.ended)
            self._spending.restore(memory["spending"], now)
            self._agreement.restore(memory["agreement"], now)
            actions = [action for document in memory["tasks"] for action in self._take_up(document, now)]
            return (*actions, *self.handle(moves.Tick(), now))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
            raise ConfigError(f"not the memory of an escalation machine: {exc!r}") from None

    def _take_up(self, document: Mapping[str, Any], now: Now) -> tuple[moves.Action, ...]:
        """A request that had not ended when this rank's memory was saved."""
        request = remembered_request(document["request"])
        if request is None:
            return ()  # it is refused when it comes again
        if document["had_session"]:  # which ended with its process
            last = Report.read(document["report"])
            words = "its process was restarted while it recorded, or was about to", last.reason
            why = "; ".join(filter(None, words))
            lost = last._replace(id=request.id, rank=self.rank, state=FAILED, ready=False, reason=why)
            self._ledger.put(self._ledger.ended, request.id, lost)
            self._cool_until_ns = now.mono_ns + int(self.policy.cooldown_s * NS)
            return ()
        if document["first_step"] is not None:
            self._ledger.commits[request.id] = int(document["first_step"])
        return self.handle(moves.RequestReceived(request, tuple(document["suspects"])), now)

    # What arrives from outside.

    def _request_received(self, event: moves.RequestReceived, now: Now) -> None:
        request, id = event.request, event.request.id
        if id in self._tasks or self._ledger.is_settled(id):
            return
        ranks = request.ranks_in(self.world_size, event.suspects)
        is_wrong = not ranks or ranks[0] < 0 or ranks[-1] >= self.world_size
        if not is_wrong:
            self.placing.add(request)
            if request.planned is None:
                decided = id in self._ledger.commits or id in self._ledger.cancels
                self._agreement.received(request, ranks, now, decided)
            if self.rank not in ranks:
                self._ledger.put(self._ledger.elsewhere, id, None)
                return
        deadline_ns = now.mono_ns + life_ns(request, now)
        together = choose_agreeing(ranks) if needs_agreement(request, ranks) else None
        self._tasks[id] = task = Task(request, deadline_ns, together, suspects=event.suspects)
        refusal = task.wrong_ranks(self.world_size) if is_wrong else self._refusal(task)
        if id in self._ledger.cancels:
            self._end(task, CANCELLED, self._ledger.cancels.pop(id), now)
        elif refusal:
            self._end(task, REFUSED, refusal, now)
        elif now.mono_ns >= deadline_ns:
            self._end(task, EXPIRED, "it had expired when it came, by the clock of this host", now)
        elif id in self._ledger.commits:
            self._committed(moves.Commit(id, self._ledger.commits.pop(id)), now)

    def _refusal(self, task: Task) -> str:
        if sum(other.request.planned is None for other in self._tasks.values()) > self.policy.queue:
            return f"{self.policy.queue} requests wait on this rank already"
        if self.patience is not None and not task.request.force and self.patience.refusal(task.request.preset):
            return self.patience.refusal(task.request.preset)
        return "the process ends" if self._process_ends else self._spending.used_up()

    def _cancel_received(self, event: moves.CancelReceived, now: Now) -> None:
        task = self._tasks.get(event.id)
        self._agreement.cancelled(event.id)
        if task is not None:
            self._end(task, CANCELLED, event.reason, now)
        else:
            self._ledger.put(self._ledger.cancels, event.id, event.reason)

    def _acknowledged(self, event: moves.Acknowledged, now: Now) -> None:
        if event.report.rank != self.rank:
            self._agreement.reported(event.report, now)

    def _committed(self, event: moves.Commit, now: Now) -> None:
        task = self._tasks.get(event.id)
        self.placing.settle(event.id)
        if task is None:
            self._ledger.put(self._ledger.commits, event.id, event.first_step)
        elif task.request.planned is not None:
            task.place(event.first_step)
        elif not task.needs_agreement or task.state != QUEUED:
            return
        elif self.step is not None and self.step >= event.first_step:
            late = f"the agreed step {event.first_step} had begun here: it is step {self.step}"
            self._end(task, EXPIRED, late, now)
        elif self._active is not None:
            self._end(task, REFUSED, f"request {self._active.request.id} is under way on this rank", now)
        else:
            task.first_step = event.first_step
            self._arm(task)

    def _dropped(self, event: moves.Drop, now: Now) -> None:
        self._ledger.commits.pop(event.id, None)
        task = self._tasks.get(event.id)
        if task is not None and task.state == QUEUED:
            self._end(task, EXPIRED, f"no step was agreed: {event.reason}", now)

    # What the training thread does.

    def _stage_entered(self, event: moves.StageEntered, now: Now) -> None:
        if self.placing.sees(event.stage, self.step):
            self._go_on(now)  # the window may begin with this very stage
        task, inside = self._active, self._occurrence
        if inside is not None:
            inside.depth += (event.stage, event.thread) == (inside.stage, inside.thread)
        elif task is not None and self._session is None and task.wants(event.stage, self.step):
            if event.may_move:
                self._end(task, REFUSED, f"{event.stage} may end on another thread, which no session can", now)
                return
            if task.request.occurrences is None and task.first_step is None:
                task.first_step = self.step
            self._occurrence = Occurrence(event.stage, event.thread, task.request.sample)
            if task.request.sample is None:
                self._start(task, self._occurrence, now)

    def _stage_left(self, event: moves.StageLeft, now: Now) -> None:
        task, inside = self._active, self._occurrence
        if task is not None and inside is not None and inside.left(event.stage, event.thread):
            self._occurrence = None
            task.note(inside.missed())
            self._stop("the stage ended in an error" if event.error else "")

    def _boundary_passed(self, event: moves.BoundaryEntered | moves.BoundaryLeft, now: Now) -> None:
        """The sample begins with a piece that is entered, and is complete with one that is left."""
        task, inside = self._active, self._occurrence
        sample = None if inside is None else inside.sample_of(*event)
        if task is None or inside is None or sample is None:
            return
        if isinstance(event, moves.BoundaryLeft):
            inside.passed += 1
            if inside.passed >= sample.skip + sample.record:
                self._stop("")
        elif inside.passed == sample.skip and not inside.had_session:
            self._start(task, inside, now)

    def _step_advanced(self, event: moves.StepAdvanced, now: Now) -> None:
        self.pace = self.pace.at(event.step, now.mono_ns)
        self._steps_by = self._steps_by if event.thread is None else event.thread
        task, inside = self._active, self._occurrence
        if task is not None and inside is not None and (inside.stage, inside.thread) == (WHOLE_STEPS, event.thread):
            if not task.is_due(event.step):
                self._occurrence = None
                self._stop("")
            elif self._session is not None:
                self._session.steps += (event.step,)

    def _ticked(self, event: moves.Tick, now: Now) -> None:
        most = None if self._active is None else self._active.request.limits.bytes
        if most is not None and (event.session_bytes or 0) >= most:
            self._drain(f"its limit of {most} bytes, at {event.session_bytes}")

    def _gives_way(self, event: moves.GiveWay, now: Now) -> None:
        """The request ends with what it has; where its session is another thread's, when that comes by."""
        session, task = self._session, self._active
        if session is None or task is None or session.stopping:
            return
        task.ending = task.ending or (DONE, "")
        if session.thread == event.thread:
            self._stop(f"cut short by {event.who}'s profile")
        else:
            self._drain(f"{event.who}'s profile")
            task.note(f"{event.who}'s profile began on another thread")

    def _ending(self, event: moves.Ending, now: Now) -> None:
        self._process_ends = True
        if self._session is not None:
            self._session.thread = event.thread  # the last chance, whoever began it
            self._drain("the end of the process")

    # What goes on by itself.

    def _go_on(self, now: Now) -> None:
        """Places what is planned, ends what is over, and takes up what may begin."""
        for id, step in self.placing.take().items():
            if id in self._tasks:
                self._tasks[id].place(step)
            if self._agreement.agrees:
                self._out.append(moves.Commit(id, step))
        for task in list(self._tasks.values()):
            task.elsewhere = self.elsewhere
            if task is not self._active or self._session is None:
                over = task.over(self.step, now, self._spending, self._process_ends)
                if over is not None:
                    self._end(task, *over, now)
        if self._active is not None:
            for task in self._tasks.values():
                if task.state == QUEUED:
                    task.wait(f"waits for request {self._active.request.id}, under way here")
            return
        upcoming = self._next_task(now)
        if upcoming is not None:
            self._arm(upcoming)

    def _next_task(self, now: Now) -> Task | None:
        """The request to arm, if any; those of several ranks are ready then, and wait for the step to be agreed.

        A planned window comes in its own steps, before any other and whether or not the rank cools down.
        """
        room = f"waits: {self.policy.hour_s:g} s of sessions in an hour are used up"
        room = "" if self._spending.left_ns(now) > 0 else room
        cools, lead = now.mono_ns < self._cool_until_ns, choose_lead(self.policy, self.pace.step_ns)
        queued = [task for task in self._tasks.values() if task.state == QUEUED]
        planned = [task for task in queued if task.request.planned is not None]
        waiting = [task for task in queued if task.request.planned is None]
        for task in queued:
            task.wait("waits for the cooldown" if cools and task.request.planned is None else room)
        if room:
            return None
        due = next((task for task in planned if task.is_due(self.step) and not task.waits_for(self._theirs, 0)), None)
        if due is not None or cools:
            return due
        # On every rank the same one, whenever it hears of them.
        together = (task for task in waiting if task.needs_agreement)
        first = min(together, key=lambda task: (task.request.created_ns, task.request.id), default=None)
        for task in waiting:
            if task.waits_for(self._theirs, lead):
                continue
            if task.needs_agreement and first is not None:
                task.await_others(first, now)
            elif not any(other.ready_ns is not None for other in waiting):
                return task
        return None

    def _arm(self, task: Task) -> None:
        for other in self._tasks.values():
            other.ready_ns = None
        self._active, self._occurrence = task, None
        task.state, task.reason = ARMED, ""
        request, bound_s = task.request, self._bound_s(task.request)
        if self.patience is not None and bound_s < request.limits.seconds_within(self.policy.session_s):
            why = f"{self.patience.why(request.preset)}; --force lifts that"
            task.note(f"each session is ended at the first stage or piece after {bound_s:.4g} s: {why}")
        if request.occurrences is None and self.step is not None and task.first_step is None:
            if len(request.stages) > 1 or WHOLE_STEPS in request.stages:
                task.first_step = self.step + 1  # some of its stages may be over in this step
            task.heard_in = self.step  # a step is a whole one
            task.reason = f"begins in a later step than {self.step}, in which it was heard"

    def _end(self, task: Task, state: str, reason: str, now: Now) -> None:
        """This request ends so: now, or as soon as its session is closed."""
        if task is self._active and self._session is not None:
            task.ending = task.ending or (state, reason)
            self._drain(f"the request's end: {state}")
            return
        if state == DONE and task.request.planned is not None and task.first_step not in task.steps:
            task.note(f"nothing was recorded of step {task.first_step}: heard of too late, or the stage is not in it")
        del self._tasks[task.request.id]
        task.ready_ns = None
        self._ledger.put(self._ledger.ended, task.request.id, task.report(self.rank, self.step, state, reason))
        if task is self._active:
            self._active = self._occurrence = None
        if task.had_session:
            self._cool_until_ns = now.mono_ns + int(self.policy.cooldown_s * NS)

    def _tell_changes(self, now: Now) -> None:
        """Acknowledge each request that is not as it was when last told; a step alone is no change."""
        reports = self.reports()
        for id, report in reports.items():
            last = self._said.get(id)
            is_new = last is None or report != last._replace(step=report.step)
            if is_new:
                self._said[id] = report
                self._out.append(moves.Acknowledge(report))
            if is_new or report.ready:  # whoever is ready is so with its step of now
                self._agreement.reported(report, now)
        self._said = {id: self._said[id] for id in reports}

    def _agree(self, now: Now) -> None:
        """What this rank decides for all, and itself has to keep to."""
        step_ns, since_ns = self.pace.step_ns, self.pace.since_ns
        if step_ns is None and since_ns is not None:
            # As long as the step so far, where none has ended yet, once it has outlasted the messages.
            outlasts_ns = min(2 * self.policy.transport_s, self.policy.agreement_s) * NS
            step_ns = now.mono_ns - since_ns if now.mono_ns - since_ns >= outlasts_ns else None
        for action in list(self._agreement.due(self.step, step_ns, now)):
            self._out.append(action)
            if isinstance(action, (moves.Commit, moves.Drop)):
                _HANDLERS[type(action)](self, action, now)
        self._tell_changes(now)


_HANDLERS: Mapping[type, Callable[[Machine, Any, Now], None]] = {
    moves.RequestReceived: Machine._request_received, moves.CancelReceived: Machine._cancel_received,
    moves.Acknowledged: Machine._acknowledged, moves.Commit: Machine._committed, moves.Drop: Machine._dropped,
    moves.StageEntered: Machine._stage_entered, moves.StageLeft: Machine._stage_left,
    moves.BoundaryEntered: Machine._boundary_passed, moves.BoundaryLeft: Machine._boundary_passed,
    moves.StepAdvanced: Machine._step_advanced, moves.Tick: Machine._ticked, moves.Ending: Machine._ending,
    moves.SessionStopped: Machine._session_stopped, moves.SessionFailed: Machine._session_failed,
    moves.SessionPutOff: Machine._session_put_off, moves.GiveWay: Machine._gives_way,
    moves.TheirProfiles: lambda machine, event, _: setattr(machine, "_theirs", event.coming),
}  # fmt: skip
