"""`mstxkit compare A B`: two runs, or two parts of one: what became slower, by how much, and what else is different."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

import typer

from . import FOUND_WRONG, WRONG_USE, _show

_PERCENT = re.compile(r"\s*(\d{1,4}(?:\.\d{1,4})?)\s*%?\s*", re.ASCII)


def compare(
    before: Path = typer.Argument(..., metavar="A", help="The run to compare with.", show_default=False),
    after: Optional[Path] = typer.Argument(None, metavar="B", help="The run that may be slower.  [default: A]"),
    steps_before: Optional[str] = typer.Option(None, "--before", metavar="FROM:TO", help="These steps of A only."),
    steps_after: Optional[str] = typer.Option(None, "--after", metavar="FROM:TO", help="These steps of B only."),
    fail_over: Optional[str] = typer.Option(
        None, metavar="5%", help="End with 1 if a step or a stage is for sure slower, and by more than this."
    ),
    any_work: bool = typer.Option(False, "--any-work", help="With --fail-over: judge where the work differs, too."),
    everything: bool = typer.Option(False, "--all", help="Every rank, not only those that stand out."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show what is slower in one run than in another.

    Steps, stages and ranks have intervals. It says what changed first, and what else is different: work, ranks,
    versions, settings of mstxkit. Steps of one run are compared with --before and --after. With --fail-over it ends
    with 1, after it has shown all this; with 2 if the two cannot be compared.

    Example: mstxkit compare runs/exp7 runs/exp8 --fail-over 5%
    """
    from ..reading.comparison import comparing, text
    from ..reading.comparison.sides import side_of
    from ..reading.report.choice import read_choice
    from ..reading.run import open_run

    percent = _PERCENT.fullmatch("0" if fail_over is None else fail_over)
    if percent is None:
        raise typer.BadParameter(f"{fail_over!r}: a share in percent is needed, 5% say", param_hint="--fail-over")
    limit = None if fail_over is None else float(percent[1]) / 100
    wanted = read_choice(steps_before).steps, read_choice(steps_after).steps
    if after is None and None in wanted:
        raise typer.BadParameter("of one run two parts are compared: give --before and --after", param_hint="B")
    with _show.show_progress("Comparing"):
        first = open_run(before)
        second = first if after is None else open_run(after)
        comparison = comparing.compare_sides(side_of(first, wanted[0]), side_of(second, wanted[1]))
    if json:
        _show.as_json(comparing.as_json(comparison, limit))
    else:
        _show.open_console().print(text.render_comparison(comparison, everything))
    if limit is None:
        return
    if comparison.other_work and not any_work:
        _show.stop_command(
            "not judged: the two sides do not do the same work (tokens differ by more than 10 %); compare runs of the "
            "same data, or judge times for a token with --any-work", WRONG_USE,
        )  # fmt: skip
    over = comparison.over(limit)
    names = ", ".join(dict.fromkeys(row.stage or "a step" for row in over))
    if over:
        _show.stop_command(f"slower by more than {100 * limit:g} %: {names}", FOUND_WRONG)
    if not json:
        typer.echo(f"Nothing is slower by more than {100 * limit:g} %, as far as the intervals show.")
