"""Requests and what became of them, as verbs show them: on a terminal, in a pipe, as JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Sequence

import typer

from ..reading.report import units
from ..reading.report.escape import for_rich, for_terminal
from ..store.request import ALL, COUNT_AT_MOST, SUSPECT_AND_PEER, Ranks, Request
from ..store.values import group_by, write_spans
from . import _show

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ..escalation.explaining import Participant
    from ..store.fate import Progress
    from ..store.report import Report
    from ..store.session_file import RecordedSession

ROWS_AT_MOST = 16
ID_SHOWN = 8
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_STYLES = {
    "done": "green", "running": "bold cyan", "draining": "bold cyan", "armed": "cyan", "failed": "bold red",
    "refused": "bold red", "expired": "yellow", "cancelled": "yellow",
}  # fmt: skip


def bytes_of(text: str | None, option: str) -> int | None:
    """`2G` -> 2147483648; also GiB and GB, which mean the same. BadParameter for anything else, of this option."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*([kmgt]?)(?:i?b)?\s*", text.lower(), re.ASCII)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size: give 500M or 2G", param_hint=option)
    return int(float(match[1]) * _UNITS[match[2]])


def write_ranks(ranks: Ranks) -> str:
    """Where a request is for: `all ranks`, `rank 5`, `ranks 0-2, 5`; of very many as `units.ranks_in_words`."""
    if isinstance(ranks, str):
        return {ALL: "all ranks", SUSPECT_AND_PEER: "the suspect and a peer"}.get(ranks, ranks)
    return units.ranks_in_words(ranks).replace(",", ", ")


def write_request(request: Request) -> str:
    """What is asked for: `2 steps of actor_update, preset full, on ranks 1, 3`."""
    count, word = (request.steps, "step") if request.steps is not None else (request.occurrences, "occurrence")
    what = f"{count} {word}{'' if count == 1 else 's'} of {', '.join(request.stages)}"
    if request.planned is not None:
        begin = f"from step {request.planned.first_step} on"
        what = f"{begin} {what}" if count != COUNT_AT_MOST else f"{begin} every step of {', '.join(request.stages)}"
    part = f", {request.sample.record} {request.sample.per} each" if request.sample is not None else ""
    how = f"preset {request.preset}" if request.preset is not None else "options of its own"
    if request.preset is not None and request.options:
        shown = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in request.options}
        shown = {key: str(value).lower() if isinstance(value, bool) else value for key, value in shown.items()}
        how += f" with {', '.join(f'{key}={value}' for key, value in shown.items())}"
    return f"{what}{part}, {how}, on {write_ranks(request.ranks)}"


def as_dict(progress: Progress) -> dict[str, Any]:
    """A request with its progress, as plain values."""
    asked = progress.asked
    return {
        "request": asked.request.as_json(), "suspects": list(asked.suspects), "cancelled": asked.cancelled,
        "states": progress.counts(), "has_ended": progress.has_ended,
        "ranks": [report._asdict() for report in progress.reports],
    }  # fmt: skip


def color_state(word: str) -> Text:
    """A state in its colour."""
    return for_rich(word, ROWS_AT_MOST, _STYLES.get(word, ""))


def by_rank(progress: Progress) -> Table:
    """One line a rank, those first that have not ended; of many ranks the rest is counted."""
    from rich.text import Text

    made = _show.make_table("rank", "state", "step", "window", "recorded", "why", right=("step",))
    order = sorted(progress.reports, key=lambda report: (report.has_ended and report.state == "done", report.rank))
    for report in order[:ROWS_AT_MOST]:
        numbers = ("" if report.step is None else str(report.step), write_window(report), write_recorded(report))
        made.add_row(str(report.rank), color_state(report.state), *numbers, for_rich(report.reason))
    if len(order) > ROWS_AT_MOST:
        made.add_row("…", Text(f"{len(order) - ROWS_AT_MOST} more", "dim"), "", "", "", "")
    return made


def write_window(report: Report) -> str:
    """Its steps: `12`, or `12 to 14`; empty while it has none."""
    if report.first_step is None:
        return ""
    last = report.last_step
    return str(report.first_step) if last in (None, report.first_step) else f"{report.first_step} to {last}"


def write_recorded(report: Report) -> str:
    """`2 sessions, 12.3 MiB`; empty while there is none."""
    if not report.recorded:
        return ""
    return f"{report.recorded} session{'' if report.recorded == 1 else 's'}, {units.write_size(report.bytes)}"


def write_report(report: Report) -> str:
    """A rank's state in one line: `rank 1: done: 2 sessions, 12.3 MiB`."""
    steps = f"step{'s' if ' ' in write_window(report) else ''} {write_window(report)}" if write_window(report) else ""
    details = "; ".join(filter(None, (steps, write_recorded(report), for_terminal(report.reason))))
    return f"rank {report.rank}: {report.state}{': ' if details else ''}{details}"


def tabulate_requests(progresses: Sequence[Progress]) -> Table:
    """One line a request."""
    made = _show.make_table("request", "state", "what", "why")
    for progress in progresses:
        request = progress.asked.request
        reasons = [f"rank {report.rank}: {report.reason}" for report in progress.reports if report.reason]
        why = "; ".join(filter(None, (request.reason, *reasons[:1])))
        made.add_row(request.id[:ID_SHOWN], str(progress), for_rich(write_request(request)), for_rich(why))
    return made


def write_participants(recorders: Sequence[Participant]) -> list[str]:
    """Who would record, and why not: `rank 1 (actor, pid 42 on h): torch, in step 7`; those alike together."""
    lines = []
    for members in group_by(recorders, lambda recorder: (recorder.backend, recorder.hindrance)).values():
        first, who = members[0], write_ranks(tuple(member.rank for member in members))
        if len(members) == 1 and first.pid is not None:
            who = f"rank {first.rank} ({', '.join(filter(None, (first.role, f'pid {first.pid} on {first.host}')))})"
        steps = sorted({member.step for member in members if member.step is not None})
        where = f"in step{'s' if len(steps) > 1 else ''} {', '.join(write_spans(steps))}" if steps else ""
        oldest = max((member.seen for member in members if member.seen is not None), default=None)
        where += f" ({'up to ' if len(members) > 1 else ''}{oldest.words})" if where and oldest is not None else ""
        by = ", ".join(filter(None, (first.backend, where)))
        lines.append(": ".join(filter(None, (who, by, f"BUT {first.hindrance}" if first.hindrance else ""))))
    return lines


def tabulate_profiles(recordings: Sequence[RecordedSession]) -> Table:
    """One line a profile."""
    made = _show.make_table("profile", "preset", "state", "size", right=("size",))
    for session in recordings:
        words = (str(session.document.get(key) or "") for key in ("preset", "state"))
        preset, phase = (for_rich(text, ROWS_AT_MOST) for text in words)
        made.add_row(for_rich(session.folder), preset, phase, size_of(session))
    return made


def size_of(session: RecordedSession) -> str:
    """Of its raw data."""
    count = session.document.get("bytes")
    return units.write_size(count) if isinstance(count, int) and 0 <= count < 1 << 62 else ""
