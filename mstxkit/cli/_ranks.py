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
from ..store.whereabouts import Whereabouts, write_span
from . import _show
from ._requests import ROWS_AT_MOST, color_state, write_ranks

if TYPE_CHECKING:
    from rich.table import Table

    from ..store.fate import Heard

_TROUBLES = ("dropped", "faults")


class Standpoint(NamedTuple):
    """Where one process is, from the newest that is known of it."""

    where: Whereabouts
    who: str  # what it is called where it has no rank; else empty
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
        where = where._replace(rank=heard.rank, role="" if who else ack.role)
        phase = heard.standing.phase
        if heard.is_alive is False:
            phase, where = "ended", where._replace(stage=None)
        why_none = "; ".join(f"{name}: {why}" for name, why in heard.standing.why_no_backend.items())
        profiler = f"none: {why_none}" if heard.standing.backend is None else heard.standing.backend
        stood.append(Standpoint(where, who, phase, profiler))
    listen = {(heard.acknowledgement.host, heard.acknowledgement.pid) for heard in listeners}
    others = {process: where for process, where in places.items() if process not in listen and where.is_at_work}
    stood += [Standpoint(where, called.get(process, ""), "", "") for process, where in others.items()]
    return sorted(stood, key=lambda member: (bool(member.who), member.where.rank or 0, member.where.role, member.who))


def tabulate_ranks(stood: Sequence[Standpoint]) -> Table:
    """A line a rank; of more than 16, those that do the same on one line."""
    made = _show.make_table("rank", "stage", "step", "seen", "session", "profiler")
    is_each = len(stood) <= ROWS_AT_MOST
    alike = group_by(stood, lambda m: (m.where.role, m.where.stage or "", m.phase, m.profiler))
    groups = [[member] for member in stood] if is_each else list(alike.values())
    for members in groups[:ROWS_AT_MOST]:
        places, (where, _, phase, profiler) = [member.where for member in members], members[0]
        ranks = tuple(member.where.rank or 0 for member in members if not member.who)
        whose = [re.sub("ranks? ", "", write_ranks(ranks)), *sorted(member.who for member in members if member.who)]
        who_all = f"{list_texts([*filter(None, whose)], ', ', 4)} {where.role}".strip()
        steps = sorted({place.step for place in places if place.step is not None})
        step = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else "".join(map(str, steps))
        up_to = "" if len(members) == 1 else "up to "
        in_stage = write_span(max(place.in_stage_s or 0.0 for place in places))
        stage = f"{where.stage} for {up_to}{in_stage}" if where.stage else "-"
        seen = up_to + max((place.age for place in places), key=lambda age: age.seconds).words
        made.add_row(*map(for_rich, (who_all, stage, step)), seen, color_state(phase), for_rich(profiler))
    if len(groups) > ROWS_AT_MOST:
        rest = sum(map(len, groups[ROWS_AT_MOST:]))
        made.add_row("…", f"{rest} more ranks (--json)", "", "", "", "")
    return made


def tabulate_processes(listed: Sequence[dict[str, Any]]) -> Table:
    """A line a process; of more than 16, those with troubles first, the rest counted by what they are and how."""
    columns = ("process", "host", "pid", "state", "last seen", "dropped", "faults", "clock")
    table = _show.make_table(*columns, right=("pid", "dropped", "faults"))
    troubled, others = list(listed), list[dict[str, Any]]()
    if len(listed) > ROWS_AT_MOST:
        by_trouble = group_by(listed, lambda p: is_wrong(p["state"], p["ending"]) or any(p[each] for each in _TROUBLES))
        troubled, others = by_trouble.get(True, []), by_trouble.get(False, [])
    for process in troubled[:ROWS_AT_MOST]:
        names = (for_rich(process["label"]), for_rich(process["host"], NAME_LIMIT), str(process["pid"]))
        error = "" if process["clock_error_ns"] is None else f" ±{write_duration(process['clock_error_ns'])}"
        table.add_row(*names, *_sum_up([process]), f"{process['clock'] or 'unknown'}{error}")
    for (kind, _), members in group_by([*others, *troubled[ROWS_AT_MOST:]], _kind_of).items():
        hosts = write_count(len({process["host"] for process in members}), "host")
        table.add_row(for_rich(f"{len(members)} × {kind}"), hosts, "", *_sum_up(members), "")
    return table


def _kind_of(process: Mapping[str, Any]) -> tuple[str, str]:
    """What it is, without a number of its own, and how it is."""
    part = re.sub(r"[\d_ ]+$", "", process["part"] or "") or process["role"] or "process"
    return part, " ".join(filter(None, (process["state"], process["ending"])))


def _sum_up(members: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """The cells of some that are alike: how they are, when they were seen, how long ago at most, and their troubles."""
    style = "bold red" if is_wrong(members[0]["state"], members[0]["ending"]) else ""
    yield for_rich(_kind_of(members[0])[1], NAME_LIMIT, style)
    seen = [process["last_seen_ns"] for process in members if process["last_seen_ns"] is not None]
    yield f"{write_span(max(0.0, (time.time_ns() - min(seen)) / 1e9))} ago" if seen else "never"
    yield from (str(sum(process[trouble] for process in members)) for trouble in _TROUBLES)
