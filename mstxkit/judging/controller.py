"""Batches in, verdicts out: the same for an actor of Ray's, for the process beside rank 0, and for `mstxkit top`.

Of values alone: no file, no clock of its own. What it holds is bounded, whatever the batches say.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple

import numpy as np

from ..host import parts
from ..stages import canonical_key
from ..store import collectives, records
from ..store.batches import COLLECTIVES, STAGES, Batch, HandingProcess
from ..store.job_file import JobState, RoleFigures
from ..store.metrics_setting import NOTHING_KNOWN, Flops
from ..store.settings_file import Figures, LiveSettings
from ..store.values import whole_number
from ..store.verdicts import Verdict
from . import figures, settings
from .cpu_waits import CpuWaits
from .directory import NOBODY, Directory, HandingProcesses, SendingHost
from .entering import EnteredSteps, rows_in
from .evidence import Peer, RoleStep, Seconds, Whole
from .judge import JobJudge
from .judged import RINGS, Judged, Want
from .steps import ROW, Closing, RoleBook

ROLES_AT_MOST, STAGES_OF_A_PROCESS = 64, 256
# Rows are worked on together that came within so many seconds, or once there are so many of them.
_TOGETHER_S, _TOGETHER_ROWS = 0.25, 1 << 18
# Rings that the judge asks for are asked for no more often than this.
_ASKED_EVERY_S = 10.0
_NS = 1e9


class Outcome(NamedTuple):
    """What has come of some batches, with the figures of each step of a role that was judged."""

    verdicts: tuple[Verdict, ...] = ()
    wants: tuple[Want, ...] = ()
    figures: tuple[RoleFigures, ...] = ()


class Controller:
    """The judge of one job, fed with batches. One thread at a time.

    Args:
        run: The run's folder as a person would name it.
        standing: Verdicts that an earlier judge has left.
        closing: When steps are closed.
        reference: The clock that hosts exchange time stamps with, as for `Directory`.
        flops: What a token costs, for MFU.
        on_step: Is given each step as it is judged: with the bounds of its members' errors, and once more with its
            collectives when they come later.
        judges: False: steps are put together for `on_step` alone.

    Attributes:
        closing: When steps are closed, from now on.
        directory: Who sends.
        figures: Of the step that was judged last.
        judge: Of the attempt at the job that goes on.
        missed_rows: Rows that nobody has read, or of a step and of nobody known here; `state` adds those that came too
            late.
    """

    def __init__(
        self, run: str, standing: tuple[Verdict, ...] = (), closing: Closing | None = None,
        reference: tuple[str, int] = ("", 0), flops: Flops = NOTHING_KNOWN,
        on_step: Callable[[RoleStep], object] | None = None, judges: bool = True,
    ) -> None:  # fmt: skip
        self._flops, self._on_step, self._judges = flops, on_step, judges
        self.directory, self.figures, self.missed_rows = Directory(reference), Figures(), 0
        self.closing, self._last = closing or Closing(), dict[str, int]()
        self.judge = JobJudge(settings.default_settings(), run, standing)
        self._settings = LiveSettings()
        self._books: dict[str, RoleBook] = {}
        self._processes, self._origin_ns, self._cpu = HandingProcesses(), 0, CpuWaits()
        self._pending: list[tuple[int, bytes]] = []
        self._pending_rows, self._pending_s, self._taken_s = 0, 0.0, 0.0
        self._latest: dict[str, RoleFigures] = {}
        self._entered, self._asked_s = EnteredSteps(), 0.0

    def apply(self, changed: LiveSettings) -> None:
        """Judge by these from the next step on."""
        if changed.version != self._settings.version:
            self._settings = changed
            self.judge.settings = settings.of_json(changed.values)
            self.figures = self.figures._replace(settings=changed.version)

    def take(self, batch: Batch, now_s: float) -> bool:
        """Take a batch, unless it came before. `now_s`: wall clock; where old batches are read, the time when each was
        made.
        """
        sent = self.directory.take(batch, now_s)
        if sent is None:
            return False
        host, sender = sent
        for process in batch.processes():
            sender.processes[process.number] = self._process(process, host)
        self._entered.learn_groups(batch.head)
        for kind, number, rows in batch.parts:
            if kind == COLLECTIVES and rows:
                self._take_entries(sender.processes.get(number, NOBODY), rows, now_s)
            if kind == STAGES and rows:
                self._pending.append((sender.processes.get(number, NOBODY), rows))
                self._pending_rows += len(rows) // ROW.itemsize
        self._pending_s, self._taken_s = self._pending_s or now_s, now_s
        for number, counts in batch.cpu():
            self._cpu.take(self._processes.name(sender.processes.get(number, NOBODY)), counts)
        ended = batch.numbers("ended")
        if ended:
            self._put()
            for number in ended:  # whose it is from now on, a later batch says
                self._processes.end(sender.processes.pop(number, NOBODY))
        self.missed_rows += whole_number(batch.head.get("missed"))  # that nobody has read, as its sender says
        return True

    def is_due(self, now_s: float) -> bool:
        """Is it time for `work`? So that batches are worked on together, and memory is not filled with them."""
        waited_s = now_s - self._pending_s
        is_long = waited_s >= _TOGETHER_S or waited_s < 0 or self._pending_rows >= _TOGETHER_ROWS
        return (bool(self._pending) and is_long) or self._entered.is_due(now_s)

    @property
    def settled_s(self) -> float:
        """When the first step is settled that all have handed over, if nothing more comes of it; inf: there is none."""
        return min((book.settled_s(self.closing) for book in self._books.values()), default=math.inf)

    @property
    def pace_s(self) -> float:
        """How long the shortest steps take, of all roles; 0: that is not known of any."""
        return min((book.pace_s for book in self._books.values()), default=0.0)

    def work(self, now_s: float, at_once: bool = False) -> Outcome:
        """Judge the steps that nobody is waited for any more. `at_once`: wait for nobody: nothing more will come."""
        self._put()
        verdicts: list[Verdict] = []
        wants: list[Want] = []
        steps: list[RoleFigures] = []
        for book in self._books.values():
            for step in map(self._with_errors, book.due(now_s, self.closing, at_once)):
                self._begin_anew_before(step)
                step = self._entered.closed(step, [book.stage(key) for key in step.stages])
                judged = self._close(step, now_s)
                verdicts += judged.verdicts
                wants += judged.wants
                steps.append(self._note(step, int(now_s * _NS)))
        for step in self._entered.due(now_s, at_once):
            verdicts += self._close(step, now_s).verdicts
        if any(want.kind == RINGS for want in wants) and abs(now_s - self._asked_s) >= _ASKED_EVERY_S:
            self._asked_s = now_s
            self.figures = self.figures._replace(asks=self.figures.asks + 1, written_ns=int(now_s * _NS))
        return Outcome(tuple(verdicts), tuple(wants), tuple(steps))

    def _close(self, step: RoleStep, now_s: float) -> Judged:
        step = step._replace(cpu=self._cpu.of(step.members))
        if self._on_step is not None:
            self._on_step(step)
        return self.judge.close(step, int(now_s * _NS)) if self._judges else Judged()

    def _take_entries(self, process: int, rows: bytes, now_s: float) -> None:
        if process == NOBODY:
            return
        entries, role = rows_in(rows), self._processes.books[self._processes.book_of[process]].role
        numbers = np.full(len(entries), process)
        stages = self._processes.stages_of(numbers, entries["operation"] >> collectives.OPERATION_BITS)
        aligned_s = self._aligned_s(numbers, entries["entered_ns"])
        self._entered.put(role, self._processes.name(process), entries, aligned_s, stages, now_s)

    def _begin_anew_before(self, step: RoleStep) -> None:
        """Another attempt at the job counts its steps from an earlier one on: it has histories of its own."""
        if step.step <= self._last.get(step.role, -1):
            self.judge = self.judge.of_next_attempt()
            self._last.clear()
            self._entered.forget_steps()  # they would come last, and close all up to their numbers
        self._last[step.role] = step.step

    def hosts(self) -> dict[str, SendingHost]:
        """Of which something is to come yet, by the names of their files: they have said no goodbye, and are not those
        that a restarted job has left.
        """
        left = self._processes.replaced_hosts()
        return {place: of for place, of in self.directory.hosts.items() if not (of.has_ended or of in left)}

    def state(self, now_ns: int) -> JobState:
        """The job as far as it has come here."""
        hosts = self.directory.hosts.values()
        ended, dropped = len(hosts) - len(self.hosts()), sum(host.dropped for host in hosts)
        counts = {name: judged for name, (_, judged) in self.judge.judged_steps().items()}
        # Of very many roles the judge judges the first ones only.
        roles = tuple(role._replace(judged_steps=counts.get(name, 0)) for name, role in self._latest.items())
        missed = self.missed_rows + sum(book.late_rows for book in self._books.values())
        clocks = {host.clock: host.put_right_ns for host in hosts if host.put_right_ns}
        return JobState(roles, len(hosts), ended, 0, (), missed, dropped, now_ns, self.figures.is_final, (), {}, clocks)

    def _note(self, step: RoleStep, now_ns: int) -> RoleFigures:
        modes = self.judge.modes(step.role)
        waited = self.judge.wait_ratio(step)
        of_role = self._latest[step.role] = figures.of_step(step, self._origin_ns, self._flops, modes, waited)
        blaming = sum(verdict.is_blaming for verdict in self.judge.standing())
        values = figures.join_figures(self._latest.values(), blaming)
        self.figures = Figures(step.step, values, self._settings.version, now_ns, asks=self.figures.asks)
        return of_role

    def _with_errors(self, step: RoleStep) -> RoleStep:
        """How far each member's times may be wrong against the others': nothing where all share one clock."""
        hosts = [self._processes.host(peer.process) for peer in step.members]
        boots = {host.boot for host in hosts if host is not None}
        if len(boots) < 2:
            return step
        errors = {id(host): self.directory.error_s(host) for host in hosts if host is not None}
        widest = max(errors.values())  # of one that has ended, nobody knows where it was
        return step._replace(error_s=np.array([errors.get(id(host), widest) for host in hosts]))

    def _process(self, process: HandingProcess, host: SendingHost) -> int:
        """Its number here; NOBODY for one that is not judged."""
        if process.under in parts.BESIDE:
            return NOBODY
        book = self._books.get(process.role)
        if book is None:
            if len(self._books) >= ROLES_AT_MOST:
                return NOBODY
            book = self._books[process.role] = RoleBook(process.role)
        peer = Peer(process.rank, host.host, process.name, process.part, process.waits, process.place)
        member = book.member(peer, {canonical_key(stage): whom for stage, whom in process.waits_for.items()})
        # Of several names of one stage the first has its key, or who is called so: else each would replace the other.
        keys = {name: canonical_key(name) for name in reversed(process.stages[:STAGES_OF_A_PROCESS])}
        own = {keys[name]: name for name in sorted(keys, key=lambda name: keys[name] == name)}
        stages = [book.stage(keys[s] if own[keys[s]] == s else s) for s in process.stages[:STAGES_OF_A_PROCESS]]
        return self._processes.enter(process.name, book, member, stages, host)

    def _put(self) -> None:
        """Decode all rows that are pending, at once."""
        pending, self._pending = self._pending, []
        self._pending_rows, self._pending_s = 0, 0.0
        if not pending:
            return
        counts = [len(rows) // ROW.itemsize for _, rows in pending]
        processes = np.repeat(np.array([process for process, _ in pending], np.int64), counts)
        rows = np.frombuffer(b"".join(rows for _, rows in pending), ROW)
        stages = self._processes.stages_of(processes, rows["stage"])
        is_known, is_of_step = (processes != NOBODY) & (stages >= 0), rows["step"] != records.NO_STEP
        self.missed_rows += int((is_of_step & ~is_known).sum())  # what is in no step is not judged, and not missed
        is_usable = is_of_step & is_known
        rows, processes, stages = rows[is_usable], processes[is_usable], stages[is_usable]
        entered_s = self._aligned_s(processes, rows["entered_ns"])
        books = self._processes.book_of[processes]
        for number in np.unique(books):
            here = books == number
            members = self._processes.member_of[processes[here]]
            self._processes.books[number].put(rows[here], members, stages[here], entered_s[here], self._taken_s)

    def _aligned_s(self, processes: Whole, entered_ns: Whole) -> Seconds:
        numbers = self._processes.host_of[processes]
        aligned_ns = np.zeros(len(entered_ns), np.int64)
        order = np.argsort(numbers, kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else ():
            host = self._processes.hosts[numbers[here[0]]]
            aligned_ns[here] = self.directory.aligned_ns(host, entered_ns[here].astype(np.int64))[0]
        self._origin_ns = self._origin_ns or int(aligned_ns.min(initial=1 << 62))
        return np.asarray((aligned_ns - self._origin_ns) / _NS)
