"""JSON read value by value, wherever the pieces of the file end."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from mstxkit.errors import FormatError
from mstxkit.reading.importers import _json_stream
from mstxkit.reading.importers._json_stream import MS, US, JsonStream, whole_ns


class InPieces(io.BytesIO):
    """Gives so many bytes at a time, whatever is asked for."""

    def __init__(self, content: bytes, size: int) -> None:
        super().__init__(content)
        self._piece = size

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self._piece)


def values(text: str | bytes, size: int = 1 << 20, **levels: int) -> list[tuple[str, str, Any]]:
    raw = text.encode() if isinstance(text, str) else text
    batches = JsonStream(InPieces(raw, size), lambda _: None).batches(levels)
    return [(first, last, value) for first, last, several in batches for value in several]


DOCUMENTS = (
    [1, "two", None, True, {"a": [1, 2.5]}, [], {}, "ü\U0001f600", -3],
    {"traceEvents": [{"ts": 1}, {"ts": 22}], "displayTimeUnit": "ms", "n": 12345, "o": {"deep": [[[]]]}},
    [], {}, {"traceEvents": []},
)  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_values_are_the_same_wherever_pieces_end(document: Any, size: int) -> None:
    expected: list[Any] = document if isinstance(document, list) else []
    if isinstance(document, dict):
        for key, value in document.items():
            expected += value if key == "traceEvents" else [value]
    read = [value for _, _, value in values(json.dumps(document, indent=1), size, traceEvents=2)]

    assert json.loads(json.dumps(read).replace('"2.5"', "2.5")) == expected


HIDDEN = (
    {"name": "}, {", "args": {}}, {"name": "]}, {[", "args": {"of": [{"a": 1}, {"b": 2}, {"c": []}]}}, {}, 5, "}, {",
    {"args": {"deep": [[{"x": {}}, {"y": {}}]]}}, [], {"name": "end"},
)  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("size", [3, 64, 1 << 20])
def test_what_looks_like_the_seam_of_two_elements_within_one_parts_none(size: int, indent: int | None) -> None:
    """Elements of a list are read some hundreds at once, up to what looks like the end of one of them."""
    document = {"traceEvents": [*HIDDEN, *({"n": number} for number in range(20)), *HIDDEN], "other": [{"a": 1}, {}]}
    read = values(json.dumps(document, indent=indent), size, traceEvents=2)

    assert [value for key, _, value in read if key == "traceEvents"] == document["traceEvents"]
    assert [value for key, _, value in read if key == "other"] == [document["other"]]


def test_levels_say_how_deep_a_value_lies() -> None:
    text = json.dumps({"step1": {"collective": {"op": {"x": 1}}, "p2p": {}}})
    stream = JsonStream(InPieces(text.encode(), 5), lambda _: None)

    assert list(stream.batches({}, default=3)) == [("step1", "op", [{"x": 1}])]


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_what_is_whole_before_a_cut_is_read(size: int) -> None:
    whole = json.dumps([{"name": f"event {number}"} for number in range(10)])
    read = []
    with pytest.raises(FormatError, match="ends in the middle") as caught:
        for _, _, several in JsonStream(InPieces(whole[:-40].encode(), size), lambda _: None).batches({}):
            read += [value["name"] for value in several]

    assert read == [f"event {number}" for number in range(8)]
    assert caught.value.offset == whole.index('{"name": "event 8"}')


@pytest.mark.parametrize("text", ["", "  ", "nonsense", "[1, }", '{"a" 1}', "[" * 100_000, '{"a":' * 100_000, "[1 2 %"])
def test_what_is_no_json_is_an_error_with_a_place(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        values(text)

    assert caught.value.offset is not None


def test_a_number_with_thousands_of_digits_is_an_error() -> None:
    with pytest.raises(FormatError):
        values("[" + "9" * 100_000 + "]")


def test_a_value_larger_than_the_limit_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_json_stream, "VALUE_CHARACTERS", 10_000)
    with pytest.raises(FormatError, match="larger"):
        values(json.dumps(["a", "b" * 200_000]), 4096)


def test_a_long_value_below_the_limit_is_read() -> None:
    assert values(json.dumps(["b" * 10_000_000]), 1 << 16)[0][2] == "b" * 10_000_000


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert values(b'["\xff\xfe"]')[0][2] == "\ufffd\ufffd"


def test_a_packed_file_that_is_cut_gives_what_is_whole(tmp_path: Path) -> None:
    content = gzip.compress(json.dumps(list(range(200_000))).encode())
    (tmp_path / "a.json.gz").write_bytes(content[: len(content) // 2])
    read = []
    with pytest.raises(FormatError), _json_stream.open_file(tmp_path / "a.json.gz") as file:
        for _, _, several in JsonStream(file, lambda _: None).batches({}):
            read += several

    assert read == list(range(len(read)))
    assert len(read) > 10_000


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (5, 5000), ("1790000000000000.123", 1_790_000_000_000_000_123),
        ("5.1", 5100), ("5.12345", 5123), ("-2.5", -2500),
        ("1.5e3", 1_500_000), (" 7.001\t", 7001), ("nan", None), ("inf", None), ("x", None), (None, None), (True, None),
        ("9" * 50, None), (1 << 70, None), ("", None), ("1e400", None), ("1e999999", None), ([], None),
        (1 << 50, (1 << 50) * 1000),
    ],
)  # fmt: skip
def test_microseconds_lose_no_digit(value: Any, ns: int | None) -> None:
    assert whole_ns(value, US) == ns


def test_milliseconds_are_exact() -> None:
    assert [whole_ns(value, MS) for value in ("0.00126", 3, "x", None, "inf")] == [1260, 3_000_000, None, None, None]
