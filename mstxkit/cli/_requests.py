"""Requests and what became of them, as verbs show them: on a terminal, in a pipe, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence

from ..control.requests import ALL, Ranks, Request

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ..control.explaining import Participant
    from ..control.moves import Report
    from ..control.progress import Heard, Progress
    from ..reading.profiles import Session

ROWS_AT_MOST = 16
_ID_SHOWN = 8
_STYLES = {
    "done": "green", "running": "bold cyan", "draining": "bold cyan", "armed": "cyan", "failed": "bold red",
    "refused": "bold red", "expired": "yellow", "cancelled": "yellow",
}  # fmt: skip


def spans(ranks: Iterable[int]) -> str:
    """0, 1, 2, 5 -> `0-2, 5`."""
    told: list[str] = []
    first = last = -2
    for rank in sorted(set(ranks)):
        if rank != last + 1:
            first = rank
            told.append(str(rank))
        else:
            told[-1] = f"{first}-{rank}"
        last = rank
    return ", ".join(told)


def on(ranks: Ranks) -> str:
    """Where a request is for: `all ranks`, `rank 5`, `ranks 0-2, 5`."""
    if isinstance(ranks, str):
        return "all ranks" if ranks == ALL else "the suspect and a peer"
    return f"rank{'s' if len(ranks) > 1 else ''} {spans(ranks)}"


def asked(request: Request) -> str:
    """What is asked for: `2 steps of actor_update, preset full, on ranks 1, 3`."""
    count, word = (request.steps, "step") if request.steps is not None else (request.occurrences, "occurrence")
    what = f"{count} {word}{'' if count == 1 else 's'} of {', '.join(request.stages)}"
    part = f", {request.sample.record} {request.sample.per} each" if request.sample is not None else ""
    how = f"preset {request.preset}" if request.preset is not None else "options of its own"
    return f"{what}{part}, {how}, on {on(request.ranks)}"


def as_dict(progress: Progress) -> dict[str, Any]:
    """A request with its progress, as plain values."""
    reports = [report.as_json() for report in progress.reports]
    return {
        "request": progress.asked.request.as_json(),
        "suspects": list(progress.asked.suspects),
        "cancelled": progress.asked.cancelled,
        "states": progress.counts(),
        "has_ended": progress.has_ended,
        "ranks": reports,
    }


def state(word: str) -> Text:
    """A state in its colour."""
    from ..report.escape import for_rich

    return for_rich(word, ROWS_AT_MOST, _STYLES.get(word, ""))


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table in the style of all verbs."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def by_rank(progress: Progress, bytes_of: Mapping[int, int] | None = None) -> Table:
    """One line a rank, those first that have not ended; of many ranks the rest is counted."""
    from rich.text import Text

    from ..report.escape import for_rich

    made = table("rank", "state", "step", "window", "recorded", "why", right=("step",))
    order = sorted(progress.reports, key=lambda report: (report.has_ended and report.state == "done", report.rank))
    for report in order[:ROWS_AT_MOST]:
        step = "" if report.step is None else str(report.step)
        made.add_row(
            str(report.rank), state(report.state), step, window(report), recorded(report), for_rich(report.reason)
        )
    if len(order) > ROWS_AT_MOST:
        made.add_row("…", Text(f"{len(order) - ROWS_AT_MOST} more", "dim"), "", "", "", "")
    return made


def window(report: Report) -> str:
    """Its steps: `12`, or `12 to 14`; empty while it has none."""
    if report.first_step is None:
        return ""
    last = report.last_step
    return str(report.first_step) if last in (None, report.first_step) else f"{report.first_step} to {last}"


def recorded(report: Report) -> str:
    """`2 sessions, 12.3 MiB`; empty while there is none."""
    from ..report.units import size

    if not report.recorded:
        return ""
    return f"{report.recorded} session{'' if report.recorded == 1 else 's'}, {size(report.bytes)}"


def line(report: Report) -> str:
    """A rank's state in one line: `rank 1: done: 2 sessions, 12.3 MiB`."""
    from ..report.escape import for_terminal

    steps = f"step{'s' if ' ' in window(report) else ''} {window(report)}" if window(report) else ""
    told = "; ".join(filter(None, (steps, recorded(report), for_terminal(report.reason))))
    return f"rank {report.rank}: {report.state}{': ' if told else ''}{told}"


def requests(found: Sequence[Progress]) -> Table:
    """One line a request."""
    from ..report.escape import for_rich

    made = table("request", "state", "what", "why")
    for one in found:
        request = one.asked.request
        made.add_row(request.id[:_ID_SHOWN], str(one), for_rich(asked(request)), for_rich(_why(one)))
    return made


def _why(progress: Progress) -> str:
    """The asker's words, and the first reason that any rank gives."""
    reasons = [f"rank {report.rank}: {report.reason}" for report in progress.reports if report.reason]
    return "; ".join(filter(None, (progress.asked.request.reason, *reasons[:1])))


def ranks(said: Sequence[Heard]) -> Table:
    """What the ranks are doing: those that do the same on one line."""
    from ..report.escape import for_rich

    made = table("rank", "doing", "step", "profiler")
    alike: dict[tuple[str, str, str], list[Heard]] = {}
    for one in said:
        key = (one.acknowledgement.role, "ended" if one.is_alive is False else one.standing.phase, _profiler(one))
        alike.setdefault(key, []).append(one)
    for (role, phase, profiler), members in sorted(alike.items(), key=lambda item: item[1][0].rank):
        who = f"{spans(one.rank for one in members)} {role}".strip()
        made.add_row(for_rich(who), state(phase), _steps(members), for_rich(profiler))
    return made


def _steps(said: Sequence[Heard]) -> str:
    steps = [one.standing.step for one in said if one.standing.step is not None]
    if not steps:
        return ""
    return str(min(steps)) if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"


def _profiler(one: Heard) -> str:
    if one.standing.backend is not None:
        return one.standing.backend
    return "none: " + "; ".join(f"{name}: {why}" for name, why in one.standing.why_no_backend.items())


def participants(found: Sequence[Participant]) -> list[str]:
    """Who would record, and why not: `rank 1 (actor, pid 42 on h): torch, in step 7`; those alike together."""
    alike: dict[tuple[str | None, str], list[Participant]] = {}
    for one in found:
        alike.setdefault((one.backend, one.hindrance), []).append(one)
    return [_who(members) + _how(members) for members in alike.values()]


def _who(members: Sequence[Participant]) -> str:
    if len(members) > 1 or members[0].pid is None:
        return f"rank{'s' if len(members) > 1 else ''} {spans(one.rank for one in members)}"
    one = members[0]
    return f"rank {one.rank} ({', '.join(filter(None, (one.role, f'pid {one.pid} on {one.host}')))})"


def _how(members: Sequence[Participant]) -> str:
    steps = sorted({one.step for one in members if one.step is not None})
    where = f", in step{'s' if len(steps) > 1 else ''} {spans(steps)}" if steps else ""
    by = f": {members[0].backend}{where}" if members[0].backend is not None else ""
    hindrance = members[0].hindrance
    return by + (f": BUT {hindrance}" if hindrance else "")


def profiles(found: Sequence[Session]) -> Table:
    """One line a profile."""
    from ..report.escape import for_rich

    made = table("profile", "preset", "state", "size", right=("size",))
    for one in found:
        told = (str(one.told.get(key) or "") for key in ("preset", "state"))
        preset, phase = (for_rich(text, ROWS_AT_MOST) for text in told)
        made.add_row(for_rich(one.folder), preset, phase, size_of(one))
    return made


def size_of(session: Session) -> str:
    """Of its raw data."""
    from ..report.units import size

    told = session.told.get("bytes")
    return size(told) if isinstance(told, int) and 0 <= told < 1 << 62 else ""
