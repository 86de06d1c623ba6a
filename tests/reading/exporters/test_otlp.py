"""OTLP as JSON lines: every range a span, below the one around it, that protobuf's own classes take."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.run import open_run


def lines(run: Path) -> list[dict[str, Any]]:
    out = io.StringIO()
    load_exporter("otlp").write(open_run(run), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def spans(run: Path) -> dict[str, dict[str, Any]]:
    of_lines = [line["resourceSpans"][0]["scopeSpans"][0]["spans"] for line in lines(run)]
    return {span["name"]: span for made in of_lines for span in made}


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {entry["key"]: next(iter(entry["value"].values())) for entry in span["attributes"]}


def test_a_range_is_a_span_below_the_one_around_it(run: Path) -> None:
    bank = BankFiles().range("inner", 10, 20, depth=1, step=4, tokens=7).range("outer", 0, 30, step=4, error=True)
    ProcessFiles(run).seal(bank)

    made = spans(run)

    assert made["inner"]["parentSpanId"] == made["outer"]["spanId"]
    assert made["inner"]["traceId"] == made["outer"]["traceId"]
    assert "parentSpanId" not in made["outer"]
    assert (made["inner"]["startTimeUnixNano"], made["inner"]["endTimeUnixNano"]) == (
        str(WALL_OFFSET_NS + 10), str(WALL_OFFSET_NS + 20),
    )  # fmt: skip
    assert attributes(made["inner"])["tokens"] == "7"
    assert attributes(made["outer"])["error"] is True


def test_a_parent_of_another_step_is_of_another_trace(run: Path) -> None:
    ProcessFiles(run).seal(BankFiles().range("inner", 10, 20, depth=1, step=4).range("outer", 0, 30))

    made = spans(run)

    assert "parentSpanId" not in made["inner"]
    assert made["inner"]["traceId"] != made["outer"]["traceId"]


def test_ranges_that_do_not_nest_have_no_parent(run: Path) -> None:
    ProcessFiles(run).seal(
        BankFiles().range("first", 0, 20).range("late", 10, 30, depth=1).range("out", 5, 40, depth=0)
    )

    assert [name for name, span in spans(run).items() if "parentSpanId" in span] == []


def test_open_ranges_and_marks_end_where_they_begin(run: Path) -> None:
    inside = [{"name": "fatal", "domain": "d", "start": 7}]
    ProcessFiles(run).seal(BankFiles().mark("m", 5), inside=inside, ended="killed")

    made = spans(run)

    assert attributes(made["fatal"])["mstxkit.open"] is True
    assert attributes(made["m"])["mstxkit.mark"] is True
    assert all(span["startTimeUnixNano"] == span["endTimeUnixNano"] for span in made.values())


def test_protobufs_own_classes_take_each_line(run: Path) -> None:
    trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    json_format = pytest.importorskip("google.protobuf.json_format")
    bank = BankFiles()
    for place, name in enumerate(("<b>", "\x1b", "\u202e", "更新", "\0", "x" * 9999)):
        bank.range(name, place, place + 1, text=name, inf=float("inf"), number=-(1 << 63))
    ProcessFiles(run, role="\udc80").seal(bank)

    requests = [json_format.ParseDict(line, trace_service.ExportTraceServiceRequest()) for line in lines(run)]

    (resource,) = requests[0].resource_spans
    assert len(resource.scope_spans[0].spans) == 6
    assert {entry.key for entry in resource.resource.attributes} >= {"service.name", "host.name", "mstxkit.rank"}


def test_a_run_of_nothing_is_no_line(run: Path) -> None:
    assert lines(run) == []
