"""Spans by OTLP to a real little collector, which reads them by opentelemetry-proto; and to one that never answers."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Iterator

import pytest
from builders.escalated_run import left, run_of, say
from builders.run_files import RUN_ID
from builders.shown_job import HOSTILE, STAGES, S, ShownJob, role, verdict
from builders.waiting import until

trace_service_pb2 = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

from mstxkit.judging import request_news  # noqa: E402
from mstxkit.judging.run_judge import RunJudge  # noqa: E402
from mstxkit.reading import otlp_spans  # noqa: E402
from mstxkit.store.job_file import JobState  # noqa: E402
from mstxkit.store.metrics_setting import check_metrics  # noqa: E402
from mstxkit.store.report import (  # noqa: E402
    DONE,
    EscalationNews,
    Report,
)
from mstxkit.telemetry import otlp  # noqa: E402
from mstxkit.telemetry.otlp import WAITING_AT_MOST, OtlpSender  # noqa: E402
from mstxkit.telemetry.outlets import Outlets  # noqa: E402

RESOURCE = otlp_spans.resource_of("exp7", "0" * 32)


class Collector:
    """Takes what is posted; `answers` are its next status codes, then 200."""

    def __init__(self) -> None:
        collector = self
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[int] = []
        self.gets: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.answers.pop(0) if collector.answers else 200
                if status == 200:
                    collector.headers.append({"path": self.path, **dict(self.headers.items())})
                    collector.requests.append(trace_service_pb2.ExportTraceServiceRequest.FromString(content))
                self.send_response(status)
                self.send_header("Location", f"{collector.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                collector.gets.append(self.path)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def spans(self) -> list[Any]:
        resources = [resource for request in self.requests for resource in request.resource_spans]
        return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def attributes(of: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in of.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_EVERY_S", 0.02)
    monkeypatch.setattr(otlp, "_ANSWERS_WITHIN_S", 0.3)
    monkeypatch.setattr(otlp, "_CLOSES_WITHIN_S", 0.5)


def test_stages_verdicts_and_escalations_come_as_spans(collector: Collector, tmp_path: Any, hurried: None) -> None:
    job = ShownJob(tmp_path)
    outlets = Outlets(job.run, job.run_id, check_metrics(f"otlp:{collector.url}"))
    outlets.judged([role()], [verdict(request="r-1")])
    outlets.show(JobState((role(),)), [])
    outlets.close()
    by_name = {span.name: span for span in collector.spans}
    (resource,) = {str(request.resource_spans[0].resource) for request in collector.requests}
    update = by_name["actor_update"]

    assert set(by_name) == {"step", *STAGES, "verdict compute", "escalation"}
    assert "mstxkit.run_id" in resource
    assert update.parent_span_id == by_name["step"].span_id
    assert update.trace_id == by_name["step"].trace_id
    assert update.end_time_unix_nano - update.start_time_unix_nano == 2 * S
    assert attributes(update)["mstxkit.time_s.max"] == 2.0
    assert attributes(update)["mstxkit.slowest_rank"] == 3
    assert (attributes(update)["state_name"], attributes(update)["state_lane_id"]) == ("actor_update", "actor")
    assert attributes(by_name["verdict compute"])["mstxkit.rank"] == 3
    assert attributes(by_name["escalation"])["mstxkit.request"] == "r-1"
    assert collector.headers[0]["path"] == "/v1/traces"


def test_what_becomes_of_a_request_is_a_span_since_it_was_asked_for_below_the_verdict(
    collector: Collector, tmp_path: Any, hurried: None
) -> None:
    job, asks = ShownJob(tmp_path), verdict(request="r-1")
    outlets = Outlets(job.run, job.run_id, check_metrics(f"otlp:{collector.url}"))
    news = EscalationNews("r-1", "armed", 9 * S, 5 * S, "armed", stages=("reward",), ranks=(3, 0), verdict=asks.id)
    outlets.judged([], [asks])
    outlets.escalated([news, news._replace(state="failed", time_ns=11 * S, reason=HOSTILE)])
    outlets.close()
    by_name = {span.name: span for span in collector.spans}
    armed, failed = by_name["escalation armed"], by_name["escalation failed"]

    assert (armed.end_time_unix_nano - armed.start_time_unix_nano) == 4 * S
    assert armed.parent_span_id == by_name["escalation"].span_id
    assert armed.trace_id == by_name["verdict compute"].trace_id
    assert attributes(armed)["mstxkit.ranks"] == "0,3"
    assert attributes(armed)["mstxkit.request"] == attributes(failed)["mstxkit.request"] == "r-1"
    assert "mstxkit.reason" in attributes(failed)
    assert armed.span_id != failed.span_id


def test_who_judges_sends_what_becomes_of_requests_as_it_happens(
    collector: Collector, tmp_path: Any, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_news, "_LOOKS_EVERY_S", 0.0)
    run = run_of(tmp_path / "run")
    run_judge = RunJudge(
        run, RUN_ID, "controller", outlets=Outlets(run, RUN_ID, check_metrics(f"otlp:{collector.url}"))
    )
    request = left(run)
    run_judge.look()
    say(run, 1, Report(request.id, 1, DONE))
    run_judge.look()
    run_judge.close()

    assert [span.name for span in collector.spans] == ["escalation queued", "escalation done"]


def test_one_that_never_answers_holds_up_nobody_and_what_is_too_much_is_counted(hurried: None) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        sender = OtlpSender(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces", RESOURCE)
        spans = list(otlp_spans.of_role("r", role()))
        for _ in range(10_000 // len(spans)):
            sender.put(spans)
        until(lambda: sender.problem != "")
        sender.close()

    assert sender.sent == 0
    assert sender.dropped >= 10_000 - WAITING_AT_MOST - otlp.AT_ONCE - len(spans)
    assert len(sender._waiting) <= WAITING_AT_MOST


def test_a_port_that_speaks_no_http_is_told_and_its_spans_are_kept_for_when_it_does(hurried: None) -> None:
    """As a collector's port of gRPC, 4317: it answers with frames of HTTP/2."""
    with socket.socket() as grpc:
        grpc.bind(("127.0.0.1", 0))
        grpc.listen(5)
        threading.Thread(target=_answer_in_frames, args=(grpc,), daemon=True).start()
        sender = OtlpSender(f"http://127.0.0.1:{grpc.getsockname()[1]}/v1/traces", RESOURCE)
        sender.put(otlp_spans.of_role("r", role()))
        until(lambda: sender.problem.startswith("its answer is no HTTP"))
        until(lambda: len(sender._waiting) == 5)
        is_at_work = sender._thread.is_alive()
        sender.close()
        grpc.shutdown(socket.SHUT_RDWR)

    assert is_at_work
    assert (sender.sent, sender.dropped) == (0, 0)


def _answer_in_frames(grpc: socket.socket) -> None:
    while True:
        try:
            connection, _ = grpc.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"\0\0\x12\4\0\0\0\0\0" + b"\0\0\0\3\0\0" * 3)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass


def test_what_was_not_taken_is_sent_again_once_it_can_be_and_once_only(collector: Collector, hurried: None) -> None:
    collector.answers = [503, 429]
    sender = OtlpSender(f"{collector.url}/v1/traces", RESOURCE)
    sender.put(otlp_spans.of_role("r", role()))
    until(lambda: sender.sent > 0)
    sender.close()

    assert (sender.sent, sender.dropped, sender.problem) == (5, 0, "")
    assert len(collector.spans) == 5


def test_what_will_never_be_taken_is_dropped_and_the_reason_told(collector: Collector, hurried: None) -> None:
    collector.answers = [400]
    sender = OtlpSender(f"{collector.url}/v1/traces", RESOURCE)
    sender.put(otlp_spans.of_role("r", role()))
    until(lambda: sender.dropped > 0)

    assert (sender.dropped, sender.problem) == (5, "it answers 400")
    sender.close()


def test_an_endpoint_that_sends_elsewhere_has_taken_nothing_and_the_key_is_not_shown_there(
    collector: Collector, hurried: None
) -> None:
    collector.answers = [301]
    sender = OtlpSender(f"{collector.url}/v1/traces", RESOURCE)
    sender.put(otlp_spans.of_role("r", role()))
    until(lambda: sender.sent + sender.dropped > 0)
    sender.close()

    assert (sender.sent, sender.dropped, sender.problem) == (0, 5, "it answers 301")
    assert collector.gets == []


def test_a_key_comes_from_the_environment(collector: Collector, hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-tenant=t")
    sender = OtlpSender(f"{collector.url}/v1/traces", RESOURCE)
    sender.put(otlp_spans.of_role("r", role()))
    sender.close()

    assert collector.headers[0]["Authorization"] == "Bearer abc"
    assert collector.headers[0]["X-Tenant"] == "t"


@pytest.mark.parametrize("given", [
    "authorization=Bearer%20s3cret%0Ax", "Authorization: Bearer s3cret==", "x-key=%00s3cret", "x s3cret=1",
])  # fmt: skip
def test_headers_that_are_none_are_told_of_without_the_key(
    collector: Collector, hurried: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, given: str
) -> None:
    """What http.client says of them has the key in it, and what is said here stands in the run and in `mstxkit top`."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", given)
    job = ShownJob(tmp_path)
    outlets = Outlets(job.run, job.run_id, check_metrics(f"otlp:{collector.url}"))
    outlets.judged([role()], [])
    until(lambda: bool(outlets.notes()))
    notes = outlets.notes()
    outlets.close()

    assert notes[0].startswith("otlp: OTEL_EXPORTER_OTLP_HEADERS is no list of headers")
    assert "s3cret" not in str(notes)
    assert not collector.requests


def test_the_end_of_the_line_behind_a_key_is_not_sent(
    collector: Collector, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc%0A")
    sender = OtlpSender(collector.url, RESOURCE)
    sender.put(otlp_spans.of_role("0" * 32, role()))
    sender.close()

    assert collector.headers[0]["Authorization"] == "Bearer abc"


def test_hostile_names_and_numbers_are_spans_all_the_same(collector: Collector, hurried: None) -> None:
    sender = OtlpSender(f"{collector.url}/v1/traces", RESOURCE)
    sender.put(otlp_spans.of_role("r", role(HOSTILE, stages=(HOSTILE, "", "x" * 10_000), wait_ratio=float("inf"))))
    sender.put(otlp_spans.of_verdict("r", verdict(stage=HOSTILE, waits_for="y" * 10_000, confidence=float("nan"))))
    sender.close()

    assert sender.sent == 5
    assert max(len(span.name) for span in collector.spans) <= otlp_spans.TEXT_AT_MOST


def test_the_same_step_is_the_same_span_whoever_sends_it() -> None:
    first, second = (list(otlp_spans.of_role("r", role())) for _ in range(2))

    assert [span.span_id for span in first] == [span.span_id for span in second]
    assert len({span.span_id for span in first}) == len(first)
    assert first[0].trace_id != next(otlp_spans.of_role("r", role(step=42))).trace_id


def test_as_json_a_request_is_otlp_json_with_hex_ids_and_whole_numbers_as_text() -> None:
    document = json.loads(json.dumps(otlp_spans.as_json(otlp_spans.of_role("r", role()), RESOURCE)))
    (step, *_) = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    by_key = {entry["key"]: entry["value"] for entry in step["attributes"]}

    assert len(step["traceId"]) == 32
    assert int(step["traceId"], 16)
    assert step["startTimeUnixNano"] == str(1_700_000_000 * S)
    assert by_key["mstxkit.step"] == {"intValue": "41"}
    assert by_key["mstxkit.wait_ratio"] == {"doubleValue": 0.12}
