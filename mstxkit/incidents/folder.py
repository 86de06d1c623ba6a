"""The incidents of a run, as files: opened once for all hosts, bounded in number and size, and gone without a trace
where nothing was wrong. What the watchman before this one has told of this host lies there too: its successor tells it
no more.
"""

from __future__ import annotations

import calendar
import os
import shutil
import time
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

from ..errors import MstxkitError
from ..host import folders
from ..store import documents, incidents, layout, run_file, whereabouts
from ..store.documents import Unusable
from ..store.incidents import EXCEPTION, HANG, REQUEST, Incident
from ..store.values import list_of, table_of, text_of, whole_number
from ..store.whereabouts import Whereabouts
from . import page
from .deciding import Report

_LOCKED_WITHIN_S = 2.0
_QUIET_AT_MOST_NS = 600 * 10**9
# Each says so every five seconds, unless the run folder hangs. Of `documents.state_of`.
_SAYS_WITHIN_NS, _ASKED_AT_MOST, _MTIME = 300 * 10**9, 64, 3
_SILENT_S = 900.0
# What comes so soon after another one belongs to it: the others notice that a rank has died.
TOGETHER_NS = 10 * 10**9


class Call(NamedTuple):
    """An incident that was opened: every host is asked for reports."""

    name: str  # of its folder
    kind: str  # of `store.incidents.KINDS`
    opened_ns: int  # wall clock
    by: str  # the host that opened it


class IncidentFolders:
    """Those of one run, as one host sees them. `place`: `<host>-<digest>`, as the files of this host are called.
    So many incidents are kept, the first, and the newest; all of them may take `most_bytes`.
    """

    def __init__(self, run: Path, run_id: str, place: str, at_most: int, most_bytes: int) -> None:
        self._run, self._run_id, self.place = run, run_id, place
        self._at_most, self._most_bytes = at_most, most_bytes
        self._folder = run / layout.INCIDENTS

    def open(self, kind: str, since_ns: int) -> Call:
        """A new incident; or the newest, where that was opened a moment ago, or for the same hang: since what is wrong
        began, wall clock. Raises OSError, MstxkitError: it cannot be opened.
        """
        if run_file.id_of(self._run) != self._run_id:  # what somebody has removed is not made anew here
            raise MstxkitError("the run is gone")
        opened = self._find_open(kind, since_ns)
        if opened is None:  # of a thousand hosts that see it at once only the first ones need the lock
            folders.make_folder(self._folder)
            with documents.hold_lock(self._folder / layout.INCIDENTS_LOCK, _LOCKED_WITHIN_S):
                opened = self._find_open(kind, since_ns) or self._make_call(kind, time.time_ns())
        return opened

    def _find_open(self, kind: str, since_ns: int) -> Call | None:
        """The newest, where what is wrong now is told in it, and it is not over. Who only asked, and an exception that
        ended nothing, are no reason for a hang.
        """
        newest, now_ns = self.newest(), time.time_ns()
        if newest is None or newest.opened_ns > now_ns + TOGETHER_NS:  # or the clock was set back
            return None
        is_alike, is_new = kind == newest.kind, now_ns - newest.opened_ns <= TOGETHER_NS
        if REQUEST in (kind, newest.kind) or (kind, newest.kind) == (HANG, EXCEPTION):
            is_told = is_alike and is_new
        else:
            is_told = is_new or (is_alike and newest.opened_ns >= since_ns)
        concluded = self.concluded(newest.name) if is_told else None
        return newest if is_told and not (concluded is not None and concluded.over_ns) else None

    def _make_call(self, kind: str, now_ns: int) -> Call:
        self._make_room()
        name = _name_of(now_ns)
        for last in incidents.list_names(self._run)[-1:]:  # the newest is the last, also where a clock was set back
            try:
                last_ms = calendar.timegm(time.strptime(last[:15], "%Y%m%dT%H%M%S")) * 1000 + int(last[16:])
                name = max(name, _name_of((last_ms + 1) * 10**6))
            except ValueError:
                pass  # nobody has opened one then
        os.mkdir(self._folder / name, folders.FOLDER_MODE)
        call = Call(name, kind, now_ns, self.place)
        try:
            os.mkdir(self._folder / name / layout.INCIDENT_HOSTS, folders.FOLDER_MODE)
            self._write(call)
        except OSError:  # a full disk: nobody could answer it
            shutil.rmtree(self._folder / name, ignore_errors=True)
            raise
        return call

    def _write(self, call: Call) -> None:
        content = documents.encode_document(self._run_id, call._asdict())
        documents.replace_file(self._folder / call.name / layout.INCIDENT_CALL, content)

    def taken_over(self, call: Call) -> Call:
        """One that nobody has concluded, as this host's from now on; or as another host has taken it over before.
        Raises OSError, MstxkitError: it cannot be written.
        """
        with documents.hold_lock(self._folder / layout.INCIDENTS_LOCK, _LOCKED_WITHIN_S):
            now = self.call(call.name)
            if now == call:
                now = call._replace(by=self.place)
                self._write(now)
            return now or call

    def newest(self) -> Call | None:
        """The incident that was opened last; None where there is none."""
        names = incidents.list_names(self._run)
        return self.call(names[-1]) if names else None

    def call(self, name: str) -> Call | None:
        """What was asked in an incident; None where that is not there (any more)."""
        fields = documents.find_document(self._folder / name / layout.INCIDENT_CALL, self._run_id)
        if fields is None or fields.get("kind") not in incidents.KINDS:
            return None
        return Call(name, fields["kind"], whole_number(fields.get("opened_ns")), text_of(fields.get("by")))

    def concluded(self, name: str) -> Incident | None:
        """What an incident came to; None while it is open, and where that cannot be read."""
        try:
            return incidents.read_summary(self._run, name, self._run_id)
        except Unusable:
            return None

    def lasting(self, but: str = "") -> list[Incident]:
        """The hangs that are told of and not over, but for one of these."""
        others = [self.concluded(name) for name in incidents.list_names(self._run) if name != but]
        return [o for o in others if o is not None and o.kind == HANG and not o.over_ns]

    def answer(self, name: str, reports: Sequence[Mapping[str, Any]]) -> None:
        """Leave what this host has to report. Raises OSError: it cannot be written, or the incident is gone."""
        about = {"host": self.place, "written_ns": time.time_ns(), "processes": list(reports)}
        documents.replace_file(self._answer_of(name), documents.encode_document(self._run_id, about))

    def reports(self, name: str) -> list[dict[str, Any]]:
        """What all hosts have reported so far."""
        by_file = incidents.reports_of(self._run, name, self._run_id)
        return [report for of_host in by_file.values() for report in of_host]

    def answers(self, name: str) -> int:
        """How many hosts have reported so far. *Cost*: of 1,000 hosts the reports take seconds to be read."""
        return len(incidents.answers_of(self._run, name))

    def own_reports(self, name: str) -> list[dict[str, Any]]:
        """What this host has reported, perhaps by a watchman before this one."""
        return incidents.reports_in(self._answer_of(name), self._run_id) or []

    def _answer_of(self, name: str) -> Path:
        return self._folder / name / layout.INCIDENT_HOSTS / f"{self.place}{layout.NOW_SUFFIX}"

    def conclude(self, incident: Incident) -> None:
        """Write what it comes to, and its page; that a hang is over not where its folder has made room for others.
        Raises OSError: it cannot be written.
        """
        folder = self._folder / incident.incident
        if incident.over_ns and not folder.is_dir() and run_file.id_of(self._run) == self._run_id:
            return
        text = page.write_page(incident).encode("utf-8", "backslashreplace")
        documents.replace_file(folder / layout.INCIDENT_PAGE, text)
        documents.replace_file(folder / layout.INCIDENT_FILE, incident.as_json(self._run_id))

    def dissolve(self, name: str, quiet_s: float = 0.0) -> None:
        """Nothing was wrong. `quiet_s`: for so long no host need look again at those that merely wait."""
        content = documents.encode_document(self._run_id, {"until_ns": time.time_ns() + int(quiet_s * 1e9)})
        documents.replace_file(self._folder / layout.INCIDENTS_QUIET, content)
        if incidents.is_name(name) and not (self._folder / name / layout.INCIDENT_FILE).exists():
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def was_quiet(self) -> bool:
        """Has some host found just now that nobody is stuck?"""
        fields = documents.find_document(self._folder / layout.INCIDENTS_QUIET, self._run_id) or {}
        until_ns, now_ns = whole_number(fields.get("until_ns")), time.time_ns()
        return now_ns < until_ns < now_ns + _QUIET_AT_MOST_NS

    def exists(self, name: str) -> bool:
        """Is it there?"""
        return (self._folder / name).is_dir()

    def state(self) -> tuple[int, ...]:
        """What changes as one is opened, or asked for. *Cost*: one call of the run folder."""
        return documents.state_of(self._folder)

    def asked(self) -> tuple[int, ...]:
        """What changes as somebody asks for an incident; () while nobody has."""
        return documents.state_of(self._folder / layout.INCIDENT_ASKED)

    def hosts(self) -> int:
        """How many hosts have processes of the run, as far as they have said so. *Cost*: a call a host, of few."""
        files = whereabouts.files_in(self._run)
        if len(files) > _ASKED_AT_MOST:
            return len(files)
        said_ns = [state[_MTIME] for state in map(documents.state_of, files) if state]
        return sum(max(said_ns) - at_ns < _SAYS_WITHIN_NS for at_ns in said_ns)  # without those the job has left

    def silent(self, reports: Sequence[Mapping[str, Any]]) -> list[Whereabouts]:
        """Ranks that have not reported, as their hosts have said of them in the last quarter of an hour."""
        heard = {(report.get("rank"), text_of(report.get("role"))) for report in reports}
        seen = (where for where in whereabouts.read_seen(self._run, self._run_id) if where.age.seconds < _SILENT_S)
        return [where for where in seen if where.rank is not None and (where.rank, where.role) not in heard]

    def has_begun_anew(self, incident: Incident) -> bool:
        """Is the rank that it is laid to heard of in another process since? *Cost*: a file a host."""
        seen, details = whereabouts.read_seen(self._run, self._run_id), incident.details
        mine = (where for where in seen if (where.rank, where.role) == (incident.rank, incident.role))
        since = [where for where in mine if where.is_of_a_rank and where.written_ns > incident.time_ns]
        return any((where.host, where.pid) != (details.get("host"), details.get("pid")) for where in since)

    def _make_room(self) -> None:
        """The oldest goes first, never the first of all."""
        names = incidents.list_names(self._run)
        sizes = {name: folders.size_bytes(self._folder / name) for name in names}
        later = names[1:]
        while later and (len(later) + 1 >= self._at_most or sum(sizes.values()) > self._most_bytes):
            oldest = later.pop(0)
            shutil.rmtree(self._folder / oldest, ignore_errors=True)
            del sizes[oldest]
        if names and self._at_most < 2:
            raise MstxkitError("there is an incident, and no more are kept")


def _name_of(time_ns: int) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(time_ns // 10**9)) + f".{time_ns // 10**6 % 1000:03d}"


def ask_hosts(run: Path) -> None:
    """Ask all hosts of a run for an incident now. Raises OSError, CaptureError: it cannot be asked for."""
    folders.make_folder(run / layout.INCIDENTS)
    documents.replace_file(run / layout.INCIDENTS / layout.INCIDENT_ASKED, b"")


def tells_of_all(call: Call, place: str, reports: Sequence[Report]) -> bool:
    """Need nothing be told any more of what this host's processes are inside of now?

    Not so where somebody only asked, or where an exception has ended a thread and no process: what hangs does not by
    that.
    """
    raised = [table_of(exc) for report in reports for exc in list_of(report.get("exceptions"))[-1:]]
    is_of_process = call.kind != EXCEPTION or call.by != place or any(exc.get("is_main") is True for exc in raised)
    return call.kind != REQUEST and is_of_process
