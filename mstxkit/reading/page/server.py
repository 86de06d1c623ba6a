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
from typing import Callable, ContextManager

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


class PageServer(ThreadingHTTPServer):
    """Serves one run until it is shut down: from then on it `is_over`. `url`: where the page is.

    Args:
        title: HTML that names the run.
        folder: Its trace is written there; it is private.
        showing: Shows how far of so many rows the trace has come; what it gives is called with how many more are done.
    """

    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, run: Run, page: str, title: str, folder: Path, showing: Showing, port: int = 0) -> None:
        self.page, self.title, self.token = page.encode("utf-8", "backslashreplace"), title, secrets.token_urlsafe(18)
        self._run, self._showing, self._exporter = run, showing, load_exporter("perfetto")
        self.file = folder / f"trace{self._exporter.suffix}"
        self._making, self.is_over = threading.Lock(), threading.Event()
        super().__init__(("127.0.0.1", port), _PageHandler)
        self.hosts = {f"{name}:{self.server_address[1]}" for name in ("127.0.0.1", "localhost")}
        self.url = f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def trace(self) -> Path:
        """The trace: made when it is asked for first. Raises InterruptedError: nobody is served any more."""
        with self._making:
            if not self.file.exists():
                draft = self.file.with_suffix(".partial")
                with self._showing(self._run.files.rows_at_most() * self._exporter.readings) as advance:

                    def on_rows(rows: int) -> None:
                        if self.is_over.is_set():
                            raise InterruptedError("nobody is served any more")
                        advance(rows)

                    self._run.files.on_rows = on_rows
                    self._exporter.write_to(self._run, draft)
                draft.replace(self.file)
            return self.file

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
        is_there = is_known and slash and name in (PAGE, HAND_OVER, TRACE)
        if not is_there or self.headers.get("Host", "") not in self.server.hosts:
            self._begin(HTTPStatus.NOT_FOUND, _NOTHING)
        elif name == TRACE:
            self._send_trace()
        elif name == PAGE:
            self._send_page(self.server.page, {})
        else:
            own = resources.files(__package__)
            script, page = ((own / f"perfetto.{kind}").read_text("utf-8") for kind in ("js", "html"))
            content = Template(page).substitute(title=self.server.title, name=self.server.file.name, script=script)
            policy = (
                f"default-src 'none'; script-src {sign_script(script)}; style-src 'unsafe-inline'; connect-src 'self'"
            )
            self._send_page(content.encode(), {"Content-Security-Policy": policy})

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

    def _send_page(self, content: bytes, more: dict[str, str]) -> None:
        about = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(content))}
        self._begin(HTTPStatus.OK, {**about, **_HEADERS, **more})
        self.wfile.write(content)

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged: a path has the token."""
