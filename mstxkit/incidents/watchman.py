"""The watchman: a process of its own on each host, which nobody's GIL and no stopped rank can hold up.

The host's keeper starts it (`recorder/watchman.py`). It looks at all processes of the run there through shared memory,
opens an incident when one hangs or dies, answers those of other hosts, says every few seconds where all of them are,
and ends when the last of them has.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple, Sequence

from ..errors import MstxkitError
from ..host import detached, folders, jitter
from ..reading.report.escape import for_terminal
from ..reading.report.sentences import of_incident
from ..store import documents, incidents, layout, run_file, settings_file, stacks, verdicts
from ..store.incidents import HANG, REQUEST, Incident
from ..store.lookout import EVERY_S, Lookout
from ..store.values import list_of, table_of, text_of, whole_number
from ..triggers import hang
from . import asking, deciding, summary
from .deciding import Cause, Report
from .folder import Call, IncidentFolders, tells_of_all
from .host import HostEvent, WatchedHost
from .looking import Place
from .page import BEGUN_ANEW, WENT_ON

_NICE, _NS = 5, 10**9
# Looks at the run folder; how long reports of other hosts are waited for, and taken afterwards; when a folder has hung.
_RUN_EVERY_S, _HOSTS_WITHIN_S, _LATE_WITHIN_S, _HUNG_S = 2.0, 3.0, 30.0, 1.0
# For what another host, or the watchman before this one, makes of an incident; then this host takes it over.
_CONCLUDES_WITHIN_S, _HOSTS_READ_A_S = 8.0, 64
# Where nobody was stuck after all: until the next look at everybody, twice as long each time.
_AGAIN_S, _AGAIN_AT_MOST_S, _AGAIN_FOR_ALL_S = 1.0, 30.0, 300.0
# Where the run folder did not take what has happened; where it may say that a rank has begun anew on any host.
_TRIES_EVERY_S, _ANEW_EVERY_S = 10.0, 15.0
_LINE_AT_MOST, _EVENTS_AT_MOST = 1000, 64
_EMPTY_FOR_S, _NOBODY_YET_S, _SETTINGS_EVERY_S = 3.0, 0.1, 10.0
# At the end for a run folder that does not answer.
_ENDS_WITHIN_S = 2.0


class Watch(NamedTuple):
    """What a watchman is told."""

    # run, run_id: the run folder, and its id
    run: Path
    run_id: str
    folder: Path  # the live files of this host
    hang_s: float  # as `capture(hang_s=...)` says
    incidents: int  # so many are kept
    incidents_bytes: int  # what they may take


def main() -> None:
    """The process: let go of who started it, then watch. Its words are those of `Watch`."""
    detached.let_go()
    os.nice(_NICE)
    watch = detached.of_words(Watch, sys.argv[1:])
    try:
        watchman = Watchman(watch)
        lock = documents.take_lock(watch.folder / layout.WATCH_LOCK)
        if lock is not None:
            watchman.watch(lock)
    except (OSError, MstxkitError):
        pass  # the run is gone


class Watchman:
    """Of one run on one host."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._host = WatchedHost(watch.folder, watch.hang_s)
        self._host.begin()  # before the lock is taken: who waits for that seals then what the dead have left
        self._place = layout.name_of_host(watch.folder, "")
        self._folders = IncidentFolders(watch.run, watch.run_id, self._place, watch.incidents, watch.incidents_bytes)
        # Incidents that this host has answered, with the ranges that it was inside of then: each is told of once.
        self._told: dict[str, set[Place]] = {}
        self._stuck: dict[str, dict[Place, int]] = {}
        self._events, self._events_s = deque[HostEvent](maxlen=_EVENTS_AT_MOST), 0.0
        # Those that somebody else has opened and not concluded yet: until when, and what it was here.
        self._others: dict[str, tuple[Call, float, HostEvent | None]] = {}
        self._mine: dict[str, tuple[Incident, Cause | None, float]] = {}
        self._unsaid = deque[Incident]()
        self._again_s, self._pause_s, self._considered = 0.0, _AGAIN_S, set[Place]()
        self._was_debugged = False
        self._looks = jitter.Every(_ANEW_EVERY_S, "begun anew", time.monotonic())
        self._run_s, self._state, self._asked = 0.0, tuple[int, ...](), self._folders.asked()
        self._settings_s, self._settings_states = 0.0, list[tuple[int, ...]]()
        self._lookout, self._ending = Lookout(watch.run, watch.run_id, watch.folder), threading.Event()

    def watch(self, lock: int) -> None:
        """Until the last process here has ended, or the run is gone."""
        telling = threading.Thread(target=self._tell_where, daemon=True)
        telling.start()
        try:
            self._watch_on(lock)
        finally:
            self._ending.set()
            telling.join(_ENDS_WITHIN_S)

    def _tell_where(self) -> None:
        """On a thread of its own: where the run folder hangs, it is still seen who dies meanwhile."""
        every_s, pause_s = jitter.own_period_s(EVERY_S, "whereabouts"), 0.0
        while not self._ending.wait(pause_s):
            names = () if self._host.is_closing else self._host.seen
            if names:
                self._lookout.tell(names)
            pause_s = every_s if names else _NOBODY_YET_S

    def _watch_on(self, lock: int) -> None:
        self._host.lock = lock
        self._learn_what_was_told()
        seen_s = time.monotonic()
        while time.monotonic() - seen_s < _EMPTY_FOR_S:
            self.turn()
            if not documents.is_still(lock, file := self._watch.folder / layout.WATCH_LOCK):
                if file.exists():
                    return  # another one watches in its place
                self._host.is_closing = True
            if not self._host.is_empty:
                seen_s = time.monotonic()
            elif self._host.is_closing:
                break
            self._host.wait(self._host.look_again_s)
        self._follow_up()

    def _learn_what_was_told(self) -> None:
        """By the watchman before this one, of all incidents that are there. Reads the call, the conclusion and this
        host's answer of each. One that this host opened and did not conclude is still to be told.
        """
        raised, gone, newest = dict[str, int](), set[str](), None
        for call in filter(None, map(self._folders.call, incidents.list_names(self._watch.run))):
            incident = self._folders.concluded(call.name)
            newest = call if incident is None else None
            is_mine = call.by == self._place
            if is_mine and incident is None:
                continue
            reports, inside, stuck = self._folders.own_reports(call.name), set[Place](), dict[Place, int]()
            for report in reports:
                name = text_of(report.get("process"))
                raised[name] = max(raised.get(name, 0), whole_number(report.get("raised")))
                if report.get("gone_ns"):
                    gone.add(name)
                for range_ in map(table_of, list_of(report.get("inside"))):
                    place = name, whole_number(range_.get("track")), whole_number(range_.get("start"))
                    inside.add(place)
                    if range_.get("is_stuck") is True:
                        stuck[place] = whole_number(range_.get("quiet_ns"))
            is_over = incident is not None and incident.over_ns > 0
            self._told[call.name] = inside if not is_over and tells_of_all(call, self._place, reports) else set()
            self._stuck[call.name] = stuck
            if is_mine and incident is not None and incident.kind == HANG:
                self._unsaid.append(incident)
                if not is_over:
                    self._mine[call.name] = incident, None, 0.0
        if newest is not None:
            self._leave_call(newest)
        self._host.have_told_of(raised, gone)

    def turn(self) -> None:
        """One look at everything. What the run folder does not take is tried again."""
        self._events += self._host.look()
        try:
            self._of_events()
            if not self._events and not self._host.is_deciding:  # who is gone is told of first
                self._of_hangs()
            if time.monotonic() - self._run_s >= _RUN_EVERY_S:
                self._run_s = time.monotonic()
                self._say_hangs()
                self._look_at_run()
                self._take_over()
                self._follow_up()
        except (OSError, MstxkitError):
            self._rest_longer()

    def _rest_longer(self) -> None:
        self._again_s = time.monotonic() + self._pause_s
        at_most_s = _AGAIN_AT_MOST_S if self._folders.hosts() < 2 else _AGAIN_FOR_ALL_S
        self._pause_s = min(at_most_s, 2 * self._pause_s)

    def _of_events(self) -> None:
        if time.monotonic() >= self._events_s:
            self._events_s = time.monotonic() + _TRIES_EVERY_S
            while self._events:
                self._of_event(self._events[0])
                event = self._events.popleft()
                if event.process not in self._host.processes:
                    self._host.has_told(event.process)
            self._events_s = 0.0

    def _of_event(self, event: HostEvent) -> None:
        call = self._folders.open(event.kind, event.time_ns)
        if call.name in self._mine or call.name in self._told:
            return  # one that has just been opened: its reports are there, or on their way
        reports = self._host.reports()
        self._answer_call(call, reports)
        if call.by != self._place:
            self._leave_call(call, event)
        else:
            self._come_to(call, reports, event)

    def _leave_call(self, call: Call, event: HostEvent | None = None) -> None:
        """Whoever has opened it concludes it, unless it is gone by then."""
        if self._others.get(call.name, (None,))[0] != call:
            within_s = _CONCLUDES_WITHIN_S + self._folders.hosts() / _HOSTS_READ_A_S
            self._others[call.name] = call, time.monotonic() + within_s, event

    def _take_over(self) -> None:
        """What nobody has concluded in time, or said."""
        newest = self._folders.newest() if self._others else None
        for name, (call, until_s, event) in list(self._others.items()):
            if newest is None or newest.name != name:
                del self._others[name]
            elif time.monotonic() > until_s and (concluded := self._folders.concluded(name)) is not None:
                del self._others[name]
                self._unsaid.append(concluded)
            elif time.monotonic() > until_s:
                call = self._folders.taken_over(call)
                self._leave_call(call, event)  # another host may have been faster
                if call.by == self._place:
                    reports = self._host.reports(asks_all=call.kind != HANG)
                    if call.kind in (HANG, REQUEST):  # who has died is in the answer that lies there
                        self._answer_call(call, reports)
                    self._come_to(call, reports, event)

    def _come_to(self, call: Call, reports: Sequence[Report], event: HostEvent | None = None) -> None:
        """Conclude what this host has opened, by the reports of all hosts, as far as they come in time; where nothing
        was wrong, nothing stays.
        """
        hosts, deadline = self._folders.hosts(), time.monotonic() + _HOSTS_WITHIN_S
        while time.monotonic() < deadline and self._folders.answers(call.name) < hosts:
            time.sleep(0.1)
        everybody: Sequence[Report] = self._folders.reports(call.name) or reports
        lasting, cause = self._folders.lasting(but=call.name), None
        if event is not None:
            cause = summary.of_process(event.kind, event.process, everybody)
        elif call.kind == HANG:
            cause = deciding.find_cause(everybody, self._watch.hang_s, _list_blamed(lasting))
        elif call.kind != REQUEST:
            cause = summary.of_process(call.kind, None, everybody)
        if self._folders.call(call.name) != call:
            return  # this host was slow, and another one has taken it over
        is_the_same = call.kind == HANG and event is None and self._is_the_same(cause, lasting)
        if event is not None or call.kind == REQUEST or (cause is not None and not is_the_same):
            self._conclude_call(call, everybody, cause)
        else:
            self._rest_longer()
            self._told.pop(call.name, None)
            self._folders.dissolve(call.name, self._again_s - time.monotonic())

    def _is_the_same(self, cause: Cause | None, lasting: Sequence[Incident]) -> bool:
        """Is it a hang that is told of already, for which others wait by now? These are told of with it."""
        report = None if cause is None else cause.report
        same = [hang.incident for hang in lasting if report and deciding.is_accused(report, _list_blamed([hang]))]
        for name in same[:1]:
            self._told.setdefault(name, set()).update(self._considered)
        return bool(same)

    def _of_hangs(self) -> None:
        stuck, told_places = self._host.stuck(), set[Place]().union(*self._told.values())
        new = {place: judged for place, judged in stuck.items() if place not in told_places}
        if not new:
            self._pause_s = _AGAIN_S if not stuck else self._pause_s
            return
        if time.monotonic() < self._again_s and new.keys() <= self._considered:
            return
        self._considered = set(new)
        self._consider_hang(time.time_ns() - int(max(judged.quiet_s for judged in new.values()) * _NS))

    def _consider_hang(self, since_ns: int) -> None:
        """Somebody seems stuck: is he, seen from all processes of the job?"""
        lasting = self._folders.lasting()
        reports, cause = ([], None) if self._host.is_debugged() else self._host.reports_of_hang(_list_blamed(lasting))
        is_debugged, was_debugged = not reports or any(map(deciding.is_debugged, reports)), self._was_debugged
        self._was_debugged = is_debugged
        if is_debugged or was_debugged:  # who has just been let go may need all his time
            self._host.begin_anew()
            return
        if self._is_the_same(cause, lasting):
            return
        # Who is held up himself is told of at once; who waits, only where nobody has just been found to go on.
        is_held = cause is not None and cause.how in deciding.HELD
        is_alone = self._folders.hosts() < 2
        if (is_alone and cause is None) or not (is_alone or is_held or not self._folders.was_quiet()):
            self._rest_longer()
            return
        asked_s = time.monotonic()
        call = self._folders.open(HANG, since_ns)
        if time.monotonic() - asked_s > _HUNG_S:  # much may have happened meanwhile
            self._events += self._host.look()
            reports = self._host.reports(asks_all=False)
        self._answer_call(call, reports)
        if call.by == self._place and call.name not in self._mine:
            self._come_to(call, reports)
            return
        self._rest_longer()
        if call.by != self._place:
            self._leave_call(call)

    def _answer_call(self, call: Call, reports: Sequence[Report]) -> None:
        self._folders.answer(call.name, reports)
        self._told[call.name] = set(self._open_now() if tells_of_all(call, self._place, reports) else ())
        self._stuck[call.name] = {place: judged.range.quiet_ns for place, judged in self._host.stuck().items()}

    def _open_now(self) -> dict[Place, int]:
        """What all are inside of, and what those who have ended in order never left."""
        inside = {**self._host.ended, **{name: process.inside for name, process in self._host.processes.items()}}
        return {
            (name, range_.slot.track, range_.slot.start): range_.quiet_ns
            for name, ranges in inside.items() for range_ in ranges
        }  # fmt: skip

    def _conclude_call(self, call: Call, reports: Sequence[Report], cause: Cause | None) -> None:
        incident = summary.sum_up(call.name, call.opened_ns, call.kind, reports, cause, self._folders.silent(reports))
        try:
            self._folders.conclude(incident)
        except OSError:
            self._told.pop(call.name, None)  # once more, when there is room
            raise
        self._mine[call.name] = incident, cause, time.monotonic() + _LATE_WITHIN_S
        self._unsaid.append(incident)
        if call.kind != REQUEST:
            self._have_logged(incident)
        self._say_hangs()

    def _have_logged(self, incident: Incident) -> None:
        """By one process of this host that can: whoever looks at its output learns where the page is."""
        line = f"{of_incident(incident.facts)}: {self._watch.run / incident.page}"
        file = self._watch.folder / layout.INCIDENT_NEWS
        documents.replace_file(file, for_terminal(line, _LINE_AT_MOST).encode("utf-8", "backslashreplace"))
        able = [p for p in self._host.processes.values() if p.name != incident.details.get("process")]
        by_rank = sorted(able, key=lambda process: (process.who.get("rank") is None, str(process.who.get("rank"))))
        for process in by_rank[:1]:
            asking.ask_process(self._watch.folder, process.name, stacks.NEWS)

    def _follow_up(self) -> None:
        """Take reports of hosts that were slow to answer; say where a hang is over."""
        for name, (incident, _, until_s) in list(self._mine.items()):
            is_late = time.monotonic() > until_s
            if not is_late:
                self._take_late(name)
            incident = self._mine[name][0]
            if incident.kind == HANG and (how := self._how_over(incident)):
                over = incident._replace(over_ns=time.time_ns(), details={**incident.details, "over": how})
                self._folders.conclude(over)
                self._unsaid.append(over)
                self._say_hangs()
                self._told[name] = set()  # who is stuck all the same is not by this
                del self._mine[name]
            elif incident.kind != HANG and is_late:
                del self._mine[name]

    def _take_late(self, name: str) -> None:
        incident, cause, until_s = self._mine[name]
        reports = self._folders.reports(name)
        if len(reports) <= incident.reports:
            return
        now = cause
        if incident.kind == HANG:
            blamed = _list_blamed(self._folders.lasting(but=name))
            now = deciding.find_cause(reports, self._watch.hang_s, blamed) or cause
        elif cause is not None and cause.report is not None:
            now = summary.of_process(incident.kind, str(cause.report.get("process")), reports)
        silent = self._folders.silent(reports)
        again = summary.sum_up(name, incident.time_ns, incident.kind, reports, now, silent)
        self._folders.conclude(again)
        self._mine[name] = again, cause, until_s

    def _how_over(self, incident: Incident) -> str:
        """WENT_ON: what was stuck goes on or is closed, by a process that lives or has ended in order; BEGUN_ANEW:
        another has begun; "": no.
        """
        stuck, process = self._stuck.get(incident.incident, {}), str(incident.details.get("process") or "")
        of_cause = {place: quiet_ns for place, quiet_ns in stuck.items() if place[0] == process} or stuck
        who, now = {name for name, _, _ in of_cause} or {process}, self._open_now()
        if not stuck and process not in self._host.processes:  # it was of a host that is gone
            return BEGUN_ANEW * (self._looks.is_due(time.monotonic()) and self._folders.has_begun_anew(incident))
        if who.isdisjoint(self._host.processes) and not (of_cause and who <= self._host.ended.keys()):
            return BEGUN_ANEW * self._host.is_anew(self._folders.own_reports(incident.incident), who, incident.time_ns)
        return WENT_ON * all(now.get(place, quiet_ns + 1) > quiet_ns for place, quiet_ns in of_cause.items())

    def _say_hangs(self) -> None:
        """Hangs that are concluded, as verdicts, which are withdrawn when they are over. Each is said once, also where
        who concluded it was killed before it could say so.
        """
        while self._unsaid:
            verdict = summary.hang_verdict(self._unsaid[0], time.time_ns())
            hangs = verdicts.read_verdicts(self._watch.run, by=verdicts.BY_WATCHMEN)
            is_said = [hang.withdrawn for hang in hangs if hang.id == verdict.id] == [verdict.withdrawn]
            if self._unsaid[0].kind == HANG and not is_said:
                folder = self._watch.run / layout.VERDICTS
                folders.make_folder(folder)
                verdicts.append_to(folder / f"{verdicts.BY_WATCHMEN}{self._place}{layout.VERDICTS_SUFFIX}", [verdict])
            self._unsaid.popleft()

    def _look_at_run(self) -> None:
        """Has another host opened an incident, or somebody asked for one? Have settings changed?"""
        state = self._folders.state()
        if state != self._state:
            self._state = state
            for name in [name for name in self._told if name not in self._mine and not self._folders.exists(name)]:
                del self._told[name]
                self._stuck.pop(name, None)
            newest = self._folders.newest()
            # What this host has opened itself is answered as it is concluded, if need be once more.
            if newest is not None and newest.by != self._place and newest.name not in self._told:
                self._answer_call(newest, self._host.reports(asks_all=newest.kind != HANG))
                self._leave_call(newest)
            asked = self._folders.asked()
            if asked and asked != self._asked:
                self._asked = asked
                reports = self._host.reports()
                call = self._folders.open(REQUEST, time.time_ns())
                if call.name not in self._told:
                    self._answer_call(call, reports)
                if call.by == self._place:
                    self._come_to(call, reports)
        if time.monotonic() - self._settings_s >= _SETTINGS_EVERY_S:
            self._settings_s = time.monotonic()
            self._look_at_settings()

    def _look_at_settings(self) -> None:
        files = self._watch.run / layout.RUN_FILE, self._watch.run / layout.CONTROL / layout.SETTINGS
        states = [documents.state_of(file) for file in files]
        if states != self._settings_states:
            self._settings_states = states
            if run_file.id_of(self._watch.run) not in (None, self._watch.run_id):
                self._host.is_closing = True  # another run lies in its place; one that is removed is put back
            values = settings_file.read_settings(self._watch.run, self._watch.run_id).values
            self._host.settings = hang.of_values(values)


def _list_blamed(lasting: Sequence[Incident]) -> dict[str, int]:
    return {str(hang.details.get("process")): hang.time_ns for hang in lasting}
