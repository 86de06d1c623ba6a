"""A part of a run, as options name it: `--steps 5:10 --ranks 0,3-5 --stages actor_update,ref* --since 30m`."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ReadError
from ..reading.report import choice

if TYPE_CHECKING:
    from ..reading.reach import Reach
    from ..reading.report.choice import Bounds
    from ..reading.run import Run

STEPS_HELP = "Steps A to B, both included; also A, A: and :B."
RANKS_HELP = "These ranks only."
STAGES_HELP = "These stages only; * stands for anything."
SINCE_HELP = "What goes on then or later: a time (2026-11-24T18:30; 18:30), or the last 30m, 2h, 45s of the run."
UNTIL_HELP = "What began before then; forms as of --since."
_SPAN = re.compile(r"(\d{1,6})\s*(s|m|h|d)", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def opened(
    run: Path, steps: str | None = None, ranks: str | None = None, stages: str | None = None, since: str | None = None,
    until: str | None = None,
) -> Run:  # fmt: skip
    """The run, of which a table has what the options name; all of it without options. Raises: ReadError where one is in
    no form that it may have, or nothing of the run answers to it.
    """
    from ..reading.run import open_run

    whole = open_run(run)
    wanted = choice.parsed(steps, ranks, stages)
    if wanted == choice.EVERYTHING and since is None and until is None:
        return whole
    processes = whole.processes()
    reach = whole.files.reach() if wanted.steps or wanted.stages else None
    choice.check(wanted, processes["rank"], reach and reach.first_step, reach and reach.last_step)
    there, last_ns = processes["rank"].drop_nulls().unique(), processes["last_seen_ns"].max()
    assert isinstance(last_ns, (int, type(None)))
    return open_run(
        run,
        steps=_steps(wanted.steps, reach),
        ranks=None if wanted.ranks is None else [r for r in there if any(s.first <= r <= s.last for s in wanted.ranks)],
        stages=None if wanted.stages is None or reach is None else choice.stages_of(wanted.stages, reach.stages),
        since=None if since is None else _moment("--since", since, last_ns),
        until=None if until is None else _moment("--until", until, last_ns),
    )


def check_found(count: int, run: Run, **typed: str | None) -> None:
    """Raises ReadError where options were given and left nothing: each has its place in the run, all of them none."""
    options = [f"--{name} {text}" for name, text in typed.items() if text is not None]
    if options and not count:
        processes = run.processes()
        first, last = _as_text(processes["start_ns"].min()), _as_text(processes["last_seen_ns"].max())
        unread = "; not all of it could be read (mstxkit report)" if run.damage else ""
        raise ReadError(f"nothing of the run is left by {' '.join(options)}; it lasted from {first} to {last}{unread}")


def _as_text(moment: object) -> str:
    """A moment in ns in local time, as options take it."""
    if not isinstance(moment, int):
        return "?"
    return f"{datetime.fromtimestamp(min(max(moment, 0), 1 << 62) / 1e9):%Y-%m-%dT%H:%M:%S}"


def _steps(wanted: Bounds | None, reach: Reach | None) -> range | None:
    if wanted is None or reach is None or reach.first_step is None or reach.last_step is None:
        return None
    return range(max(wanted.first, reach.first_step), min(wanted.last, reach.last_step) + 1)


def _moment(option: str, text: str, last_ns: int | None) -> int | datetime:
    if span := _SPAN.fullmatch(text.strip()):
        back = timedelta(**{_UNITS[span[2]]: int(span[1])})
        return (last_ns or 0) - round(back.total_seconds()) * 1_000_000_000
    try:
        if ":" in text.strip()[:3]:  # of a day: the last one of the run that has come so far
            last = datetime.fromtimestamp((last_ns or 0) / 1e9).astimezone()
            moment = datetime.combine(last, time.fromisoformat(text.strip())).astimezone()
            return moment if moment <= last else moment - timedelta(days=1)
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ReadError(
            f"{option} {text!r}: give a time (2026-11-24T18:30, or 18:30), or a span (30m, 2h) before the end"
        ) from None
