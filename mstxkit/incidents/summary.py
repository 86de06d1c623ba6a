"""An incident from the reports of all processes: who is stuck where, who waits for whom, since when. Pure.

One for any number of ranks: stacks come grouped, and of each group a few are named.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..host import parts
from ..store import incidents, stacks, verdicts
from ..store.incidents import Incident
from ..store.stacks import ThreadStack
from ..store.values import group_by, list_of, small_number, step_number, table_of, text_of, whole_number
from ..store.verdicts import Verdict
from ..store.whereabouts import Whereabouts
from . import deciding
from .deciding import Cause, Report

_INSIDE = ("name", "stage", "step", "since_ns", "quiet_s", "limit_s", "is_stuck")
_GROUPS_AT_MOST, _RANKS_AT_MOST, _FRAMES_SHOWN = 40, 64, 24


def sum_up(
    name: str, time_ns: int, kind: str, reports: Sequence[Report], cause: Cause | None,
    silent: Sequence[Whereabouts] = (),
) -> Incident:  # fmt: skip
    """What the one in the folder of this name comes to, by all that have reported.
    `cause`: None of one that was asked for. `silent`: who should have reported, and has not.
    """
    report = cause.report if cause is not None else None
    waiting = cause.waiting if cause is not None else ()
    named = report if report is not None else waiting[0] if waiting else {}
    range_ = deciding.find_innermost(named)
    reason = ("it was asked for" if kind == incidents.REQUEST else "") if cause is None else cause.reason
    subject = "" if report is None else f"{deciding.who_is(report)}: "
    return Incident(
        name, time_ns, kind, text_of(range_.get("stage")), text_of(range_.get("name")),
        None if report is None else small_number(report.get("rank")),
        text_of(named.get("role")), whole_number(range_.get("since_ns")), _waits_for(report, waiting, range_),
        len(reports), subject + reason, details=_list_details(reports, cause, silent),
    )  # fmt: skip


def of_process(kind: str, process: str | None, reports: Sequence[Report]) -> Cause | None:
    """The cause where a process is it by itself: it died, or raised what nobody caught. `process`: None: nobody knows
    any more which it was: the last that is gone, or that has raised.
    """
    if process is None:
        is_raised = kind == incidents.EXCEPTION
        dead = [r for r in reports if (r.get("exceptions") if is_raised else deciding.hold_of(r) == "gone")]
        latest = max(dead, key=lambda report: whole_number(report.get("gone_ns")), default={})
        process = text_of(latest.get("process"))
    for report in reports:
        if report.get("process") == process:
            others = tuple(other for other in reports if other is not report and deciding.waits_now(other))
            return Cause(report, kind, _how_it_ended(kind, report), others, deciding.first_missing(reports))
    return None


def hang_verdict(incident: Incident, now_ns: int) -> Verdict:
    """A hang as it stands among the verdicts of the job; withdrawn where it is over. `now_ns`: wall clock."""
    steps = (range_.get("step") for range_ in incident.details.get("inside") or ())
    step = next((step for step in steps if step is not None), None)
    missing = (incident.details.get("missing") or {}).get("words", "")
    evidence = {"range": incident.range, "reason": incident.reason}
    evidence["missing"] = missing if missing not in incident.reason else ""
    return Verdict(
        f"hang-{incident.incident}", now_ns, step, verdicts.HANG, incident.stage or None, incident.rank,
        incident.role, step, 1.0, waits_for=incident.waits_for,
        evidence={name: text for name, text in evidence.items() if text},
        next=f"read {incident.page} in the run folder", withdrawn=str(incident.details.get("over") or ""),
    )  # fmt: skip


def _how_it_ended(kind: str, report: Report) -> str:
    if kind == incidents.EXCEPTION:
        raised = table_of((list_of(report.get("exceptions")) or [{}])[-1])
        text = text_of(raised.get("text")).strip().splitlines()
        where = "" if raised.get("is_main") is True else f" in thread {text_of(raised.get('thread'))}"
        return f"nobody caught {text[-1][:300] if text else 'an exception'}{where}"
    fatal, signal = text_of(report.get("fatal")), stacks.signal_name(report.get("signal"))
    if kind == incidents.SIGNAL:
        return f"a fatal signal ended it: {' '.join(filter(None, (signal, fatal)))}"
    if status := small_number(report.get("exit_status")):
        return f"it ended itself by os._exit({status})"
    number = small_number(report.get("oom_kills")) or 0
    processes = f"{number} process" + "es" * (number > 1)
    oom = f"; memory ran out: the kernel has just killed {processes} of this host for it" if number else ""
    return f"it was killed{f' ({signal})' if signal else ', without a word'}{oom}"


def _gone_as_well(report: Report, reports: Sequence[Report]) -> str:
    """`all of host node3: ranks 192-199,201-255 actor`: the others that are gone, of whom none has begun anew."""
    there = {deciding.who_is(other) for other in reports if not other.get("gone_ns")}
    gone = [r for r in reports if r is not report and deciding.hold_of(r) == "gone" and deciding.who_is(r) not in there]
    hosts = {text_of(r.get("host")) for r in ([report] * bool(report) + gone)}
    where = f"all of host {min(hosts, default='')}" if len(hosts) < 2 else f"of {len(hosts)} hosts"
    return f"{where}: {deciding.who_all(gone)}" if gone else ""


def _waits_for(report: Report | None, waiting: Sequence[Report], range_: Mapping[str, Any]) -> str:
    if not waiting:
        return ""
    who = deciding.who_all(waiting)
    waits = "wait" if len(waiting) > 1 else "waits"
    if report is None:
        return f"{who} {waits} for each other in {text_of(range_.get('stage')) or text_of(range_.get('name')) or '?'}"
    where = deciding.find_innermost(waiting[0])
    place = text_of(where.get("stage")) or text_of(where.get("name"))
    return f"{who} {waits} for {deciding.who_is(report)}" + (f" in {place}" if place else "")


def _list_details(reports: Sequence[Report], cause: Cause | None, silent: Sequence[Whereabouts]) -> dict[str, Any]:
    missing = cause.missing if cause is not None else None
    named = (None if cause is None else cause.report) or {}
    hosts = sorted(group_by(silent, lambda where: where.host).items())
    # Those of ranks; what only loads or computes for them where it does, or is inside of something.
    shown = [
        r for r in reports
        if r.get("under") not in parts.BESIDE or list_of(r.get("inside")) or deciding.is_unmarked(r)
    ]  # fmt: skip
    return {
        "how": "" if cause is None else cause.how, "who": deciding.who_is(named) if named else "",
        "process": text_of(named.get("process")), "signal": small_number(named.get("signal")) or 0,
        "oom_kills": small_number(named.get("oom_kills")) or 0,
        "fatal": text_of(named.get("fatal")), "host": text_of(named.get("host")),
        "pid": whole_number(named.get("pid")), "gone": _gone_as_well(named, reports),
        "silent": [f"host {host}, last {there[0].age.words}: {deciding.who_all(where._asdict() for where in there)}"
                   for host, there in hosts],
        "missing": None if missing is None else {**missing._asdict(), "words": missing.words},
        "stack": _list_stack(named), "exceptions": list_of(named.get("exceptions"))[-1:],
        "inside": [{key: range_.get(key) for key in _INSIDE} for range_ in map(table_of, list_of(named.get("inside")))],
        "groups": [_group_members(members) for _, members in deciding.groups_of(shown)[:_GROUPS_AT_MOST]],
        "hosts": len({text_of(report.get("host")) for report in reports}),
    }  # fmt: skip


def _group_members(members: Sequence[Report]) -> dict[str, Any]:
    """Processes that are at the same place: who, in what, held how, since when, and that stack once."""
    first = min(members, key=lambda report: deciding.since_ns(report) or 1 << 63)
    range_ = deciding.find_innermost(first)
    return {
        "count": len(members), "who": deciding.who_all(members),
        "ranks": sorted({r for m in members if (r := small_number(m.get("rank"))) is not None})[:_RANKS_AT_MOST],
        "stage": text_of(range_.get("stage")), "range": text_of(range_.get("name")),
        "step": step_number(range_.get("step")), "since_ns": whole_number(range_.get("since_ns")),
        "held": deciding.hold_of(first) if list_of(first.get("inside")) or first.get("gone_ns") else "idle",
        "states": sorted({text_of(member.get("state")) for member in members}),
        "stacks_by": text_of(first.get("stacks_by")), "stack": _list_stack(first),
        "kernel": text_of(first.get("waits_in")),
    }  # fmt: skip


def _list_stack(report: Report) -> list[str]:
    frames = ThreadStack.read(table_of(report.get("thread"))).frames[:_FRAMES_SHOWN]
    return [f"{frame.function} at {frame.file}:{frame.line}" for frame in frames]
