"""`mstxkit top RUN`: a job at this moment, live in a terminal: step, stages, who is late, verdicts, losses."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

import typer

from ..store import run_file
from . import FOUND_WRONG, _run_folder, _show, _verdicts

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..judging.sight import Sighting

_EVERY_S, _EVERY_AT_MOST_S = 1.0, 30.0
# A look is followed by a pause of so many times what it took of the CPU: 1.7 % of a core at most.
_PAUSES = 60
_ROWS_ONCE = 1000
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
    folder, run_id = _run_folder.found(run)
    if set:
        _verdicts.change(folder, run_id, set, json)
    elif follow:
        _verdicts.follow(folder, run_id, json, metrics)
    elif once or json:
        _verdicts.once(folder, run_id, json)
    else:
        _picture_of(run, folder, run_id)


def _picture_of(run: Path, folder: Path, run_id: str) -> None:
    from ..judging.sight import Judges, Sight
    from ..reading.processes import RUNNING
    from ..reading.run import open_run

    sight, console = Sight(folder, run_id), _show.console()

    def look() -> Sighting:
        """What is there now; nobody judges a job that is over and has handed nothing over: its run tells all."""
        seen = sight.look()
        if seen.by == Judges.NOBODY and (rows := open_run(folder).processes()).height and RUNNING not in rows["state"]:
            last_ns: Any = rows["last_seen_ns"].max()
            seen = seen._replace(by=Judges.OVER, age_s=time.time() - (last_ns or 0) / 1e9)
        return seen

    if not console.is_terminal or console.is_dumb_terminal:
        sighting = look()
        console.print(_picture(console, sighting, run, _ROWS_ONCE))
        raise typer.Exit(FOUND_WRONG if _find_headline(sighting, folder)["headline"]["blames"] else 0)

    def is_there() -> bool:
        return run_file.id_of(folder) == run_id

    last = _draw_live(look, console, run, is_there)
    if last is None and not is_there():
        _show.stop(f"{run} is gone: somebody has removed it, or another run lies there", FOUND_WRONG)
    if last is not None:
        console.print(_picture(console, last, run, _ROWS_ONCE))


def _draw_live(look: Any, console: Console, run: Path, is_there: Callable[[], bool]) -> Sighting | None:
    """The last sighting where the job has ended meanwhile, or before; None where somebody has seen enough, or the run
    is gone.
    """
    from rich.live import Live

    from ..judging.sight import Judges

    first = look()
    if first.by == Judges.OVER:
        return first  # type: ignore[no-any-return]
    with _read_keys() as key, Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while is_there():
            before_s = time.process_time()
            sighting = look()
            if sighting.by == Judges.OVER:
                return sighting  # type: ignore[no-any-return]
            live.update(_picture(console, sighting, run, console.height), refresh=True)
            pause_s = min(_EVERY_AT_MOST_S, max(_EVERY_S, _PAUSES * (time.process_time() - before_s)))
            if key(pause_s) in ("q", "Q"):
                break
    return None


def _picture(console: Console, sighting: Sighting, run: Path, rows: int) -> RenderableType:
    from rich.text import Text

    from . import _top_picture

    name, height = run.resolve().name, rows - (rows != _ROWS_ONCE)
    paper = _top_picture.Paper(console.width, height, console.options.ascii_only, name, str(run))
    drawn = _top_picture.lines(sighting, paper, _find_headline(sighting, run)["matters"])
    if rows != _ROWS_ONCE:
        drawn += [Text()] * (rows - 1 - len(drawn)) + [Text("q quits", "dim")]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(drawn)


def _find_headline(sighting: Sighting, run: Path) -> dict[str, Any]:
    """`headline` and `matters`: of a job that is over as the report has them."""
    from ..judging.sight import Judges
    from ..reading.report import headline, summary
    from ..reading.run import open_run
    from . import _top_picture

    if sighting.by == Judges.OVER:
        document = summary.summarise(open_run(run))
        return {key: document[key] for key in ("headline", "matters")}
    return headline.headline(_top_picture.account_of(sighting, str(run)))


@contextmanager
def _read_keys() -> Iterator[Any]:
    """Gives what waits for a key: `key(seconds)` is the one that was struck, or "". The terminal is put back."""
    if not sys.stdin.isatty():
        yield partial(_read_key, [])
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    ended = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        tty.setcbreak(terminal)
        mode = termios.tcgetattr(terminal)
        mode[6][termios.VSUSP] = b"\0"  # stopped by Ctrl-Z it would leave the terminal as it is
        termios.tcsetattr(terminal, termios.TCSANOW, mode)
        yield partial(_read_key, [terminal])
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, ended)


def _read_key(terminals: list[int], seconds: float) -> str:
    ready, _, _ = select.select(terminals, [], [], seconds)
    # A terminal that has gone gives nothing, at once, for ever.
    return os.read(ready[0], 64).decode("utf-8", "replace")[:1] or "q" if ready else ""
