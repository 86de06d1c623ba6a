"""What `mstxkit report --open` does: the run's page and its trace in a browser, served on this machine alone."""

from __future__ import annotations

import signal
import tempfile
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import MstxkitError
from ..store import documents
from ._progress import progress

if TYPE_CHECKING:
    from ..reading.report.choice import ReportChoice
    from ..reading.run import Run


def serve(run: Path, opened: Run, document: dict[str, Any], chosen: ReportChoice, port: int, has_browser: bool) -> None:
    """Serve both on 127.0.0.1 until Ctrl-C, at an address that holds a secret, and open it where there is a browser."""
    from ..reading.page import document as pages
    from ..reading.page import server, writing

    page = writing.made(opened, document, run, chosen, to_perfetto=server.HAND_OVER)
    for number in (signal.SIGTERM, signal.SIGHUP):  # as the end of an ssh session: the trace goes with it
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="mstxkit-page-") as folder:
        try:
            showing = partial(progress, "Writing the trace")
            served = server.serving(opened, page, pages.title(document), Path(folder), showing)
            with server.PageServer(served, port) as serving:
                typer.echo(f"{document['headline']['verdict']}\n{serving.url}\nCtrl-C ends it.")
                if has_browser:
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
