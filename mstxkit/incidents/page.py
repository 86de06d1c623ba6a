"""`incident.txt`: an incident on one page, for whoever is called at night. Every name in it may be anybody's text."""

from __future__ import annotations

import time
from typing import Any, Iterator, Mapping, Sequence

from ..reading.report.escape import for_terminal
from ..reading.report.sentences import of_incident
from ..store.incidents import Incident
from ..store.values import finite_number, list_of, small_number, step_number, table_of, text_of, whole_number
from ..store.whereabouts import write_span
from . import waiting

_WIDTH, _NS = 200, 10**9
# All of it is in incident.json.
_GROUPS_SHOWN, _CALLS_SHOWN, _CALLS_OF_GROUP = 8, 16, 5
WENT_ON, BEGUN_ANEW = "it went on by itself", "its ranks have begun anew"


def write_page(incident: Incident) -> str:
    """The page."""
    return "\n".join(for_terminal(line, _WIDTH) for line in _list_lines(incident)) + "\n"


def _list_lines(incident: Incident) -> Iterator[str]:
    details = incident.details
    yield f"Incident {incident.incident}: {of_incident(incident.facts)}"
    hosts = small_number(details.get("hosts")) or 0
    of_hosts = "1 host" if hosts == 1 else f"{hosts} hosts"
    yield f"Opened {_show_time(incident.time_ns)}; reports of {incident.reports} processes, {of_hosts}."
    if incident.over_ns:
        how = text_of(details.get("over")) or WENT_ON
        yield f"{how.capitalize()} {write_span((incident.over_ns - incident.time_ns) / _NS)} later."
    yield ""
    yield from _tell_cause(incident, details)
    if incident.waits_for:
        yield f"Waiting:  {incident.waits_for}"
    missing = text_of(table_of(details.get("missing")).get("words"))
    if missing not in incident.reason:  # "" is in each
        yield f"Missing:  {missing}"
    if text_of(details.get("gone")):
        yield f"Gone too: {text_of(details.get('gone'))}"
    yield from (f"Silent:   {text_of(host)}" for host in list_of(details.get("silent"))[:_GROUPS_SHOWN])
    yield ""
    yield "Where everybody is, the largest group first:"
    groups = [table_of(group) for group in list_of(details.get("groups"))]
    for group in groups[:_GROUPS_SHOWN]:
        yield from _tell_group(group, incident.time_ns)
    yield ""
    if len(groups) > _GROUPS_SHOWN:
        yield f"Where others are, a few each: incidents/{incident.incident}/incident.json"
    what = "with all threads, its ring and what it did last"
    yield f"Each process's own report, {what}: incidents/{incident.incident}/hosts/"


def _tell_cause(incident: Incident, details: Mapping[str, Any]) -> Iterator[str]:
    if incident.reason:
        yield f"Cause:    {incident.reason}"
    if text_of(details.get("host")):
        yield f"Process:  {text_of(details.get('host'))}, pid {whole_number(details.get('pid'))}"
    for range_ in map(table_of, list_of(details.get("inside"))):
        stage, step = text_of(range_.get("stage")), step_number(range_.get("step"))
        about = f"stage {stage}, " * bool(stage) + (f"step {step}, " if step is not None else "")
        limit_s = finite_number(range_.get("limit_s")) or 0
        limit = f"; stuck after {limit_s:.0f} s" if range_.get("is_stuck") is True else ""
        since = _show_time(whole_number(range_.get("since_ns")))
        yield f"  inside  {text_of(range_.get('name'))}: {about}since {since}{limit}"
    yield from _tell_stack(list_of(details.get("stack")), _CALLS_SHOWN)
    for raised in map(table_of, list_of(details.get("exceptions"))):
        yield from (f"    {line}" for line in text_of(raised.get("text")).splitlines())


def _tell_group(group: Mapping[str, Any], time_ns: int) -> Iterator[str]:
    stage, name = text_of(group.get("stage")), text_of(group.get("range"))
    place = " / ".join(dict.fromkeys(filter(None, (stage, name)))) or "no range"
    since_ns = whole_number(group.get("since_ns"))
    since = f", for {write_span((time_ns - since_ns) / _NS)}" if 0 < since_ns <= time_ns else ""
    held = text_of(group.get("held"))
    kernel = f" [{text_of(group.get('kernel'))}]" if group.get("kernel") else ""
    yield ""
    states = ", ".join(map(text_of, list_of(group.get("states"))))
    count, who = small_number(group.get("count")) or 0, text_of(group.get("who"))
    how = ", ".join(dict.fromkeys(filter(None, (held, states))))
    yield f"{count} x {who}: in {place}{since}; {how}{kernel}"
    yield from _tell_stack(list_of(group.get("stack")), _CALLS_OF_GROUP)


def _tell_stack(stack: Sequence[object], at_most: int) -> Iterator[str]:
    """The innermost calls, and of the others the program's own first."""
    calls = [text_of(call) for call in stack]
    own = [n for n in range(at_most - 1, len(calls)) if waiting.is_own(calls[n].partition(" at ")[2])]
    shown = [*range(len(calls))[: at_most - 1], *own]
    shown = shown if len(calls) > at_most else [*range(len(calls))]
    for place in shown[:at_most]:
        yield f"    {'at' if not place else 'by'} {calls[place]}"
    if len(calls) > len(shown[:at_most]):
        yield f"    and {len(calls) - len(shown[:at_most])} more calls"


def _show_time(time_ns: int) -> str:
    if not 0 < time_ns < 1 << 62:
        return "?"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_ns / _NS))
