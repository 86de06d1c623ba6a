"""Spans of a job for OTLP: of each step and role one, its stages below it, and each word of a verdict or escalation.

Both who exports live (`telemetry/otlp.py`) and who exports a run that is over (`export --to otlp`) build spans here:
`of_role`, `of_verdict`, `of_escalation` or `span`, then `as_json` for a line of OTLP/JSON, or `as_protobuf` for a
message. Ids come from what a span is about, so that a span that is sent twice is the same span. Values alone: no clock,
no file.

Attributes are our own, `mstxkit.*`: OpenTelemetry has no conventions for training. `state_name` and `state_lane_id` are
what RL-Insight draws its lanes by.

Source: opentelemetry-proto 1.45.2, `opentelemetry/proto/trace/v1/trace.proto`; OTLP/JSON: ids as hex, 64-bit numbers
as text. RL-Insight 0.3.0, `trace_state`.
"""

from __future__ import annotations

import base64
import hashlib
import math
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Union

from ..store.collectives import ranks_as_text
from ..store.job_file import RoleFigures
from ..store.report import EscalationNews
from ..store.verdicts import Verdict

Value = Union[str, bool, int, float]
TEXT_AT_MOST, ATTRIBUTES_AT_MOST = 500, 64
SCOPE = "mstxkit"
_INTERNAL = 1
_I64 = 1 << 63
_OF_VERDICT = ("kind", "role", "stage", "rank", "step", "since_step", "impact_ratio", "confidence")
# JSON has no words for these: OTLP/JSON is protobuf's, which writes them so.
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


class JobSpan(NamedTuple):
    """One span: ids of 16, 8 and 8 bytes, `parent_id` b"" for a root; times of the wall clock. What is None of the
    attributes is left out.
    """

    name: str
    trace_id: bytes
    span_id: bytes
    begin_ns: int
    end_ns: int
    attributes: Mapping[str, Value | None] = {}
    parent_id: bytes = b""


def trace_id(*about: object) -> bytes:
    """The same for the same words: `trace_id(run_id, role, step)`."""
    return hashlib.sha256(repr(about).encode("utf-8", "backslashreplace")).digest()[:16]


def span_id(*about: object) -> bytes:
    """The same for the same words."""
    return hashlib.sha256(repr(about).encode("utf-8", "backslashreplace")).digest()[-8:]


def of_role(run_id: str, role: RoleFigures) -> Iterator[JobSpan]:
    """A step of a role, and its stages."""
    trace, root = trace_id(run_id, role.role, role.step), span_id(run_id, role.role, role.step)
    about: dict[str, Value | None] = {"mstxkit.role": role.role, "mstxkit.step": role.step}
    more = {"mstxkit.members": role.members, "mstxkit.wait_ratio": role.wait_ratio}
    yield JobSpan("step", trace, root, role.begin_ns, role.end_ns, {**about, **more})
    for stage in role.stages:
        own = span_id(run_id, role.role, role.step, stage.stage)
        attributes = {
            **about, "mstxkit.stage": stage.stage, "mstxkit.members": stage.members, "mstxkit.time_s.max": stage.max_s,
            "mstxkit.time_s.median": stage.median_s, "mstxkit.slowest_rank": stage.slowest_rank,
            "mstxkit.tokens_per_s": stage.tokens_per_s, "mstxkit.mfu_ratio": stage.mfu_ratio,
            "state_name": stage.stage, "state_lane_id": role.role or "job",
        }  # fmt: skip
        yield JobSpan(stage.stage or "stage", trace, own, stage.begin_ns, stage.end_ns, attributes, root)


def of_verdict(run_id: str, verdict: Verdict) -> Iterator[JobSpan]:
    """What a verdict says now, at the moment when it is said; and the profile that it asked for, if it did."""
    words = (verdict.id, verdict.step, verdict.withdrawn != "", verdict.request)
    trace = trace_id(run_id, verdict.id)
    attributes: dict[str, Value | None] = {
        "mstxkit.verdict": verdict.id,
        **{f"mstxkit.{name}": getattr(verdict, name) for name in _OF_VERDICT},
        **{f"mstxkit.{name}": getattr(verdict, name) or None for name in ("waits_for", "next", "withdrawn", "request")},
    }
    at_ns = verdict.time_ns
    yield JobSpan(f"verdict {verdict.kind}", trace, span_id(run_id, *words), at_ns, at_ns, attributes)
    if verdict.request:
        escalation = span_id(run_id, "escalation", verdict.request)
        yield JobSpan("escalation", trace, escalation, at_ns, at_ns, attributes)


def of_escalation(run_id: str, news: EscalationNews) -> JobSpan:
    """What became of a request, from the moment when it was asked for; below the verdict that asked, where one did."""
    asked = span_id(run_id, "escalation", news.request)
    own = span_id(run_id, "escalation", news.request, news.state)
    trace = trace_id(run_id, news.verdict) if news.verdict else trace_id(run_id, "escalation", news.request)
    attributes: dict[str, Value | None] = {
        "mstxkit.request": news.request, "mstxkit.state": news.state, "mstxkit.states": news.counts,
        "mstxkit.reason": news.reason or None, "mstxkit.stage": ", ".join(news.stages),
        "mstxkit.ranks": ranks_as_text(news.ranks) or f"{len(news.ranks)} ranks", "mstxkit.preset": news.preset or None,
        "mstxkit.asks": news.asks or None, "mstxkit.verdict": news.verdict or None,
    }  # fmt: skip
    name, begin_ns = f"escalation {news.state}", min(news.asked_ns, news.time_ns)
    return JobSpan(name, trace, own, begin_ns, news.time_ns, attributes, asked if news.verdict else b"")


def as_json(spans: Iterable[JobSpan], resource: Mapping[str, Value | None]) -> dict[str, Any]:
    """An `ExportTraceServiceRequest` as OTLP/JSON. `resource`: attributes of the job: `resource_of`."""
    listed = [
        {
            "traceId": span.trace_id.hex(), "spanId": span.span_id.hex(), "name": _cut_text(span.name),
            "kind": _INTERNAL, "startTimeUnixNano": str(span.begin_ns),
            "endTimeUnixNano": str(max(span.begin_ns, span.end_ns)), "attributes": _as_json(span.attributes),
            **({"parentSpanId": span.parent_id.hex()} if span.parent_id else {}),
        }
        for span in spans
    ]  # fmt: skip
    scope = {"scope": {"name": SCOPE}, "spans": listed}
    return {"resourceSpans": [{"resource": {"attributes": _as_json(resource)}, "scopeSpans": [scope]}]}


def resource_of(run: str, run_id: str) -> dict[str, Value | None]:
    """What all spans of a job have."""
    return {"service.name": "mstxkit", "mstxkit.run": run, "mstxkit.run_id": run_id}


def _as_json(attributes: Mapping[str, Value | None]) -> list[dict[str, Any]]:
    kept = [(key, value) for key, value in attributes.items() if value is not None][:ATTRIBUTES_AT_MOST]
    return [{"key": _cut_text(key), "value": _as_value(value)} for key, value in kept]


def _as_value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -_I64 <= value < _I64:
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _NOT_FINITE[str(value)]}
    return {"stringValue": _cut_text(str(value))}


def _cut_text(text: str) -> str:
    return text[:TEXT_AT_MOST].encode("utf-8", "backslashreplace").decode()


def as_protobuf(spans: Iterable[JobSpan], resource: Mapping[str, Value | None]) -> bytes:
    """The same as a message. ImportError: there is no opentelemetry-proto."""
    from google.protobuf import json_format  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    document = as_json(spans, resource)
    for of_scope in document["resourceSpans"][0]["scopeSpans"]:
        for span in of_scope["spans"]:  # protobuf's own JSON has base64 where OTLP/JSON has hex
            for key in span.keys() & {"traceId", "spanId", "parentSpanId"}:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    message: Any = json_format.ParseDict(document, trace_service_pb2.ExportTraceServiceRequest())
    encoded: bytes = message.SerializeToString()
    return encoded
