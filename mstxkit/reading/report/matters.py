"""What is the matter with a run: all that is known of it, what weighs most first, for every headline.

What ends a job or stops it comes first, in the order in which it happened. Then what its steps lose, by what a step
would take without it, and what of the run is not there, by how much of it. Then that nothing is the matter, or that
nobody can tell; at last how earlier attempts of the job ended. Every name is escaped.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from typing import Any, Iterator, Mapping

from ...stages import meant_by
from ...store import incidents
from ...store.values import group_by
from ...store.whereabouts import write_span
from .. import endings
from ..processes import ENDED, LOST, RUNNING
from . import lost_time, no_verdict
from .account import Account, Matter
from .escape import SENTENCE_LIMIT, escape_name, for_terminal
from .number_table import write_percent
from .sentences import blames_cause, list_texts, of_incident
from .units import write_duration

OUT_OF_MEMORY, HOST_GONE, DAMAGE = "out_of_memory", "host_gone", "damage"
EARLIER, NAME, ENDED_EARLY = "earlier_attempt", "stage_name", "ended_early"
# Errors that say that memory ran out, of torch, Ray and Python.
_OF_MEMORY = {"by OutOfMemoryError", "by MemoryError"}
_AT_ONCE_NS, _NAMED = 3_000_000_000, 8
_Row = Mapping[str, Any]


def weigh_matters(account: Account) -> list[Matter]:
    """Everything that is the matter with it; at least that nothing is, or that nobody can tell."""
    newest = max((process["attempt"] for process in account.processes), default=0)
    ends, (losses, least) = [*_list_ends(account, newest)], lost_time.weigh_losses(account)
    losses = sorted([*losses, *_tell_missing(account)], key=lambda matter: (not matter.blames, -matter.weight))
    calm = [] if ends or losses else [no_verdict.explain_silence(account, least)]
    attempts = (_list_ends(account, attempt) for attempt in reversed(range(newest)))
    past = [("an earlier attempt: ", end) for ends_of_it in attempts for end in ends_of_it]
    past += [("over: ", _of_end(account, end, [])) for end in account.incidents if end["over_ns"]]
    earlier = [end._replace(kind=EARLIER, words=when + end.words, cost="", blames=False) for when, end in past]
    alike = [(escape_name(stage), meant) for stage in account.stages if (meant := meant_by(stage)) is not None]
    words = (f"no stage that mstxkit knows is called {stage}: {meant} may be meant" for stage, meant in alike)
    return [*ends, *losses, *calm, *earlier, *(Matter(NAME, each, blames=False) for each in words)]


def _list_ends(account: Account, attempt: int) -> list[Matter]:
    """How an attempt of the job was ended or stopped, in the order in which that happened."""
    members = [process for process in account.processes if process["attempt"] == attempt]
    others = {process["process"] for process in account.processes} - {process["process"] for process in members}
    seen = [
        incident for incident in account.incidents
        if incident["kind"] != incidents.REQUEST and not incident["over_ns"] and incident["process"] not in others
    ]  # fmt: skip
    began_ns = [(end["kind"] == incidents.HANG and end["since_ns"]) or end["time_ns"] or 0 for end in seen]
    dated = [(int(ns), _of_end(account, incident, members)) for ns, incident in zip(began_ns, seen)]
    told_of = {incident["process"] for incident in seen}
    dead = [p for p in members if endings.is_wrong(p["state"], p["how"]) and p["process"] not in told_of]
    dead += [p for p in members if p["state"] == LOST and p["host"] in account.silent]
    there, lost = (Counter(process["host"] for process in some) for some in (members, dead))
    # All of whose processes are gone, several of them or of a host that says nothing more, while there are others.
    are_gone = (host for host, count in lost.items() if count == there[host] and (count > 1 or host in account.silent))
    for host in are_gone if len(there) > 1 else ():
        gone = [process for process in dead if process["host"] == host]
        dead = [process for process in dead if process["host"] != host]
        since_ns = gone[0]["last_seen_ns"] or 0
        names = list_texts([escape_name(process["label"]) for process in gone], ", ", _NAMED)
        words = f"host {escape_name(host)} is gone, with {names}"
        dated.append((since_ns, Matter(HOST_GONE, words, _write_aftermath(since_ns, members))))
    dated += ((process["last_seen_ns"] or 0, _of_end(account, _as_incident(process), members)) for process in dead)
    if not seen:  # hangs of which there is no page
        hangs = (verdict for verdict in account.verdicts if verdict["kind"] == incidents.HANG and blames_cause(verdict))
        dated += ((verdict["time_ns"], lost_time.of_verdict(verdict)) for verdict in hangs)
    dated += [*_ended_early(members, *min(dated, key=lambda each: each[0]))] if dated else []
    return [matter for _, matter in sorted(dated, key=lambda each: each[0])]


def _ended_early(members: list[_Row], until_ns: int, then: Matter) -> Iterator[tuple[int, Matter]]:
    """Few of a role that ended in order before the rest, which came no further than to the next step: it needs them."""
    with_steps = (p for p in members if p.get("last_step") is not None and p["rank"] is not None)
    for of_role in group_by(with_steps, lambda process: (process["role"], process["part"])).values():
        newest = max(process["last_step"] for process in of_role)
        ended = (process for process in of_role if process["state"] == ENDED and process["how"] is None)
        early = [p for p in ended if p["last_step"] == newest - 1 and (p["last_seen_ns"] or until_ns) < until_ns]
        if 0 < 2 * len(early) < len(of_role):
            first = min(early, key=lambda process: process["last_seen_ns"])
            who = list_texts([escape_name(process["label"]) for process in early], ", ", _NAMED)
            words = f"{who} ended in order after step {first['last_step']}, while the others went on to step {newest}"
            yield first["last_seen_ns"], Matter(ENDED_EARLY, words, then.cost, "", "let all ranks have as many batches")


def _as_incident(process: _Row) -> dict[str, Any]:
    """A death of which nobody has left a page."""
    inside, how = (process["inside"] or [{}])[0], process["how"] or ""
    kind = incidents.EXCEPTION if process["state"] == ENDED else incidents.KILLED
    where = f"pid {process['pid']} on {process['host']}"
    entered = f", entered {write_duration(inside['open_ns'])} before it was last seen" if inside.get("open_ns") else ""
    return {
        "kind": kind, "who": process["label"], "how": how, "range": inside.get("name"), "stage": inside.get("stage"),
        "step": inside.get("step"), "since_ns": None, "time_ns": process["last_seen_ns"], "signal": None,
        "oom_kills": how in _OF_MEMORY, "reason": where + entered, "waits_for": "", "page": None,
    }  # fmt: skip


def _of_end(account: Account, end: _Row, members: list[_Row]) -> Matter:
    """`end`: an incident, or a death as one."""
    cost, page = _write_aftermath(end["time_ns"] or 0, members), end["page"]
    if end["kind"] == incidents.HANG:
        cost = "nothing goes on" if account.is_running else "nothing went on"
    says_more = ["waits_for"] if end["signal"] else ["reason", "waits_for"]
    return Matter(
        OUT_OF_MEMORY if end["oom_kills"] else end["kind"], of_incident(end), cost,
        "; ".join(for_terminal(end[key], SENTENCE_LIMIT) for key in says_more if end[key]),
        next=f"cat {shlex.quote(os.path.join(account.path, page))}" if page else "", stage=end["stage"],
    )  # fmt: skip


def _write_aftermath(since_ns: int, members: list[_Row]) -> str:
    """What became of the others; how long ago it was, where nobody knows of others."""
    if not members:
        return f"{write_span(max(0.0, (time.time_ns() - since_ns) / 1e9))} ago"
    if any(process["state"] == RUNNING for process in members):
        return "others go on"
    later_ns = max(process["last_seen_ns"] or 0 for process in members) - since_ns
    return "the job ended with it" if later_ns < _AT_ONCE_NS else f"the job ended {write_duration(later_ns)} later"


def _tell_missing(account: Account) -> Iterator[Matter]:
    """What of the run is not there, by how many of its processes that is of."""
    files = {os.path.basename(part["path"]) for part in account.damage}
    processes = {name.split(".")[0] for name in files}
    whole = max(1, len(account.processes), len(processes))
    if files:
        what = "1 file is damaged" if len(files) == 1 else f"{len(files)} files are damaged"
        reason, share = for_terminal(account.damage[0]["reason"], SENTENCE_LIMIT), len(processes) / whole
        cost = f"of {write_percent(share)} of the processes"
        yield Matter(DAMAGE, f"{what}: what they held is missing here", cost, reason, weight=share)
    for key, words in (("dropped", "records dropped"), ("faults", "faults inside mstxkit")):
        if lost := [process for process in account.losses if process[key]]:
            most = max(lost, key=lambda process: int(process[key]))
            yield Matter(DAMAGE, f"{sum(p[key] for p in lost)} {words}, most of them in {escape_name(most['label'])}")
