"""Ranks with escalation machines, a bus between them, clocks that are set, and backends that record what they do.

Nothing runs by itself: a test moves time, messages and training by calls. Whatever breaks a promise fails at once: a
second session, one beside light capture, one outside its stage, one for a request that had ended or was begun before.
"""

from __future__ import annotations

import json
from typing import Any

from mstxkit.escalation.machine import moves
from mstxkit.escalation.machine.machine import Machine
from mstxkit.escalation.machine.moves import NS, Now
from mstxkit.store.limits import Policy
from mstxkit.store.report import Report
from mstxkit.store.request import WHOLE_STEPS, Known, Request, check_request

STAGES = ("actor_generate", "actor_update", "train_step")
QUICK = Policy(cooldown_s=5, session_s=50, hour_s=100, run_s=400, agreement_s=20, transport_s=0.1)


def request(world_size: int = 4, now_ns: int = 0, **given: Any) -> Request:
    """A request of the stage actor_update on rank 0, but for what is given."""
    known = Known((*STAGES, WHOLE_STEPS), range(world_size), ("full", "kernels"))
    return check_request({"stage": "actor_update", "ranks": [0], **given}, known, now_ns=now_ns)


_KEPT = (moves.RequestReceived, moves.CancelReceived, moves.Commit, moves.Drop)


class Killed(Exception):
    """The process of a rank ends without a word."""


class Backend:
    """One rank's profiler: what was recorded, over all of its processes."""

    def __init__(self) -> None:
        self.open: moves.StartSession | None = None
        self.thread = -1
        self.light = True
        self.theirs = False  # does somebody else's profiler record?
        self.fails = ""  # "late", "taken", "start", "stop", "kill": with the next session
        self.begun: dict[str, int] = {}  # request -> the process that had its sessions
        self.recorded: list[tuple[str, str, int | None]] = []
        self.took_turns: set[str] = set()  # requests that found the device taken

    def start(self, order: moves.StartSession, process: int, thread: int) -> moves.Event | None:
        assert self.open is None, "two sessions at once"
        assert self.light, "light capture has not come back after the session before"
        self.light = False
        if self.theirs:
            return moves.SessionPutOff("verl's profile came first", "verl's profile")
        assert self.begun.setdefault(order.id, process) == process, "a request that was begun before a restart"
        if self.fails == "kill":
            raise Killed
        if self.fails == "start":
            return moves.SessionFailed("no folder appeared: the disk is full")
        if self.fails == "late":
            return moves.SessionPutOff("the disk had not answered in time")
        if self.fails == "taken":
            self.took_turns.add(order.id)
            return moves.SessionPutOff("device 0 is taken by process 7 on here", is_taken=True)
        self.open, self.thread = order, thread
        return None

    def stop(self, order: moves.StopSession, thread: int) -> moves.Event:
        opened, self.open = self.open, None
        assert opened is not None and opened.id == order.id, "nothing to stop"
        assert thread in (self.thread, LAST), "another thread stops it"
        if self.fails == "stop":
            return moves.SessionFailed("no data was written: the disk is full")
        self.recorded.append((opened.id, opened.stage, opened.step))
        return moves.SessionStopped(bytes=100)


LAST = 99  # the thread on which a process ends


class Rank:
    """One rank: its machine while its process lives, its backend, the stages it is inside of."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.backend = Backend()
        self.machine: Machine | None = Machine(number, world.size, world.policy)
        self.process = 0
        self.saved = "{}"
        self.inside: list[tuple[str, int]] = []  # (stage, thread)
        self.watched = True
        self.inbox: list[moves.Event] = []
        self.said: list[Report] = []
        self.did: list[moves.Action] = []

    def tell(self, event: moves.Event) -> None:
        """An event, and what follows from it."""
        thread = getattr(event, "thread", None)
        events = [event]
        while events and self.machine is not None:
            event = events.pop(0)
            actions = self.machine.handle(event, self.world.now())
            if actions or isinstance(event, _KEPT):  # as machine.py asks of its owner
                self.saved = json.dumps(self.machine.memory(self.world.now()))
            try:
                for action in actions:
                    events += self._carry_out(action, thread)
            except Killed:
                self.kill()

    def _carry_out(self, action: moves.Action, thread: int | None) -> list[moves.Event]:
        self.did.append(action)
        if isinstance(action, moves.Acknowledge):
            self._say(action.report)
        elif isinstance(action, (moves.Commit, moves.Drop)):
            self.world.publish(action, but=self.number)
        elif isinstance(action, moves.ResumeLight):
            assert self.backend.open is None, "light capture beside a session"
            self.backend.light = True
        else:
            assert thread is not None, "a session begins or ends off the training thread"
            if isinstance(action, moves.StopSession):
                return [self.backend.stop(action, thread)]
            assert action.id not in {one.id for one in self.said if one.has_ended}, "it had ended"
            return list(filter(None, [self.backend.start(action, self.process, thread)]))
        return []

    def _say(self, report: Report) -> None:
        if report.rank == self.number:
            self.said.append(report)
        self.world.reports.append(Report.read(json.loads(json.dumps(report._asdict()))))
        self.world.publish(moves.Acknowledged(report), but=self.number)

    def kill(self) -> None:
        self.machine = None
        self.backend.open, self.backend.light = None, True
        self.inside, self.backend.fails = [], ""

    def restart(self) -> None:
        memory = json.loads(self.saved)
        self.process += 1
        self.machine = Machine(self.number, self.world.size, self.world.policy)
        if memory:
            actions = self.machine.restore(memory, self.world.now())
            self.saved = json.dumps(self.machine.memory(self.world.now()))
            for action in actions:
                self._carry_out(action, None)

    def their_profile(self, begins: bool) -> None:
        """Somebody else's profiler begins, on the thread of our session, or ends; a look of the watcher's later that is
        known.
        """
        if begins:
            self.tell(moves.GiveWay("verl", self.backend.thread))
            assert self.backend.open is None, "theirs begins beside ours"
        self.backend.theirs = begins
        self.tell(moves.TheirProfiles((("verl's profile", 0),) if begins else ()))

    def enter(self, stage: str, thread: int = 0, may_move: bool = False) -> None:
        self.inside.append((stage, thread))
        self.tell(moves.StageEntered(stage, thread, may_move))

    def leave(self, error: bool = False) -> None:
        if self.inside:
            stage, thread = self.inside.pop()
            self.tell(moves.StageLeft(stage, thread, error))

    def run(self, stage: str, error: bool = False) -> None:
        """A whole occurrence of a stage."""
        self.enter(stage)
        self.leave(error)

    def advance(self, step: int) -> None:
        self.tell(moves.StepAdvanced(step))

    def last(self, id: str) -> Report:
        return [report for report in self.said if report.id == id][-1]

    def state(self, id: str) -> str:
        return self.last(id).state

    def states(self) -> dict[str, str]:
        """Its state of every request that it has said anything of."""
        return {report.id: report.state for report in self.said}

    def stages_recorded(self) -> list[tuple[str, int | None]]:
        return [(stage, step) for _, stage, step in self.backend.recorded]


class World:
    """Ranks, the time, and the messages between them."""

    def __init__(self, size: int = 1, policy: Policy = QUICK) -> None:
        self.size, self.policy = size, policy
        self.mono_ns, self.wall_ns = 50 * NS, 1_000_000 * NS
        self.reports: list[Report] = []
        self.elsewhere: set[int] = set()  # ranks that never enter a stage that anybody asks for
        self.ranks = [Rank(self, number) for number in range(size)]

    def now(self) -> Now:
        return Now(self.wall_ns, self.mono_ns)

    def has_long_been_in(self, *steps: int) -> None:
        """All ranks are in this step, or each in its own, for so long that messages take no step."""
        for rank, step in zip(self.ranks, steps * self.size if len(steps) == 1 else steps):
            rank.advance(step)
        self.pass_s(2 * self.policy.transport_s)

    def pass_s(self, seconds: float) -> None:
        """Time passes, and everybody's watcher sees it."""
        self.mono_ns += int(seconds * NS)
        self.wall_ns += int(seconds * NS)
        for rank in self.ranks:
            if rank.watched:
                rank.tell(moves.Tick())

    def publish(self, event: moves.Event, but: int | None = None) -> None:
        for rank in self.ranks:
            # A request waits in the inbox of a rank that never enters its stage.
            is_kept_back = isinstance(event, moves.RequestReceived) and rank.number in self.elsewhere
            if rank.number != but and not is_kept_back:
                rank.inbox.append(event)

    def deliver(self) -> None:
        """Everything that is under way arrives, where somebody watches."""
        while any(self.deliver_one(rank) for rank in self.ranks):
            pass

    def deliver_one(self, rank: Rank, index: int = 0) -> bool:
        if rank.machine is None or not rank.watched or not rank.inbox:
            return False
        rank.tell(rank.inbox.pop(index % len(rank.inbox)))
        return True

    def ask(self, suspects: tuple[int, ...] = (), **given: Any) -> Request:
        """A request that arrives everywhere at once."""
        made = self.made(**given)
        self.publish(moves.RequestReceived(made, suspects))
        self.deliver()
        return made

    def made(self, **given: Any) -> Request:
        return request(self.size, self.wall_ns, **given)

    def ended(self, id: str, rank: int) -> bool:
        """Has anybody said how the request ended on that rank?"""
        return any(one.has_ended for one in self.reports if (one.id, one.rank) == (id, rank))
