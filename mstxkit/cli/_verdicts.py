"""Who made the others wait, in which stage, and why: the verdicts as `mstxkit top` has them in lines."""

from __future__ import annotations

import json as json_of
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from ..errors import MstxkitError, SettingError
from ..reading.report import no_verdict
from ..reading.report.account import Account
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.lost_time import of_verdict
from ..store.verdicts import Verdict
from . import FOUND_WRONG, WRONG_USE, _show
from ._progress import progress

if TYPE_CHECKING:
    from ..judging.sight import Sighting

_SCHEMA = 1


def follow(run: Path, run_id: str, json: bool, metrics: Optional[str]) -> None:
    """A line a verdict as they come, until somebody ends it; of a job that is over what was judged."""
    from ..judging import watching
    from ..judging.sight import Judges, Sight

    seen = None if json or metrics else Sight(run, run_id).look()
    if seen and (seen.by == Judges.OVER or (seen.state is not None and seen.state.hosts == seen.state.ended)):
        once(run, run_id, False)
        return
    _show.say("each verdict is shown as it comes; Ctrl-C ends this")
    outlets = None
    if metrics is not None:  # where figures go; where that is a page, it is said on standard error
        from ..store import metrics_setting
        from ..telemetry.outlets import Outlets

        try:
            outlets = Outlets(run, run_id, metrics_setting.checked(metrics), tells=_show.say)
        except SettingError as exc:
            exc.origin = "--metrics"
            _show.stop(str(exc), WRONG_USE)
    for verdict in watching.follow(run, run_id, outlets):
        print(_as_json(verdict) if json else _draw_line(verdict), flush=True)


def _as_json(verdict: Verdict) -> str:
    """One object on one line: a verdict's line in the run, and the number of its form."""
    return json_of.dumps({"schema": _SCHEMA, **json_of.loads(verdict.line())})


def once(run: Path, run_id: str, json: bool) -> None:
    """Judge what is there, show it, and end the command; with 1 if anything is the matter."""
    from ..judging import watching
    from ..judging.sight import Sight
    from ..reading import judged
    from ..reading.report import devices, headline, summary
    from ..reading.run import open_run

    with progress("Judging"):
        judged.await_last_word(open_run(run).roles)
        sighting = Sight(run, run_id).look() if json else None
        seen = watching.once(run, run_id)
        document = summary.summarise(open_run(run))
    if document["judged"]["why_not"] and seen.last_step is not None:  # what it recorded is not here
        holding = [verdict.plain for verdict in seen.verdicts if not verdict.withdrawn]
        account = Account(str(run), no_verdict.judged_live(seen.judged_steps, True), holding)
        document.update(headline.headline(account), verdicts=[verdict.plain for verdict in seen.verdicts])
    is_by_tables = document["judged"]["by"] == judged.TABLES
    if sighting is not None:
        whole = {"run": run_id, "path": str(run), **_seen_now(run_id, sighting), **seen._asdict()}
        whole.update({key: document[key] for key in ("headline", "matters", "by_devices")})
        counts = [role["judged_steps"] for role in document["judged"]["roles"]] or seen.judged_steps
        whole.update(has_summaries=bool(seen.hosts), by_tables=is_by_tables, judged_steps=counts)
        _show.as_json({**whole, "verdicts": document["verdicts"] + document["judged"]["withdrawn"]})
    else:
        by_devices = [for_rich(devices.tell_last(latest, document["path"])) for latest in document["by_devices"]]
        hosts = f"{seen.hosts} host{'' if seen.hosts == 1 else 's'}"
        until = "" if seen.last_step is None else f", up to step {seen.last_step}"
        by = "as judged while it ran" if seen.steps is None else f"{seen.steps} steps judged now"
        how = "judged from the run's own tables" if is_by_tables else f"{by}{until}, {hosts}"
        for part in (*headline.lines(document["matters"]), *by_devices, how):
            _show.console().print(part)
    if document["headline"]["blames"]:
        raise typer.Exit(FOUND_WRONG)


def _seen_now(run_id: str, sighting: Sighting) -> dict[str, Any]:
    state = sighting.state
    return {
        "judged_by": sighting.by, "age_s": sighting.age_s if state is not None else None,
        "job": None if state is None else json_of.loads(state.as_json(run_id)),
        "incident": None if sighting.incident is None else sighting.incident.page,
        "now": [{**where._asdict(), "age": where.age._asdict()} for where in sighting.where],
    }  # fmt: skip


def _draw_line(verdict: Verdict) -> str:
    """In the words of every headline."""
    matter = of_verdict(verdict.plain)
    step = "" if verdict.step is None else f"step {verdict.step}: "  # a hang before the first one
    if verdict.withdrawn:
        return for_terminal(f"{step}{matter.words}: withdrawn: {verdict.withdrawn}")
    what_next = f"next: {matter.next}" if matter.next else matter.advice
    return step + "; ".join(filter(None, (matter.words, matter.cost, matter.why, matter.profile, what_next)))


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
