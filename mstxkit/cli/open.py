"""`mstxkit open RUN`: the run's page and its trace in a browser, served on this machine alone."""

from __future__ import annotations

import signal
import tempfile
import webbrowser
from functools import partial
from pathlib import Path

import typer

from ..errors import MstxkitError
from ..store import documents
from ._progress import progress


def open(  # named as its verb
    run: Path = typer.Argument(..., help="The run's folder.", show_default=False),
    port: int = typer.Option(0, min=0, max=65_535, help="The port on 127.0.0.1; 0: any that is free."),
    browser: bool = typer.Option(True, help="Open it in the browser."),
) -> None:
    """Show a run's page, and hand its trace to Perfetto.

    Both are served on 127.0.0.1 until Ctrl-C, at an address that holds a secret. Perfetto itself is a web page
    (https://ui.perfetto.dev): the browser must reach it, and the trace goes to it inside of the browser. On another
    machine: `ssh -L PORT:127.0.0.1:PORT HOST`, with --port PORT --no-browser there.

    Example: mstxkit open runs/exp7
    """
    from ..reading.page import server, writing
    from ..reading.report import summary
    from ..reading.run import open_run

    with progress("Reading"):
        opened = open_run(run)
        document = summary.summarise(opened)
        page = writing.made(opened, document, run, to_perfetto=server.HAND_OVER)
    for number in (signal.SIGTERM, signal.SIGHUP):  # as the end of an ssh session: the trace goes with it
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="mstxkit-open-") as folder:
        try:
            showing = partial(progress, "Writing the trace")
            served = server.serving(opened, page, writing.title(document), Path(folder), showing)
            with server.PageServer(served, port) as serving:
                typer.echo(f"{document['headline']['verdict']}\n{serving.url}\nCtrl-C ends it.")
                if browser:
                    _show(serving.url, Path(folder))
                serving.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo()
        except OSError as exc:
            raise MstxkitError(f"127.0.0.1:{port} cannot be served: {exc.strerror or exc}") from exc


def _show(url: str, folder: Path) -> None:
    """Open the browser, where there is one; the address is printed anyway.

    Every user of this host sees what a program was started with: it is a file of this user's alone that leads there.
    """
    file = folder / "open.html"
    documents.write_file(file, f'<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">Open</a>'.encode())
    webbrowser.open(file.as_uri())
