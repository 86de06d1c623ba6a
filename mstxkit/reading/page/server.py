"""`mstxkit report RUN --open`: the page and the trace on this machine alone, and the way into Perfetto.

Loopback, a port that nobody chose, a token in the path, GET alone, five paths and nothing else: no file is looked up by
what a request names. A page of somebody else's that guesses the port gets nothing (the token), and reaches nothing
through a name of its own for this address (`Host`).
"""

from __future__ import annotations

import hmac
import secrets
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from string import Template
from typing import Callable, ContextManager, NamedTuple

from ..exporters import load_exporter
from ..run import Run
from .document import sign_script

Showing = Callable[[float], ContextManager[Callable[[float], None]]]
PERFETTO = "https://ui.perfetto.dev"
PAGE, HAND_OVER, TRACE = "", "perfetto", "trace"
_CHUNK = 1 << 20
_HEADERS = {
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
}  # fmt: skip
_NOTHING = {"Content-Length": "0", "Connection": "close"}


class Served(NamedTuple):
    """What is served. `title`: HTML that names the run; `trace`: makes the trace, once it is asked for; where it lies.
    It raises InterruptedError once what it is handed is set. `trace_name`: of what is downloaded.
    """

    title: str
    page: bytes
    trace: Callable[[threading.Event], Path]
    trace_name: str


class PageServer(ThreadingHTTPServer):
    """Serves one run until it is shut down: from then on it `is_over`. `url`: where the page is."""

    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, served: Served, port: int = 0) -> None:
        self.served, self.token, self._making = served, secrets.token_urlsafe(18), threading.Lock()
        self.is_over = threading.Event()
        super().__init__(("127.0.0.1", port), _PageHandler)
        self.hosts = {f"{name}:{self.server_address[1]}" for name in ("127.0.0.1", "localhost")}
        self.url = f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def trace(self) -> Path:
        """The trace: made when it is asked for first."""
        with self._making:
            return self.served.trace(self.is_over)

    def server_close(self) -> None:
        """Serve no more. A trace that is being made is given up."""
        self.is_over.set()
        with self._making:
            super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle is no error of ours."""


class _PageHandler(BaseHTTPRequestHandler):
    server_version, sys_version, protocol_version = "mstxkit", "", "HTTP/1.1"
    timeout = 30
    server: PageServer

    def do_GET(self) -> None:
        """The page, the way to Perfetto, or the trace; nothing else is there."""
        _, _, rest = self.path.partition("/")
        token, slash, name = rest.partition("?")[0].partition("/")
        is_known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if self.headers.get("Host", "") not in self.server.hosts or not is_known or not slash:
            self._begin(HTTPStatus.NOT_FOUND, _NOTHING)
        elif name == PAGE:
            self._send(self.server.served.page, "text/html; charset=utf-8")
        elif name == HAND_OVER:
            own, served = resources.files(__package__), self.server.served
            script, page = ((own / f"perfetto.{kind}").read_text("utf-8") for kind in ("js", "html"))
            content = Template(page).substitute(title=served.title, name=served.trace_name, script=script)
            policy = (
                f"default-src 'none'; script-src {sign_script(script)}; style-src 'unsafe-inline'; connect-src 'self'"
            )
            self._send(content.encode(), "text/html; charset=utf-8", {"Content-Security-Policy": policy})
        elif name == TRACE:
            self._send_trace()
        else:
            self._begin(HTTPStatus.NOT_FOUND, _NOTHING)

    def _send_trace(self) -> None:
        try:
            with open(self.server.trace(), "rb") as file:
                length = file.seek(0, 2)
                file.seek(0)
                about = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
                self._begin(HTTPStatus.OK, {**about, **_HEADERS})
                shutil.copyfileobj(file, self.wfile, _CHUNK)
        except OSError:
            self._begin(HTTPStatus.INTERNAL_SERVER_ERROR, _NOTHING)

    def _send(self, content: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        about = {"Content-Type": kind, "Content-Length": str(len(content))}
        self._begin(HTTPStatus.OK, {**about, **_HEADERS, **(more or {})})
        self.wfile.write(content)

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged: a path has the token."""


def prepare_files(run: Run, page: str, title: str, folder: Path, showing: Showing) -> Served:
    """What is to be served of a run; its trace is written into `folder`, which is private.
    `showing`: shows how far of so many rows the trace has come; what it gives is called with how many more are done.
    """
    exporter = load_exporter("perfetto")
    file = folder / f"trace{exporter.suffix}"

    def trace(is_over: threading.Event) -> Path:
        if not file.exists():
            draft = file.with_suffix(".partial")
            with showing(run.files.rows_at_most() * exporter.readings) as advance:

                def on_rows(rows: int) -> None:
                    if is_over.is_set():
                        raise InterruptedError("nobody is served any more")
                    advance(rows)

                run.files.on_rows = on_rows
                exporter.write_to(run, draft)
            draft.replace(file)
        return file

    return Served(title, page.encode("utf-8", "backslashreplace"), trace, file.name)
