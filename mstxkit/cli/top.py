"""`mstxkit top RUN`: a job at this moment, live in a terminal: step, stages, who is late, verdicts, losses."""

from __future__ import annotations

import json as json_of
import os
import select
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

import typer

from ..errors import MstxkitError, SettingError
from ..reading.report import no_verdict
from ..reading.report.account import Account
from ..reading.report.escape import for_rich, for_terminal
from ..reading.report.lost_time import of_verdict
from ..store import run_file
from ..store.verdicts import Verdict
from . import FOUND_WRONG, WRONG_USE, _show, find_run

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..judging.live_state import LiveState

_EVERY_S, _EVERY_AT_MOST_S = 1.0, 30.0
# A look is followed by a pause of so many times what it took of the CPU: 1.7 % of a core at most.
_PAUSES = 60
_ROWS_ONCE = 1000
_SCHEMA = 1  # of a verdict as JSON
_ONCE_HELP = "Judge what is there, say it in a line a verdict, and end; with 1 if anybody is blamed."
_FOLLOW_HELP = "A line a verdict, as they come; of a job that is over as --once."
_JSON_HELP = "As --once, as one JSON object; with --follow one a line. Times in seconds unless named."
_SET_HELP = "Change a setting of the judge while the job runs, slow_rank.effect=0.15 say, and end; may be repeated."
_METRICS_HELP = "With --follow: where figures go while the job is judged here, as in capture(metrics=…)."


def top(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    once: bool = typer.Option(False, "--once", help=_ONCE_HELP),
    follow: bool = typer.Option(False, "--follow", help=_FOLLOW_HELP),
    json: bool = typer.Option(False, "--json", help=_JSON_HELP),
    set: Optional[list[str]] = typer.Option(None, "--set", metavar="NAME=VALUE", help=_SET_HELP),
    metrics: Optional[str] = typer.Option(None, "--metrics", metavar="WHERE", help=_METRICS_HELP),
) -> None:
    """Show a job as it runs; q or Ctrl-C ends it.

    From its files alone, on any host that sees the run folder. Where nobody judges the job, this command does, in
    memory; with --once and --follow also for who looks later. In a pipe the picture is shown once.

    Example: mstxkit top runs/exp7 --once
    """
    if metrics and not follow:
        raise typer.BadParameter("figures go out while the job is judged: add --follow", param_hint="--metrics")
    folder, run_id = find_run(run)
    if set:
        _change_settings(folder, run_id, set, json)
    elif follow:
        _follow_verdicts(folder, run_id, json, metrics)
    elif once or json:
        _judge_once(folder, run_id, json)
    else:
        _picture_of(run, folder, run_id)


def _picture_of(run: Path, folder: Path, run_id: str) -> None:
    from ..judging.live_state import Judges, LiveReader
    from ..reading.processes import RUNNING
    from ..reading.run import open_run

    live_reader, console = LiveReader(folder, run_id), _show.open_console()

    def look() -> LiveState:
        """What is there now; nobody judges a job that is over and has handed nothing over: its run tells all."""
        seen = live_reader.look()
        if seen.by == Judges.NOBODY and (rows := open_run(folder).processes()).height and RUNNING not in rows["state"]:
            last_ns: Any = rows["last_seen_ns"].max()
            seen = seen._replace(by=Judges.OVER, age_s=time.time() - (last_ns or 0) / 1e9)
        return seen

    first = look()
    if not console.is_terminal or console.is_dumb_terminal:
        console.print(_draw_picture(console, first, run, _ROWS_ONCE))
        raise typer.Exit(FOUND_WRONG if _find_headline(first, folder)["headline"]["blames"] else 0)
    last = first if first.by == Judges.OVER else _draw_live(look, console, run, folder, run_id)
    if last is not None:
        console.print(_draw_picture(console, last, run, _ROWS_ONCE))
    elif run_file.id_of(folder) != run_id:
        _show.stop_command(f"{run} is gone: somebody has removed it, or another run lies there", FOUND_WRONG)


def _draw_live(
    look: Callable[[], LiveState], console: Console, run: Path, folder: Path, run_id: str
) -> LiveState | None:
    """The last look where the job has ended meanwhile; None where somebody has seen enough, or the run is gone."""
    from rich.live import Live

    from ..judging.live_state import Judges

    with _read_keys() as key, Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while run_file.id_of(folder) == run_id:
            before_s = time.process_time()
            live_state = look()
            if live_state.by == Judges.OVER:
                return live_state
            live.update(_draw_picture(console, live_state, run, console.height), refresh=True)
            pause_s = min(_EVERY_AT_MOST_S, max(_EVERY_S, _PAUSES * (time.process_time() - before_s)))
            if key(pause_s) in ("q", "Q"):
                break
    return None


def _draw_picture(console: Console, live_state: LiveState, run: Path, rows: int) -> RenderableType:
    from rich.text import Text

    from . import _top_picture

    name, height = run.resolve().name, rows - (rows != _ROWS_ONCE)
    paper = _top_picture.Paper(console.width, height, console.options.ascii_only, name, str(run))
    drawn = _top_picture.draw_lines(live_state, paper, _find_headline(live_state, run)["matters"])
    if rows != _ROWS_ONCE:
        drawn += [Text()] * (rows - 1 - len(drawn)) + [Text("q quits", "dim")]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(drawn)


def _find_headline(live_state: LiveState, run: Path) -> dict[str, Any]:
    """`headline` and `matters`: of a job that is over as the report has them."""
    from ..judging.live_state import Judges
    from ..reading.report import headline, summary
    from ..reading.run import open_run
    from . import _top_picture

    if live_state.by == Judges.OVER:
        document = summary.summarise_run(open_run(run))
        return {key: document[key] for key in ("headline", "matters")}
    return headline.make_headline(_top_picture.account_of(live_state, str(run)))


@contextmanager
def _read_keys() -> Iterator[Any]:
    """Gives what waits for a key: `key(seconds)` is the one that was struck, or "". The terminal is put back."""
    terminals = [sys.stdin.fileno()] if sys.stdin.isatty() else []

    def key(seconds: float) -> str:
        ready, _, _ = select.select(terminals, [], [], seconds)
        # A terminal that has gone gives nothing, at once, for ever.
        return os.read(ready[0], 64).decode("utf-8", "replace")[:1] or "q" if ready else ""

    if not terminals:
        yield key
        return
    (terminal,) = terminals
    before = termios.tcgetattr(terminal)
    ended = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        tty.setcbreak(terminal)
        mode = termios.tcgetattr(terminal)
        mode[6][termios.VSUSP] = b"\0"  # stopped by Ctrl-Z it would leave the terminal as it is
        termios.tcsetattr(terminal, termios.TCSANOW, mode)
        yield key
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, ended)


def _follow_verdicts(run: Path, run_id: str, json: bool, metrics: Optional[str]) -> None:
    """A line a verdict as they come, until somebody ends it; of a job that is over what was judged."""
    from ..judging import watching
    from ..judging.live_state import Judges, LiveReader

    seen = None if json or metrics else LiveReader(run, run_id).look()
    if seen and (seen.by == Judges.OVER or (seen.state is not None and seen.state.hosts == seen.state.ended)):
        _judge_once(run, run_id, False)
        return
    _show.say_line("each verdict is shown as it comes; Ctrl-C ends this")
    outlets = None
    if metrics is not None:  # where figures go; where that is a page, it is said on standard error
        from ..store import metrics_setting
        from ..telemetry.outlets import Outlets

        try:
            outlets = Outlets(run, run_id, metrics_setting.check_metrics(metrics), tells=_show.say_line)
        except SettingError as exc:
            exc.origin = "--metrics"
            _show.stop_command(str(exc), WRONG_USE)
    for verdict in watching.follow_verdicts(run, run_id, outlets):
        print(_write_line(verdict, json), flush=True)


def _judge_once(run: Path, run_id: str, json: bool) -> None:
    """Judge what is there, show it, and end the command; with 1 if anything is the matter."""
    from ..judging import watching
    from ..judging.live_state import LiveReader
    from ..reading import judged
    from ..reading.report import devices, headline, summary
    from ..reading.run import open_run

    with _show.show_progress("Judging"):
        judged.await_last_word(open_run(run).roles)
        live_state = LiveReader(run, run_id).look() if json else None
        seen = watching.judge_once(run, run_id)
        document = summary.summarise_run(open_run(run))
    if document["judged"]["why_not"] and seen.last_step is not None:  # what it recorded is not here
        holding = [verdict.plain for verdict in seen.verdicts if not verdict.withdrawn]
        account = Account(str(run), no_verdict.judged_live(seen.judged_steps, True), holding)
        document.update(headline.make_headline(account), verdicts=[verdict.plain for verdict in seen.verdicts])
    is_by_tables = document["judged"]["by"] == judged.TABLES
    if live_state is not None:
        whole = {"run": run_id, "path": str(run), **_seen_now(run_id, live_state), **seen._asdict()}
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
        for part in (*headline.render_headline(document["matters"]), *by_devices, how):
            _show.open_console().print(part)
    if document["headline"]["blames"]:
        raise typer.Exit(FOUND_WRONG)


def _seen_now(run_id: str, live_state: LiveState) -> dict[str, Any]:
    state = live_state.state
    return {
        "judged_by": live_state.by, "age_s": live_state.age_s if state is not None else None,
        "job": None if state is None else json_of.loads(state.as_json(run_id)),
        "incident": None if live_state.incident is None else live_state.incident.page,
        "now": [{**where._asdict(), "age": where.age._asdict()} for where in live_state.where],
    }  # fmt: skip


def _write_line(verdict: Verdict, json: bool) -> str:
    """In the words of every headline; or one object: a verdict's line in the run, and the number of its form."""
    if json:
        return json_of.dumps({"schema": _SCHEMA, **json_of.loads(verdict.line())})
    matter = of_verdict(verdict.plain)
    step = "" if verdict.step is None else f"step {verdict.step}: "  # a hang before the first one
    if verdict.withdrawn:
        return for_terminal(f"{step}{matter.words}: withdrawn: {verdict.withdrawn}")
    what_next = f"next: {matter.next}" if matter.next else matter.advice
    return step + "; ".join(filter(None, (matter.words, matter.cost, matter.why, matter.profile, what_next)))


def _change_settings(run: Path, run_id: str, texts: list[str], json: bool) -> None:
    """Change settings of who judges the job; ends with 1 where a host or the judge has not taken them."""
    from ..judging import watching

    try:
        values = watching.check_settings(texts)
    except MstxkitError as exc:
        _show.stop_command(str(exc), WRONG_USE)
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
