"""All processes of a run on this host, looked at together: who is stuck, who is gone, who raised what nobody caught.

Shared memory and `/proc` are read; the run folder is not touched.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from itertools import takewhile
from pathlib import Path
from typing import Any, Iterable, Mapping, NamedTuple

from ..errors import FormatError
from ..host import lease
from ..stages import canonical_key
from ..store import documents, incidents, layout, stacks
from ..store.documents import Unusable
from ..store.values import forget_oldest, table_of, whole_number
from ..triggers import hang
from ..triggers.hang import Hang, QuietRange
from . import deciding, kernel
from .asking import Answer, threads_of
from .deciding import Cause
from .dying import Death, Dying
from .kernel import Effort
from .looking import Place, RangeInside, WatchedProcess
from .reports import JudgedRange, make_report, tell_who, wall_ns

_NS = 10**9
# Seconds between two looks at most, where somebody is quiet; all the others have just done something: twice as many.
_LOOKS_EVERY_S, _LOOKS_LEAST_S = 1.0, 0.1
# A share of a core, and bytes a second, from which on somebody works.
_WORKS_CPU, _WORKS_BYTES_S = 0.2, 256 << 10
# Who works is asked so often, and so far apart, before it is told of.
_WORKS_ASKED, _ASKED_AGAIN_S = 3, 1.0
_HISTORY, _KINDS_AT_MOST, _DEAD_AT_MOST = 512, 4096, 64
_LOST_FROM_NS, _LOST_AT_MOST = _NS // 10, 256
# Who has become another program shows no sign of life, although its descriptor does.
_SILENT_NS = 2 * _NS
# A stage and the first range in it begin as good as at once.
_TICKS_APART_NS = 100_000
# Memory that ran out so long before a death may be what it died of: who has much takes its time to be gone.
_OOM_EVERY_NS, _OOM_SAMPLES = 10 * _NS, 3
_PLACE = "rank", "role", "part"


class HostEvent(NamedTuple):
    """Something by itself: a death, or an exception."""

    kind: str  # of `store.incidents.KINDS`
    process: str  # its name
    time_ns: int  # when it was seen; wall clock


class WatchedHost:
    """Its processes, by the folder of their live files. One thread, but for `seen`. `hang_s`: as `capture` has it."""

    def __init__(self, folder: Path, hang_s: float) -> None:
        self._folder, self.hang_s = folder, hang_s
        self.settings = Hang()
        self.seen: tuple[str, ...] = ()  # the names of those that were there at the last look; any thread
        self.lock = -1  # by which it shows that it gets on
        self.processes: dict[str, WatchedProcess] = {}
        # Those that have ended in order, with the ranges that they had not left.
        self.ended: dict[str, list[RangeInside]] = {}
        self._efforts: dict[str, deque[tuple[int, Effort]]] = {}
        self._past: dict[tuple[str, str, str], deque[float]] = {}
        self._dying = Dying()
        self._dead: deque[dict[str, Any]] = deque(maxlen=_DEAD_AT_MOST)
        self._raised: dict[str, tuple[tuple[int, int], int]] = {}
        self._judged: dict[str, list[JudgedRange]] = {}
        # Those that are gone, and whose live files nobody has sealed yet.
        self._over: set[str] = set()
        # When this process slept on although its time was over, and for how long.
        self._lost: deque[tuple[int, int]] = deque(maxlen=_LOST_AT_MOST)
        self._anew_ns = 0
        self._oom_kills = deque([(time.monotonic_ns(), kernel.oom_kills())], maxlen=_OOM_SAMPLES)
        # Is nobody new to be looked at any more?
        self.is_closing = False

    def have_told_of(self, raised: Mapping[str, int], gone: set[str]) -> None:
        """So many exceptions of these processes have been told of already, and that these are gone."""
        self._raised |= {name: ((0, 0), count) for name, count in raised.items()}
        for name in gone & self.processes.keys():
            self._over.add(name)
            self._forget_process(self.processes.pop(name))

    def look(self) -> list[HostEvent]:
        """Look at all of them; deaths and exceptions that are news."""
        lease.show_life(self.lock)
        names, now_ns = self.begin(), time.monotonic_ns()
        events, ended = self._find_unseen(names), self._ended_within(0)
        for name, process in list(self.processes.items()):
            self._look_at(process, now_ns)
            events += self._new_exceptions(process)
            may_be_gone = process.pidfd < 0 or now_ns - process.heartbeat_ns > _SILENT_NS
            if name not in names or process.pidfd in ended or (may_be_gone and process.is_gone()):
                self._end(process, now_ns)
        self.seen = tuple(self.processes)
        if now_ns - self._oom_kills[-1][0] >= _OOM_EVERY_NS:
            self._oom_kills.append((now_ns, kernel.oom_kills()))
        return events + self._decide_deaths(now_ns)

    def wait(self, seconds: float) -> None:
        """Until one of them is gone, but no longer."""
        began_ns = time.monotonic_ns()
        self._ended_within(seconds)
        lost_ns = time.monotonic_ns() - began_ns - int(seconds * _NS)
        if lost_ns > _LOST_FROM_NS:
            self._lost.append((began_ns, lost_ns))

    def _ended_within(self, seconds: float) -> set[int]:
        """The descriptors of those that have ended by then, as soon as one has."""
        poll = select.poll()
        for process in self.processes.values():
            if process.pidfd >= 0:
                poll.register(process.pidfd, select.POLLIN)
        return {descriptor for descriptor, _ in poll.poll(int(1000 * seconds))}

    @property
    def look_again_s(self) -> float:
        """How long `wait` may last. Who is gone ends it, and who has just gone on need not be looked at so soon."""
        every_s = min(_LOOKS_EVERY_S, max(_LOOKS_LEAST_S, self._limit_s() / 8))
        return every_s if self._efforts or self._dying.deaths else 2 * every_s

    @property
    def is_empty(self) -> bool:
        """Is nobody there, and nothing left to decide?"""
        return not self.processes and not self._dying.deaths

    def is_anew(self, reports: Iterable[Mapping[str, Any]], names: set[str], time_ns: int) -> bool:
        """Has a rank of these processes, by their reports, begun in another one since then (wall clock)?"""
        whose = [p.who for p in self.processes.values() if wall_ns(p.began_ns) > time_ns]
        anew = [[who.get(key) for key in _PLACE] for who in whose if who.get("rank") is not None]
        return any(r.get("process") in names and [r.get(key) for key in _PLACE] in anew for r in reports)

    @property
    def is_deciding(self) -> bool:
        """Has somebody just died of whom is still to be told?"""
        now_ns = time.monotonic_ns()
        return any(self._dying.kind(death, self.processes.values(), now_ns) for death in self._dying.deaths)

    def stuck(self) -> dict[Place, JudgedRange]:
        """The ranges that are stuck."""
        every = ((name, judged) for name, ranges in self._judged.items() for judged in ranges)
        return {(name, j.range.slot.track, j.range.slot.start): j for name, j in every if j.is_stuck}

    def is_debugged(self) -> bool:
        """Is a debugger attached to any of them?"""
        return any(kernel.find_tracer(process.pid) for process in self.processes.values() if process.pid)

    def begin_anew(self) -> None:
        """What was quiet until now counts for nobody: somebody was debugged."""
        self._anew_ns = time.monotonic_ns()

    def reports_of_hang(self, blamed: Mapping[str, int]) -> tuple[list[dict[str, Any]], Cause | None]:
        """On all of them, where somebody seems stuck, and what these come to. Who works is asked again: between two
        graphs a compiler is not on the stack.
        """
        for _ in range(_WORKS_ASKED):
            reports = self.reports(asks_all=False)
            cause = deciding.find_cause(reports, self.hang_s, blamed)
            if cause is None or cause.report is None or cause.report.get("works") is not True:
                break
            time.sleep(_ASKED_AGAIN_S)
        return reports, cause

    def reports(self, asks_all: bool = True) -> list[dict[str, Any]]:
        """On all of them, and on those that died. Takes up to five seconds, where some do not answer. `asks_all`:
        False: leave those alone that work, and may, while it is not known whether anything is wrong.
        """
        lease.show_life(self.lock)
        stuck = {name for name, _, _ in self.stuck()}
        asked = [p for p in self.processes.values() if asks_all or p.name in stuck or not self._works(p.name)]
        answers = threads_of(asked, self._folder, lambda name: bool(self._efforts.get(name)) and not self._works(name))
        now_ns = time.monotonic_ns()
        for process in self.processes.values():  # asking took its time: one moment for all
            self._look_at(process, now_ns)
        reports = [self._make_report(process, answers.get(name, Answer())) for name, process in self.processes.items()]
        pending = [self._of_death(death) for death in self._dying.deaths]
        return [*filter(None, reports), *pending, *self._dead]

    def _make_report(self, process: WatchedProcess, answer: Answer) -> dict[str, Any] | None:
        quiet_s = (time.monotonic_ns() - process.moved_ns) / _NS
        judged, works = self._judged.get(process.name, []), self._works(process.name)
        try:
            process.learn_who()
            return make_report(process, self._folder, answer, judged, works=works, quiet_s=quiet_s)
        except (OSError, FormatError):
            return None  # it has just ended

    def _find_unseen(self, living: Iterable[str]) -> list[HostEvent]:
        """Of those that raised what nobody caught and ended in order before anybody saw them."""
        names = set(self._list_names(layout.STACKS_SUFFIX)) - set(living) - self.processes.keys() - self._raised.keys()
        reports = [_left_by(self._folder, name) for name in names]
        self._raised |= {report["process"]: ((0, 0), report["raised"]) for report in reports}
        raised = [report for report in reports if report["raised"]]
        self._dead += raised
        return [HostEvent(incidents.EXCEPTION, report["process"], report["gone_ns"]) for report in raised]

    def _list_names(self, suffix: str = layout.LIVE_SUFFIX) -> list[str]:
        try:
            return [name[: -len(suffix)] for name in os.listdir(self._folder) if name.endswith(suffix)]
        except OSError:
            return []

    def begin(self) -> list[str]:
        """Look at who is new from now on, whatever becomes of his files; the names of all that are there."""
        names = self._list_names()
        self._over &= set(names)
        new: list[WatchedProcess] = []
        for name in () if self.is_closing else set(names) - set(self.processes) - self._over:
            try:
                new.append(WatchedProcess(self._folder, name))
            except (OSError, FormatError):
                pass  # it is just being made, or has just ended
        dead = [process for process in new if process.is_gone()]
        self.processes |= {process.name: process for process in new if process not in dead}
        living = list(self.processes.values())
        for process in dead:
            if any(map(process.has_met, living)):  # nobody saw it die: it is seen now
                self.processes[process.name] = process
            else:  # of a job before this one, which was killed as a whole
                self._over.add(process.name)
                self._forget_process(process)
        return names

    def _look_at(self, process: WatchedProcess, now_ns: int) -> None:
        stuck = {j.range.slot: j.range.quiet_ns for j in self._judged.get(process.name, ()) if j.is_stuck}
        try:
            left = process.look(now_ns)
        except (OSError, FormatError):
            return
        for range_ in left:
            self._remember_range(process, range_, now_ns - max(range_.since_ns, self._anew_ns))
        for range_ in process.inside if stuck else ():  # who went on after all may be quiet for so long again
            self._remember_range(process, range_, range_.quiet_ns - stuck.get(range_.slot, range_.quiet_ns))
        quiet_s = max(((now_ns - range_.quiet_ns) / _NS for range_ in process.inside), default=0.0)
        if quiet_s > self._limit_s() / 4:
            self._measure_effort(process, now_ns)
        else:
            self._efforts.pop(process.name, None)
        self._judged[process.name] = self._judge_all(process, now_ns)

    def _judge_all(self, process: WatchedProcess, now_ns: int) -> list[JudgedRange]:
        """What it is inside of, outermost first: nobody is stuck while something further inside may last longer."""
        works, may_last_s, judged = self._works(process.name), dict[int, float](), list[JudgedRange]()
        inside = sorted(process.inside, key=lambda r: (r.since_ns // _TICKS_APART_NS, r.slot.depth))
        for number, range_ in reversed([*enumerate(inside)]):
            thread = range_.slot.thread
            of_thread = (r for r in inside[: number + 1] if r.slot.thread == thread)
            stage = hang.slowest_stage([canonical_key(r.stage) for r in of_thread])
            quiet_s = self._quiet_s(range_, now_ns)
            seen = QuietRange(quiet_s, self._past.get(_key_of(process, range_), ()), works, stage)
            limit_s = max(may_last_s.get(thread, 0.0), hang.limit_s(self.settings, self.hang_s, seen))
            patience_s = hang.patience_s(self.settings, limit_s, range_.ended)
            open_s, may_last_s[thread] = (now_ns - range_.since_ns) / _NS, limit_s
            judged.append(JudgedRange(range_, open_s, quiet_s, limit_s, quiet_s > limit_s, patience_s))
        return judged[::-1]

    def _quiet_s(self, range_: RangeInside, now_ns: int) -> float:
        """But for when nobody here could go on, as the whole host stood still: paused, moved, or next to no CPU."""
        since_ns = max(range_.quiet_ns, self._anew_ns)
        lately = takewhile(lambda lost: lost[0] >= since_ns, reversed(self._lost))
        return max(0.0, (now_ns - since_ns - sum(lost_ns for _, lost_ns in lately)) / _NS)

    def _limit_s(self) -> float:
        return self.settings.after_s or self.hang_s

    def _remember_range(self, process: WatchedProcess, range_: RangeInside, taken_ns: int) -> None:
        taken_s = taken_ns / _NS
        if taken_s >= self._limit_s() / self.settings.p99:
            key = _key_of(process, range_)
            if key in self._past or len(self._past) < _KINDS_AT_MOST:
                self._past.setdefault(key, deque(maxlen=_HISTORY)).append(taken_s)

    def _measure_effort(self, process: WatchedProcess, now_ns: int) -> None:
        span_ns = min(5.0, max(1.0, self._limit_s() / 4)) * _NS  # over which work is measured
        if process.pid:
            efforts = self._efforts.setdefault(process.name, deque())
            if not efforts or now_ns - efforts[-1][0] >= span_ns / 5:
                efforts.append((now_ns, kernel.measure_effort(process.pid)))
            while len(efforts) > 2 and now_ns - efforts[1][0] > span_ns:
                efforts.popleft()

    def _works(self, name: str) -> bool:
        efforts = self._efforts.get(name)
        if not efforts or len(efforts) < 2:
            return False
        (before_ns, before), (after_ns, after) = efforts[0], efforts[-1]
        seconds = (after_ns - before_ns) / _NS
        moved = (after.moved_bytes - before.moved_bytes) / seconds
        # On a crowded host who works may get next to nothing.
        pairs = list(zip(efforts, list(efforts)[1:]))
        goes_on = [earlier.is_run_on(later, (at_ns - since_ns) / _NS) for (since_ns, earlier), (at_ns, later) in pairs]
        runs = 2 * sum(goes_on) > len(pairs)
        return runs or (after.cpu_s - before.cpu_s) / seconds >= _WORKS_CPU or moved >= _WORKS_BYTES_S

    def _new_exceptions(self, process: WatchedProcess) -> list[HostEvent]:
        state, (before, count) = process.stacks_state(), self._raised.get(process.name, ((0, 0), 0))
        if state == before:
            return []
        raised = len(process.last_words().exceptions)
        self._raised[process.name] = state, max(raised, count)
        return [HostEvent(incidents.EXCEPTION, process.name, time.time_ns())] if raised > count else []

    def _end(self, process: WatchedProcess, now_ns: int) -> None:
        """It is gone: in order, or not."""
        self._look_at(process, now_ns)  # it may have gone after the last one
        self.processes.pop(process.name)
        self._over.add(process.name)
        self._efforts.pop(process.name, None)
        signal = kernel.signal_at_end(process.pid) if process.pid else 0
        try:
            has_said_goodbye, words = process.has_said_goodbye(), process.last_words()
        except (OSError, FormatError):
            process.close()
            return
        if has_said_goodbye and not words.fatal and not words.exceptions:
            if (process.who.get("world_size") or 1) > 1:  # others may wait for it
                self._dead.append({**tell_who(process.name, process.who), "state": "left", "gone_ns": wall_ns(now_ns)})
            self._dying.have_ended(process, now_ns)
            self.ended[process.name] = process.inside
            forget_oldest(self.ended, _DEAD_AT_MOST)
            self._forget_process(process)
        else:
            self._dying.add(Death(process, now_ns, signal, kernel.oom_kills() - self._oom_kills[0][1]))

    def _forget_process(self, process: WatchedProcess) -> None:
        self._close_process(process)
        self.has_told(process.name)

    def _close_process(self, process: WatchedProcess) -> None:
        for table in (self._judged, self._raised):
            table.pop(process.name, None)
        process.close()

    def has_told(self, name: str) -> None:
        """All that there is to tell of a process that is gone is told: it may be sealed, with its last words."""
        live_file = self._folder / f"{name}{layout.LIVE_SUFFIX}"
        try:
            live_file.with_suffix(layout.ASK_SUFFIX).unlink(missing_ok=True)
            if live_file.exists():
                live_file.with_suffix(layout.STACKS_SUFFIX).replace(live_file.with_suffix(layout.TOLD_SUFFIX))
            else:
                live_file.with_suffix(layout.STACKS_SUFFIX).unlink(missing_ok=True)
        except OSError:
            pass  # there is none, or nothing can be removed

    def _decide_deaths(self, now_ns: int) -> list[HostEvent]:
        """Of deaths that are some time ago: was it one, or did all end together?"""
        events = []
        for death in self._dying.ripe(now_ns, self.processes.values()):
            kind = self._dying.kind(death, self.processes.values(), now_ns)
            events += [HostEvent(kind, death.process.name, wall_ns(death.gone_ns))] if kind else []
            self._dead.append(self._of_death(death))
            self._dying.decided(death)
            self._close_process(death.process)
            if not kind:
                self.has_told(death.process.name)
        return events

    def _of_death(self, death: Death) -> dict[str, Any]:
        process = death.process
        judged, gone_ns = self._judged.get(process.name, []), wall_ns(death.gone_ns)
        try:
            answer = Answer("", process.last_words().threads)
            made = make_report(process, self._folder, answer, judged, gone_ns=gone_ns, signal=death.signal)
        except (OSError, FormatError):
            made = {**tell_who(process.name, process.who), "state": "gone", "gone_ns": gone_ns}
        return {**made, "oom_kills": max(0, death.oom_kills), "exit_status": process.exit_status()}


def _left_by(folder: Path, name: str) -> dict[str, Any]:
    """The report on one of which nothing is left but, perhaps, the exceptions that nobody caught."""
    try:
        content = documents.read_small(folder / f"{name}{layout.STACKS_SUFFIX}", 2 * stacks.LIMIT_BYTES) or b""
    except (OSError, Unusable):
        content = b""
    exceptions = stacks.read_stacks(content.decode("utf-8", "replace")).exceptions
    last = exceptions[-1] if exceptions else {}
    made = tell_who(name, table_of(last.get("who")))
    made.update(state="gone", gone_ns=whole_number(last.get("time_ns")))
    return {**made, "exceptions": [dict(last)], "raised": len(exceptions)}


def _key_of(process: WatchedProcess, range_: RangeInside) -> tuple[str, str, str]:
    return str(process.who.get("role") or ""), range_.stage, range_.name
