"""What processes and ranks of a run do now, as `status` shows it: one line each, or, of many, those alike together."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

from ..reading.endings import is_wrong
from ..reading.report.escape import NAME_LIMIT, for_rich
from ..reading.report.sentences import list_texts
from ..reading.report.units import write_count, write_duration
from ..store import whereabouts
from ..store.values import group_by
from ..store.whereabouts import Age, Whereabouts, write_span
from . import _show
from ._requests import ROWS_AT_MOST, color_state, write_ranks

if TYPE_CHECKING:
    from rich.table import Table

    from ..store.fate import Heard

_TROUBLES = ("dropped", "faults")


class Standpoint(NamedTuple):
    """Where one process is, from the newest that is known of it."""

    rank: int
    who: str  # what it is called where it has no rank; else empty
    role: str
    stage: str  # empty between two, and where only an acknowledgement tells
    in_stage_s: float
    step: int | None
    age: Age  # of step and stage
    phase: str  # of its sessions: idle, armed, running, draining, cooldown, ended; empty where it takes no requests
    profiler: str  # that its sessions are made with, or why there is none


def find_standpoints(
    listeners: Sequence[Heard], seen: Iterable[Whereabouts], called: Mapping[tuple[str, int], str]
) -> list[Standpoint]:
    """Of every process that takes requests, and of those besides that train.
    `called`: those that have no rank, by host and pid.
    """
    places = whereabouts.by_process(seen)
    stood = []
    for heard in listeners:
        ack = heard.acknowledgement
        who = called.get((ack.host, ack.pid), "")
        where = whereabouts.of_speaker(ack, heard.standing.step, places)
        phase, stage = ("ended", "") if heard.is_alive is False else (heard.standing.phase, where.stage or "")
        why_none = "; ".join(f"{name}: {why}" for name, why in heard.standing.why_no_backend.items())
        profiler = f"none: {why_none}" if heard.standing.backend is None else heard.standing.backend
        role, in_stage_s = "" if who else ack.role, where.in_stage_s or 0.0
        stood.append(Standpoint(heard.rank, who, role, stage, in_stage_s, where.step, where.age, phase, profiler))
    listen = {(heard.acknowledgement.host, heard.acknowledgement.pid) for heard in listeners}
    for process, w in places.items():
        if process not in listen and w.is_at_work:
            about = w.role, w.stage or "", w.in_stage_s or 0.0, w.step, w.age
            stood.append(Standpoint(w.rank or 0, called.get(process, ""), *about, "", ""))
    return sorted(stood, key=lambda member: (bool(member.who), member.rank, member.role, member.who))


def tabulate_ranks(stood: Sequence[Standpoint]) -> Table:
    """A line a rank; of more than 16, those that do the same on one line."""
    made = _show.make_table("rank", "stage", "step", "seen", "session", "profiler")
    is_each = len(stood) <= ROWS_AT_MOST
    alike = group_by(stood, lambda member: (member.role, member.stage, member.phase, member.profiler))
    groups = [[member] for member in stood] if is_each else list(alike.values())
    for members in groups[:ROWS_AT_MOST]:
        first, oldest = members[0], max(members, key=lambda member: member.age.seconds)
        ranked = re.sub("ranks? ", "", write_ranks(tuple(member.rank for member in members if not member.who)))
        whose = [ranked, *sorted(member.who for member in members if member.who)]
        who_all = f"{list_texts([*filter(None, whose)], ', ', 4)} {first.role}".strip()
        steps = sorted({member.step for member in members if member.step is not None})
        step = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else "".join(map(str, steps))
        up_to = "" if len(members) == 1 else "up to "
        in_stage = write_span(max(member.in_stage_s for member in members))
        where = (f"{first.stage} for {up_to}{in_stage}" if first.stage else "-", step)
        seen = f"{up_to}{oldest.age.words}"
        made.add_row(for_rich(who_all), *map(for_rich, where), seen, color_state(first.phase), for_rich(first.profiler))
    if len(groups) > ROWS_AT_MOST:
        rest = sum(map(len, groups[ROWS_AT_MOST:]))
        made.add_row("…", f"{rest} more ranks (--json)", "", "", "", "")
    return made


def tabulate_processes(listed: Sequence[dict[str, Any]]) -> Table:
    """A line a process; of more than 16, those with troubles first, the rest counted by what they are and how."""
    columns = ("process", "host", "pid", "state", "last seen", "dropped", "faults", "clock")
    table = _show.make_table(*columns, right=("pid", "dropped", "faults"))
    if len(listed) <= ROWS_AT_MOST:
        shown, rest = list(listed), []
    else:
        troubled = [process for process in listed if _has_trouble(process)]
        shown = troubled[:ROWS_AT_MOST]
        rest = [process for process in listed if not _has_trouble(process)] + troubled[ROWS_AT_MOST:]
    now_ns = time.time_ns()
    for process in shown:
        names = (for_rich(process["label"]), for_rich(process["host"], NAME_LIMIT), str(process["pid"]))
        error = "" if process["clock_error_ns"] is None else f" ±{write_duration(process['clock_error_ns'])}"
        clock = f"{process['clock'] or 'unknown'}{error}"
        table.add_row(*names, _show_state(process), _last_seen([process], now_ns), *_sum_counts([process]), clock)
    for (kind, _), members in group_by(rest, _kind_of).items():
        hosts = write_count(len({process["host"] for process in members}), "host")
        whose = (for_rich(f"{len(members)} × {kind}"), hosts)
        table.add_row(*whose, "", _show_state(members[0]), _last_seen(members, now_ns), *_sum_counts(members), "")
    return table


def _has_trouble(process: Mapping[str, Any]) -> bool:
    return is_wrong(process["state"], process["ending"]) or any(process[trouble] for trouble in _TROUBLES)


def _kind_of(process: Mapping[str, Any]) -> tuple[str, str]:
    """What it is, without a number of its own, and how it is."""
    part = re.sub(r"[\d_ ]+$", "", process["part"] or "") or process["role"] or "process"
    return part, " ".join(filter(None, (process["state"], process["ending"])))


def _show_state(process: Mapping[str, Any]) -> Any:
    style = "bold red" if is_wrong(process["state"], process["ending"]) else ""
    return for_rich(_kind_of(process)[1], NAME_LIMIT, style)


def _last_seen(members: Sequence[Mapping[str, Any]], now_ns: int) -> str:
    """How long ago at most."""
    seen = [process["last_seen_ns"] for process in members if process["last_seen_ns"] is not None]
    return f"{write_span(max(0.0, (now_ns - min(seen)) / 1e9))} ago" if seen else "never"


def _sum_counts(members: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    return (str(sum(process[trouble] for process in members)) for trouble in _TROUBLES)
