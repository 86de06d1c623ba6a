"""`mstxkit report RUN`: every stage of every rank, what killed processes were inside of, what was lost."""

from __future__ import annotations

import signal
import tempfile
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import typer

from ..errors import MstxkitError
from ..reading.report.escape import for_terminal
from ..store import documents
from . import FOUND_WRONG, _output, _show

if TYPE_CHECKING:
    from ..reading.report.choice import ReportChoice
    from ..reading.run import Run

_OPEN_HELP = "Serve that page and the trace on 127.0.0.1 until Ctrl-C, and open it in the browser."
_RANGES_HELP = "So many ranges of each stage, or these only; * stands for anything."
_FLOPS_HELP = "Operations that a token takes; with --peak-flops it gives the MFU."


def report(
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    html: Optional[Path] = typer.Option(None, "--html", metavar="FILE", help="Write it as one page, for a browser."),
    open: bool = typer.Option(False, "--open", help=_OPEN_HELP),
    port: int = typer.Option(0, min=0, max=65_535, help="With --open: 0 is any port that is free.", hidden=True),
    no_browser: bool = typer.Option(False, "--no-browser", help="With --open: say the address only.", hidden=True),
    steps: Optional[str] = typer.Option(None, metavar="A:B", help="Steps A to B, both included; also A, A: and :B."),
    ranks: Optional[str] = typer.Option(None, metavar="0,3-5", help="These ranks only."),
    stages: Optional[str] = typer.Option(None, metavar="NAME,…", help="These stages only; * stands for anything."),
    ranges: Optional[str] = typer.Option(None, metavar="N|NAME,…", help=_RANGES_HELP, hidden=True),
    trainers: Optional[int] = typer.Option(None, min=1, help="What if an async job had so many trainers?", hidden=True),
    rollouts: Optional[int] = typer.Option(None, min=1, help="What if it had so many rollouts?", hidden=True),
    flops_per_token: Optional[str] = typer.Option(None, metavar="N|STAGE=N,…", help=_FLOPS_HELP, hidden=True),
    peak_flops: Optional[str] = typer.Option(
        None, metavar="N|STAGE=N,…", help="Operations a second of one rank’s devices: 3.5e14.", hidden=True
    ),
    everything: bool = typer.Option(False, "--all", help="Every rank and every range, not only the slowest."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object; times in ns."),
) -> None:
    """Show how long steps, stages and the ranges inside take, by rank.

    It also shows what recording cost, killed processes, losses and damage. Ends with 1 for killed processes, those that
    an exception ended, hangs, hosts that are gone, dropped records, faults in mstxkit and damage, with 2 where nothing
    is of what was asked for. Each time has its unit.

    A page that is opened hands the trace to Perfetto, a web page (https://ui.perfetto.dev) that the browser must reach;
    the trace goes to it inside of the browser. From another machine: `ssh -L PORT:127.0.0.1:PORT HOST`, with --open
    --port PORT --no-browser there.

    Example: mstxkit report runs/exp7 --stages actor_update --ranks 0-7
    """
    from ..reading.report import choice, summary, text
    from ..reading.run import open_run

    chosen = choice.read_choice(steps, ranks, stages, ranges)
    supposed = choice.read_supposed(trainers, rollouts, flops_per_token, peak_flops)
    if html is not None:
        _output.check_file(html)
    with _show.show_progress("Reading"):
        opened = open_run(run)
        document = summary.summarise_run(opened, chosen, supposed)
    if html is not None:
        from ..reading.page import writing

        with _show.show_progress("Writing the page"):
            writing.write_page(opened, document, html, chosen)
    if open:
        serve_page(run, opened, document, chosen, port, not no_browser)
    elif json:
        _show.as_json(document)
    elif html is not None:
        typer.echo(f"{for_terminal(str(html))}\n{document['headline']['verdict']}")
    else:
        _show.open_console().print(text.render_report(document, everything, chosen.top))
    raise typer.Exit(FOUND_WRONG if summary.is_something_wrong(document) else 0)


def serve_page(
    run: Path, opened: Run, document: dict[str, Any], chosen: ReportChoice, port: int, has_browser: bool
) -> None:
    """Serve both on 127.0.0.1 until Ctrl-C, at an address that holds a secret, and open it where there is a browser."""
    from ..reading.page import document as pages
    from ..reading.page import server, writing

    page = writing.make_page(opened, document, run, chosen, to_perfetto=server.HAND_OVER)
    for number in (signal.SIGTERM, signal.SIGHUP):  # as the end of an ssh session: the trace goes with it
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="mstxkit-page-") as folder:
        try:
            showing = partial(_show.show_progress, "Writing the trace")
            title = pages.write_title(document)
            with server.PageServer(opened, page, title, Path(folder), showing, port) as serving:
                typer.echo(f"{document['headline']['verdict']}\n{serving.url}\nCtrl-C ends it.")
                if has_browser:  # where there is none the address is printed anyway
                    # Every user of this host sees what a program was started with: a file of this user's leads there.
                    file, url = Path(folder) / "open.html", serving.url
                    link = f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open</a>'
                    documents.write_file(file, link.encode())
                    webbrowser.open(file.as_uri())
                serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo()
        except OSError as exc:
            raise MstxkitError(f"127.0.0.1:{port} cannot be served: {exc.strerror or exc}") from exc
