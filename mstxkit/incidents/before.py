"""What the watchman before this one has told of this host, as it lies in the run: its successor tells it no more."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

from ..store.incidents import HANG, Incident
from ..store.values import list_of, table_of, text_of, whole_number
from .folder import IncidentFolders

# A range that is open: process, track, start.
Place = tuple[str, int, int]


class ToldBefore(NamedTuple):
    """By incident, but what was raised: by process.

    Args:
        inside: The ranges that this host's processes were inside of when it answered. An incident that it opened itself
            and did not conclude is none of these: it is still to be told.
        stuck: Those of them that were stuck.
        lasting: Hangs that this host has told of, and that are not over.
        raised: How many exceptions that nobody caught.
    """

    inside: dict[str, set[Place]]
    stuck: dict[str, set[Place]]
    lasting: dict[str, Incident]
    raised: dict[str, int]


def told_before(folders: IncidentFolders) -> ToldBefore:
    """Of all incidents that are there. Reads the call, the conclusion and this host's answer of each."""
    before = ToldBefore({}, {}, {}, {})
    for call in folders.calls():
        incident = folders.concluded(call.name)
        if call.by == folders.place and incident is None:
            continue
        reports = folders.own_reports(call.name)
        before.inside[call.name] = {place for place, _ in _places(reports)}
        before.stuck[call.name] = {place for place, is_stuck in _places(reports) if is_stuck}
        if call.by == folders.place and incident is not None and incident.kind == HANG and not incident.over_ns:
            before.lasting[call.name] = incident
        for report in reports:
            name = text_of(report.get("process"))
            before.raised[name] = max(before.raised.get(name, 0), whole_number(report.get("raised")))
    return before


def _places(reports: list[dict[str, Any]]) -> Iterator[tuple[Place, bool]]:
    """With: was it stuck?"""
    for report in reports:
        for range_ in map(table_of, list_of(report.get("inside"))):
            place = whole_number(range_.get("track")), whole_number(range_.get("start"))
            yield (text_of(report.get("process")), *place), range_.get("is_stuck") is True
