"""Spans of stages, verdicts and escalations to an OTLP endpoint over HTTP, from who judges, in a thread of its own.

What waits is bounded; beyond that the oldest are dropped, and counted. An endpoint that never answers holds up nothing
but that thread. Headers for it (a key, say) come from OTEL_EXPORTER_OTLP_HEADERS, never from a file or command line.

Source: OTLP 1.x over HTTP: POST of an `ExportTraceServiceRequest` to `/v1/traces`; 429 and 5xx may be tried again.
"""

from __future__ import annotations

import os
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from http.client import HTTPException
from typing import Any, Iterable, Mapping

from ..reading import otlp_spans
from ..reading.otlp_spans import JobSpan, Value
from ..store.metrics_setting import KEYS

WAITING_AT_MOST, AT_ONCE = 4_096, 512
_EVERY_S, _ANSWERS_WITHIN_S, _CLOSES_WITHIN_S = 1.0, 5.0, 2.0
_PAUSE_AT_MOST_S = 30.0
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
# Source: RFC 9110, 5.6.2, `token`.
_NAME = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would be a GET, without the spans, and take the key along to whatever host was named."""

    def redirect_request(self, *_: Any) -> None:
        """None: it is an answer like any other error."""


_opener = urllib.request.build_opener(_NoRedirects)


class OtlpSender:
    """Sends what it is given to a URL of http or https, with the attributes of the job (`resource`).

    `sent` and `dropped` count spans; `problem` says why the last try failed, "" where it did not.
    Threads/fork: `put` from one thread, beside its own.
    """

    def __init__(self, url: str, resource: Mapping[str, Value | None]) -> None:
        self._url, self._resource = url, resource
        self._waiting: deque[JobSpan] = deque()
        self._changing, self._wakes = threading.Lock(), threading.Event()
        self._is_closing = False
        self.sent, self.dropped, self.problem = 0, 0, ""
        self._thread = threading.Thread(target=self._send_always, name="mstxkit-otlp", daemon=True)
        self._thread.start()

    def put(self, spans: Iterable[JobSpan]) -> None:
        """Send these soon. Never waits, never raises."""
        with self._changing:
            self._waiting.extend(spans)
            while len(self._waiting) > WAITING_AT_MOST:
                self._waiting.popleft()
                self.dropped += 1

    def close(self) -> None:
        """Send what is left, if that is a matter of two seconds."""
        self._is_closing = True
        self._wakes.set()
        self._thread.join(_CLOSES_WITHIN_S)

    def _send_always(self) -> None:
        pause_s, is_last = _EVERY_S, False
        while not is_last:
            self._wakes.wait(pause_s)
            is_last = self._is_closing
            pause_s = _EVERY_S if self._send_all() else min(2 * pause_s, _PAUSE_AT_MOST_S)

    def _send_all(self) -> bool:
        """False: the endpoint does not take them now."""
        while True:
            with self._changing:
                spans = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            if not spans:
                return True
            if self._post_spans(spans):
                with self._changing:
                    self._waiting.extendleft(reversed(spans))
                return False

    def _post_spans(self, spans: list[JobSpan]) -> bool:
        """Is it to be tried again? What will never be taken is dropped."""
        try:
            content = otlp_spans.as_protobuf(spans, self._resource)
            headers = {**_read_headers(), "Content-Type": "application/x-protobuf", "User-Agent": "mstxkit"}
            request = urllib.request.Request(self._url, content, headers, method="POST")  # of http or https
            with _opener.open(request, timeout=_ANSWERS_WITHIN_S) as answer:
                answer.read(1 << 16)
            self.sent, self.problem = self.sent + len(spans), ""
            return False
        except urllib.error.HTTPError as exc:
            exc.close()
            self.problem = f"it answers {exc.code}"
            is_again = exc.code in _TRY_AGAIN
        except (OSError, ValueError) as exc:
            self.problem = str(getattr(exc, "reason", None) or exc)[:100]
            is_again = True
        except HTTPException as exc:  # as a collector's port of gRPC gives, 4317
            name = type(exc).__name__
            self.problem, is_again = f"its answer is no HTTP ({name}): has it OTLP over HTTP, as on 4318?", True
        except ImportError:
            self.problem, is_again = "opentelemetry-proto is not installed here: pip install 'mstxkit[metrics]'", False
        self.dropped += 0 if is_again else len(spans)
        return is_again


def _read_headers() -> dict[str, str]:
    """Source: the specification of OTEL_EXPORTER_OTLP_HEADERS: `key=value,key=value`, percent-encoded. Raises:
    ValueError where it is none; http.client's own words would have the key in them, for all to see.
    """
    pairs = (part.split("=", 1) for part in os.environ.get(KEYS, "").split(",") if "=" in part)
    headers = {key.strip(): urllib.parse.unquote(value).strip() for key, value in pairs}
    if not all(_NAME.fullmatch(name) and value.isprintable() for name, value in headers.items()):
        raise ValueError(f"{KEYS} is no list of headers: key=value,key=value is needed, percent-encoded")
    return headers
