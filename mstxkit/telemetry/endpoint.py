"""`http://ADDRESS/metrics`: a page for Prometheus to scrape, on loopback; beyond that only with a token.

Nobody who connects can hold anything up: few connections at a time, each of a few seconds, in threads of their own.
"""

from __future__ import annotations

import errno
import hmac
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

from ..store.metrics_setting import Address

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
CONNECTIONS_AT_MOST, CONNECTION_S = 8, 5.0
_CUT_OFF_EVERY_S = 0.5
# How many ports after a taken one are tried before any that is free is taken.
_MORE_PORTS = 16


class Endpoint(ThreadingHTTPServer):
    """A page at an address, served until `close`. Raises: OSError where it cannot be served there.

    Bounded: threads are daemons, and a connection that lasts too long is shut down whatever it does.
    """

    daemon_threads, block_on_close = True, False

    def __init__(self, address: Address, page: Callable[[], bytes], token: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.page, self.token = page, token
        self._open: dict[Any, float] = {}
        self._is_over = False
        self._changing = threading.Lock()
        super().__init__((address.host, address.port), _PageRequest)
        self.address = address._replace(port=self.server_port)
        self._thread = threading.Thread(target=self._serve, name="mstxkit-metrics", daemon=True)
        self._thread.start()

    def server_bind(self) -> None:
        """As http.server's, which also asks a name server for this host's name."""
        # Else a port that was scraped a minute ago counts as taken. Where somebody listens, Linux refuses it anyhow.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Are there few enough?"""
        with self._changing:
            if len(self._open) >= CONNECTIONS_AT_MOST:
                return False
            self._open[request] = time.monotonic() + CONNECTION_S
        return True

    def shutdown_request(self, request: Any) -> None:
        """It counts no more."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def _serve(self) -> None:
        """Where nobody is connected it sleeps until somebody is."""
        while not self._is_over:
            self.timeout = _CUT_OFF_EVERY_S if self._open else None
            self.handle_request()
            now_s = time.monotonic()
            with self._changing:
                late = [request for request, until_s in self._open.items() if now_s > until_s]
            for request in late:  # who has had its time
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Serve no more; waits for nobody who is being served."""
        self._is_over = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits for somebody to connect
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: who has hung up."""


class _PageRequest(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version, timeout = "HTTP/1.0", CONNECTION_S
    server_version, sys_version = "mstxkit", ""

    def do_GET(self) -> None:
        status, page = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT)
        self.send_header("Content-Length", str(len(page)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(page)

    do_HEAD = do_GET

    def _answer(self) -> tuple[int, bytes]:
        scheme, _, shown = self.headers.get("Authorization", "").partition(" ")
        same = hmac.compare_digest(shown.strip().encode("utf-8", "replace"), self.server.token.encode())
        if self.server.token and not (scheme.lower() == "bearer" and same):
            return 401, b"a bearer token is needed: see metrics/token of the run\n"
        # A page in a browser may have a name of its own lead to loopback, 127.evil.example say: it still says that.
        host = self.headers.get("Host", "localhost").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if self.server.address.is_loopback and not Address(name.strip("[]"), 0).is_loopback:
            return 403, b"this is served on loopback only\n"
        if self.path.partition("?")[0] != "/metrics":
            return 404, b"see /metrics\n"
        return 200, self.server.page()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: who scrapes is nobody's news, and headers are nobody's business."""


def serve_page(asked: Address, page: Callable[[], bytes], token: str) -> Endpoint:
    """Serve a page there, or, where the port is taken, at one of the next, or at any. OSError: it cannot be served.

    Args:
        page: Gives the page; called in the thread of a connection.
        token: That must be shown; "": none.
    """
    ports = range(asked.port, min(asked.port + _MORE_PORTS, 1 << 16)) if asked.port else ()
    for port in ports:
        try:
            return Endpoint(asked._replace(port=port), page, token)
        except PermissionError:
            break
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
    return Endpoint(asked._replace(port=0), page, token)
