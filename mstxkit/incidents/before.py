"""What the watchman before this one has told of this host, as it lies in the run: its successor tells it no more."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from ..store.incidents import EXCEPTION, HANG, REQUEST, Incident
from ..store.values import list_of, table_of, text_of, whole_number
from .deciding import Report
from .folder import Call, IncidentFolders

# A range that is open: process, track, start.
Place = tuple[str, int, int]


class ToldBefore(NamedTuple):
    """By incident, but what was raised: by process."""

    # The ranges of this host's processes that need not be told of any more. An incident that it opened itself and
    # did not conclude is none of these: it is still to be told.
    inside: dict[str, set[Place]]
    stuck: dict[str, dict[Place, int]]  # those that were stuck, with CLOCK_MONOTONIC of the last that went on in each
    hangs: dict[str, Incident]  # those that this host has told of, over or not
    raised: dict[str, int]  # how many exceptions that nobody caught
    gone: set[str]  # who was gone, by process
    open: Call | None = None  # the newest, where nobody has concluded it yet


def told_before(folders: IncidentFolders) -> ToldBefore:
    """Of all incidents that are there. Reads the call, the conclusion and this host's answer of each."""
    before = ToldBefore({}, {}, {}, {}, set())
    for call in folders.calls():
        incident = folders.concluded(call.name)
        before = before._replace(open=call if incident is None else None)
        if call.by == folders.place and incident is None:
            continue
        reports = folders.own_reports(call.name)
        is_over = incident is not None and incident.over_ns > 0
        of_each = ((text_of(report.get("process")), list_of(report.get("inside"))) for report in reports)
        places: dict[Place, Report] = {
            (process, whole_number(range_.get("track")), whole_number(range_.get("start"))): range_
            for process, inside in of_each for range_ in map(table_of, inside)
        }  # fmt: skip
        tells = not is_over and tells_of_all(call, folders.place, reports)
        before.inside[call.name] = set(places) if tells else set()
        before.stuck[call.name] = {
            place: whole_number(range_.get("quiet_ns"))
            for place, range_ in places.items()
            if range_.get("is_stuck") is True
        }
        if call.by == folders.place and incident is not None and incident.kind == HANG:
            before.hangs[call.name] = incident
        for report in reports:
            name = text_of(report.get("process"))
            before.raised[name] = max(before.raised.get(name, 0), whole_number(report.get("raised")))
            before.gone.update({name} if report.get("gone_ns") else ())
    return before


def tells_of_all(call: Call, place: str, reports: Sequence[Report]) -> bool:
    """Need nothing be told any more of what this host's processes are inside of now?

    Not so where somebody only asked, or where an exception has ended a thread and no process: what hangs does not by
    that.
    """
    raised = [table_of(exc) for report in reports for exc in list_of(report.get("exceptions"))[-1:]]
    is_of_process = call.kind != EXCEPTION or call.by != place or any(exc.get("is_main") is True for exc in raised)
    return call.kind != REQUEST and is_of_process
