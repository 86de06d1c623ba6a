"""OpenTelemetry's OTLP in JSON lines, as a collector's file exporter writes it: spans of somebody else's tracing.

A span says nothing of a device. So a stage shows how much of it had any span open: for an inference engine, the time in
which it had a request.

Source: opentelemetry-proto 1.x `trace.proto`, in JSON by the OTLP specification: `resourceSpans`, `scopeSpans`, `spans`
with `startTimeUnixNano` and `endTimeUnixNano` as texts; one `TracesData` a line.
"""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import IO, Any, Callable, Iterator, Mapping

from ...errors import FormatError
from ...store.values import list_of, small_number, table_of
from ..folder import Damage
from . import Importer
from ._json_stream import UNPACKABLE, VALUE_CHARACTERS, open_file, read_into
from ._lanes import EventTable, divide_time, plain_ns
from ._trace import LATEST_NS, DeviceTrace, clean_text

_RANK_KEYS = ("mstxkit.rank", "rank", "process.rank", "distributed.rank")
_RANKS_AT_MOST = 100_000


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace for each rank that its resources name. FormatError: nothing in it could be read."""
    by_rank: dict[int | None, tuple[DeviceTrace, EventTable]] = {}
    whole = DeviceTrace(str(path), IMPORTER.what)

    def take(resource: Any) -> None:
        for rank, host, pid, span in _spans_of(table_of(resource)):
            if rank not in by_rank and len(by_rank) < _RANKS_AT_MOST:
                by_rank[rank] = DeviceTrace(str(path), IMPORTER.what, rank, host, pid), EventTable(plain_ns)
            if rank in by_rank:
                trace, table = by_rank[rank]
                start, end = (_read_number(span.get(key)) or 0 for key in ("startTimeUnixNano", "endTimeUnixNano"))
                is_usable = 0 < start <= end < LATEST_NS
                table.add((0, 0, span.get("name"), *((start, end - start) if is_usable else (-1, 0))))
                trace.events += 1
                table.fold()

    def take_all(key: str, _: str, values: list[Any]) -> None:
        for resource in values if key == "resourceSpans" else ():
            whole.events += 1
            take(resource)

    with open_file(path) as file:
        first = _read_line(file, 0, whole).strip()
    if first in (b"{", codecs.BOM_UTF8 + b"{"):  # printed over many lines
        read_into(whole, take_all, advance, {"resourceSpans": 2})
    else:
        _take_lines(whole, take, advance)
    if not by_rank:
        raise FormatError("holds no span", offset=whole.damage[0].offset if whole.damage else 0)
    for trace, table in by_rank.values():
        divide_time(trace, table, table.all(), "spans have no usable time and are left out", spans=0, ranges=0)
    traces = [trace for trace, _ in by_rank.values()]
    traces[0].damage += whole.damage
    return traces


def _take_lines(whole: DeviceTrace, take: Callable[[Any], None], advance: Callable[[float], None]) -> None:
    with open_file(Path(whole.file)) as file:
        offset = 0
        while line := _read_line(file, offset, whole):
            advance(len(line))
            try:
                for resource in list_of(table_of(json.loads(line) if line.strip() else {}).get("resourceSpans")):
                    take(resource)
            except (ValueError, RecursionError):
                Damage(whole.file, offset, len(line), "a line is no JSON: it is left out").note_in(whole.damage)
                if len(whole.damage) > 100:
                    break
            offset += len(line)


def _read_line(file: IO[bytes], offset: int, whole: DeviceTrace) -> bytes:
    """The next line; none where what is packed cannot be unpacked further."""
    try:
        return file.readline(VALUE_CHARACTERS)
    except UNPACKABLE as exc:
        Damage(whole.file, offset, 0, f"cannot be unpacked further: {exc}").note_in(whole.damage)
        return b""


def _spans_of(resource: Mapping[str, Any]) -> Iterator[tuple[int | None, str, int | None, dict[str, Any]]]:
    attributes: dict[str, Any] = {}
    for attribute in map(table_of, list_of(table_of(resource.get("resource")).get("attributes"))):
        value = table_of(attribute.get("value"))
        if isinstance(key := attribute.get("key"), str):
            attributes[key] = _read_number(value["intValue"]) if "intValue" in value else value.get("stringValue")
    rank = next((small_number(attributes[key]) for key in _RANK_KEYS if key in attributes), None)
    host, pid = clean_text(attributes.get("host.name")), small_number(attributes.get("process.pid"))
    for scope in map(table_of, list_of(resource.get("scopeSpans"))):
        for span in list_of(scope.get("spans")):
            if isinstance(span, dict):
                yield rank, host, pid, span


def _read_number(value: Any) -> int | None:
    """Numbers of 64 bits are texts in OTLP's JSON."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


IMPORTER = Importer("OTLP", lambda path, head: b'"resourceSpans"' in head[:4096], read_traces)
