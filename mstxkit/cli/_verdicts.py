"""Who made the others wait, in which stage, and why: the verdicts as `mstxkit top` has them in lines."""

from __future__ import annotations

import json as json_of
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from ..errors import MstxkitError, SettingError
from ..reading.report.escape import for_terminal
from ..reading.report.sentences import not_come
from ..reading.report.units import ranks_in_words
from ..store.verdicts import Verdict
from . import FOUND_WRONG, WRONG_USE, _show
from ._progress import progress

if TYPE_CHECKING:
    from ..judging.sight import Sighting
    from ..judging.watching import Outlook
    from ..telemetry.outlets import Outlets

_SCHEMA = 1
_NOTHING = (
    "this run has no summaries of its stages: nothing was in a stage of a step yet, or an older mstxkit has recorded "
    "it. `mstxkit report RUN` shows what there is"
)


def follow(run: Path, run_id: str, json: bool, metrics: Optional[str]) -> None:
    """A line a verdict as they come, until somebody ends it; of a job that is over what was judged."""
    from ..judging import watching

    if not (json or metrics) and _is_over(run, run_id):
        once(run, run_id, False)
        return
    _show.say("each verdict is shown as it comes; Ctrl-C ends this")
    for verdict in watching.follow(run, run_id, _outlets(run, run_id, metrics)):
        print(_as_json(verdict) if json else _line(verdict), flush=True)


def _as_json(verdict: Verdict) -> str:
    """One object on one line: a verdict's line in the run, and the number of its form."""
    return json_of.dumps({"schema": _SCHEMA, **json_of.loads(verdict.line())})


def _is_over(run: Path, run_id: str) -> bool:
    from ..judging.sight import Judges, Sight

    seen = Sight(run, run_id).look()
    return seen.by == Judges.OVER or (seen.state is not None and seen.state.hosts == seen.state.ended)


def _outlets(run: Path, run_id: str, metrics: Optional[str]) -> Outlets | None:
    """Where figures go; where that is a page, it is said on standard error."""
    if metrics is None:
        return None
    from ..store import metrics_setting
    from ..telemetry.outlets import Outlets

    try:
        return Outlets(run, run_id, metrics_setting.checked(metrics), tells=_show.say)
    except SettingError as exc:
        exc.origin = "--metrics"
        _show.stop(str(exc), WRONG_USE)


def once(run: Path, run_id: str, json: bool) -> None:
    """Judge what is there, show it, and end the command; with 1 if anybody is blamed."""
    from ..judging import watching
    from ..judging.sight import Sight
    from ..reading import judged
    from ..reading.report import device_words
    from ..reading.run import open_run

    with progress("Judging"):
        judged.await_last_word(open_run(run).roles)
        sighting = Sight(run, run_id).look() if json else None
        seen = watching.once(run, run_id)
        by_tables = None if any(verdict.is_blaming for verdict in seen.verdicts) else _from_tables(run, seen)
    seen = by_tables or seen
    devices = [latest._asdict() for latest in device_words.summarise(run, run_id)]
    if sighting is not None:
        whole = {"run": run_id, "path": str(run), **_seen_now(run_id, sighting), **_judged(seen)}
        _show.as_json({**whole, "by_tables": by_tables is not None, "by_devices": devices})
    else:
        for line in (*map(_line, seen.verdicts), *(for_terminal(device_words.line(row, str(run))) for row in devices)):
            print(line)
        print(_summary(run, seen, by_tables is not None))
    if any(verdict.is_blaming for verdict in seen.verdicts):
        raise typer.Exit(FOUND_WRONG)


def _seen_now(run_id: str, sighting: Sighting) -> dict[str, Any]:
    state = sighting.state
    return {
        "judged_by": sighting.by, "age_s": sighting.age_s if state is not None else None,
        "job": None if state is None else json_of.loads(state.as_json(run_id)),
        "incident": None if sighting.incident is None else sighting.incident.page,
        "now": [{**where._asdict(), "age": where.age._asdict()} for where in sighting.where],
    }  # fmt: skip


def _judged(seen: Outlook) -> dict[str, Any]:
    return {
        **seen._asdict(), "has_summaries": seen.has_summaries,
        "verdicts": [json_of.loads(verdict.line()) for verdict in seen.verdicts],
    }  # fmt: skip


def _from_tables(run: Path, seen: Outlook) -> Outlook | None:
    """What the run's own tables show where summaries blame nobody: they hold ranges too, and older runs have no others.

    None where they show no more, or cannot be read.
    """
    from ..reading import judged
    from ..reading.run import open_run

    try:
        judgement = judged.of_run(open_run(run).roles)
    except MstxkitError:
        return None
    is_more = judgement.by == judged.TABLES and (judgement.blaming or not seen.has_summaries)
    return seen._replace(
        verdicts=list(judgement.holding), steps=judgement.steps,
        judged_steps=tuple(role.judged_steps for role in judgement.roles),
    ) if is_more else None  # fmt: skip


def _summary(run: Path, seen: Outlook, is_by_tables: bool) -> str:
    if not seen.has_summaries and not is_by_tables:
        return _NOTHING.replace("RUN", for_terminal(str(run)))
    from ..reading.report import nobody

    blaming = sum(verdict.is_blaming for verdict in seen.verdicts)
    holding = "1 verdict holds" if blaming == 1 else f"{blaming} verdicts hold"
    who = holding if blaming else nobody.in_short(seen.judged_steps, seen.last_step is not None)
    hosts = "from the run's own tables" if is_by_tables else f"{seen.hosts} host{'' if seen.hosts == 1 else 's'}"
    judged = "as judged while it ran" if seen.steps is None else f"{seen.steps} steps judged now"
    until = "" if seen.last_step is None else f", up to step {seen.last_step}"
    return f"{who}; {judged}{until}, {hosts}"


def _line(verdict: Verdict) -> str:
    """Everything in it may have come from a file that anybody wrote."""
    who = "" if verdict.rank is None else f"rank {verdict.rank}"
    group = f"group of {ranks_in_words(verdict.group)}" if verdict.group and not who else ""
    since = "" if verdict.since_step is None else f"since step {verdict.since_step}"
    impact = f"costs {verdict.impact_ratio:.0%} of a step" if verdict.impact_ratio else ""
    sure = f"confidence {verdict.confidence:.2f}" if verdict.confidence else ""
    about = ", ".join(filter(None, (since, impact, sure)))
    step = "" if verdict.step is None else f"step {verdict.step}: "  # a hang before the first one
    head = step + " ".join(filter(None, (verdict.kind, verdict.role, who or group, verdict.stage or "")))
    if verdict.withdrawn:
        return for_terminal(f"{head}: withdrawn: {verdict.withdrawn}")
    profile = verdict.no_request and f"no profile: {verdict.no_request}"
    profile = f"asked for profile {verdict.request}{not_come(verdict.no_request)}" if verdict.request else profile
    clauses = (about, verdict.waits_for, profile, verdict.next and f"next: {verdict.next}")
    rest = "; ".join(filter(None, clauses))
    return for_terminal(f"{head}: {rest}")


def change(run: Path, run_id: str, texts: list[str], json: bool) -> None:
    """Change settings of who judges the job; ends with 1 where a host or the judge has not taken them."""
    from ..judging import watching

    try:
        values = watching.checked(texts)
    except MstxkitError as exc:
        _show.stop(str(exc), WRONG_USE)
    done = watching.change(run, run_id, values)
    judges = {True: "the judge judges by them", False: "the judge has not taken them yet", None: "nobody judges it now"}
    if json:
        _show.as_json({**done._asdict(), "settings": done.settings._asdict()})
    else:
        print(f"settings {done.settings.version}: {done.hosts} hosts have them; {judges[done.judge]}")
        for host in done.missing:
            print(f"not acknowledged by {for_terminal(host)}")
    if done.missing or done.judge is False:
        raise typer.Exit(FOUND_WRONG)
