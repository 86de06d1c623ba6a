"""JSON of any size, some values at a time: never more of it in memory than these and a piece of the file.

json's own scanner, in C, reads the values; this looks after what lies between them. Elements of a list that are objects
are read some hundreds at once, as a list of their own. Numbers with a point stay texts, so that a time in microseconds
loses none of its digits.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Callable, Iterator, Mapping

from ...errors import FormatError
from ._trace import EVENTS_AT_MOST, DeviceTrace, with_damage

_PIECE_BYTES = 1 << 22
VALUE_CHARACTERS = 1 << 26  # of a single value
# So much of a list is read at once; where it cannot be, its elements are read one by one, until the next piece.
_BATCH_CHARACTERS, _TRIED_AT_MOST = 1 << 16, 8
_SEAM = re.compile(r"\s*,\s*(?=\{)")
_BETWEEN, _BLANKS = re.compile(r"[\s,]*"), re.compile(r"\s*")
_decoder: Any = json.JSONDecoder(parse_float=str, parse_constant=lambda _: None)
_scan = _decoder.scan_once
_CUT = "ends in the middle: what is whole before that is read"
_GZIP = b"\x1f\x8b"
# What a packed file raises that is cut or damaged.
UNPACKABLE = (EOFError, zlib.error, gzip.BadGzipFile)
US, MS = 1_000, 1_000_000  # ns


class JsonStream:
    """Values of one JSON document, as they come: of a file of bytes, UTF-8, of which what is none is replaced.
    `advance`: called with the number of bytes that were read since.
    """

    def __init__(self, file: IO[bytes], advance: Callable[[float], None]) -> None:
        self._file: Any = file
        self._advance = advance
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._buffer, self._at, self._before, self._is_over = "", 0, 0, False

    def batches(self, levels: Mapping[str, int], default: int = 1) -> Iterator[tuple[str, str, list[Any]]]:
        """(first key, last key, values) of all values so many levels below the top; those of a list come together.

        Args:
            levels: Levels below a first key of an object at the top; a list at the top has one.
            default: Below any other one.

        Raises:
            FormatError: it is no JSON, is cut, or holds a value of more than 64 MB; `offset` says where. What came
                before has been handed out.
        """
        self._skip_over(_BLANKS)
        opened = self._peek_character()
        if opened == "[":
            yield from (("", "", values) for values in self._read_list())
        elif opened == "{":
            for key in self._read_keys():
                yield from ((key, last, values) for last, values in self._read_below(key, levels.get(key, default) - 1))
        else:
            raise self._say_wrong("is no JSON object or list" if opened else "is empty")

    def _read_below(self, key: str, levels: int) -> Iterator[tuple[str, list[Any]]]:
        opened = self._peek_character()
        if levels and opened == "[":
            yield from ((key, values) for values in self._read_list())
        elif levels and opened == "{":
            for inner in self._read_keys():
                yield from self._read_below(inner, levels - 1)
        else:
            yield key, [self._read_value()]

    def _read_list(self) -> Iterator[list[Any]]:
        self._at += 1
        while True:
            yield from self._whole_ones()
            self._skip_over(_BETWEEN)
            if self._peek_character() == "]":
                self._at += 1
                return
            yield [self._read_value()]

    def _whole_ones(self) -> Iterator[list[Any]]:
        """Elements that lie wholly in the piece that was read: nearly all."""
        buffer, at, size = self._buffer, self._at, len(self._buffer)
        seam, tries = "", 0
        while True:
            begin = _BETWEEN.match(buffer, at).end()  # type: ignore[union-attr]
            cut = buffer.rfind(seam, begin, begin + _BATCH_CHARACTERS) + 1 if seam else 0
            try:
                if cut:
                    values, end = _scan(f"[{buffer[begin:cut]}]", 0)
                    if end != cut - begin + 2:
                        raise ValueError("the list ends before that")
                    at = cut
                else:
                    value, at = _scan(buffer, begin)
                    values = [value]
                    if at >= size:
                        return
                    match = _SEAM.match(buffer, at) if tries < _TRIED_AT_MOST and isinstance(value, dict) else None
                    seam = "}" + match[0] + "{" if match else ""
            except (StopIteration, ValueError, RecursionError):
                if not cut:
                    return
                seam, tries = "", tries + 1
                continue
            self._at = at
            yield values

    def _read_keys(self) -> Iterator[str]:
        """Each key of an object; who takes it reads its value next."""
        self._at += 1
        while True:
            self._skip_over(_BETWEEN)
            if self._peek_character() == "}":
                self._at += 1
                return
            key = self._read_value()
            self._skip_over(_BLANKS)
            if not isinstance(key, str) or self._peek_character() != ":":
                raise self._say_wrong(_CUT if self._is_over and not self._peek_character() else "is no JSON")
            self._at += 1
            self._skip_over(_BLANKS)
            yield key

    def _read_value(self) -> Any:
        while True:
            try:
                value, end = _scan(self._buffer, self._at)
                # A number at the end of a piece may go on in the next one.
                if end < len(self._buffer) or self._is_over or self._buffer[end - 1] in '"}]':
                    self._at = end
                    return value
            except (StopIteration, ValueError):
                pass
            except RecursionError:
                raise self._say_wrong("is nested too deep") from None
            if len(self._buffer) - self._at > VALUE_CHARACTERS:
                raise self._say_wrong("is no JSON, or one value in it is larger than 64 MB")
            if not self._read_more():
                # Is it cut: does what cannot be read look like the beginning of a value?
                is_cut = self._at >= len(self._buffer) or self._buffer[self._at] in '{["-0123456789tfn'
                raise self._say_wrong(_CUT if is_cut else "is no JSON")

    def _peek_character(self) -> str:
        while self._at >= len(self._buffer):
            if not self._read_more():
                return ""
        return self._buffer[self._at]

    def _skip_over(self, what: re.Pattern[str]) -> None:
        while True:
            self._at = what.match(self._buffer, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._buffer) or not self._read_more():
                return

    def _read_more(self) -> bool:
        """Read another piece, as large as what waits; False at the end."""
        if self._is_over:
            return False
        rest = self._buffer[self._at :]
        piece = self._piece(max(_PIECE_BYTES, len(rest)))
        self._is_over = not piece
        self._before += _size_of(self._buffer[: self._at])
        self._buffer, self._at = rest + self._decoder.decode(piece, final=not piece), 0
        self._advance(len(piece))
        return not self._is_over or len(self._buffer) > len(rest)

    def _piece(self, size: int) -> bytes:
        """The next bytes; of a packed file that is damaged those before that first."""
        if not isinstance(self._file, gzip.GzipFile):
            piece: bytes = self._file.read(size)
            return piece
        parts: list[bytes] = []
        try:
            while size > 0 and (part := self._file.read1(size)):
                parts.append(part)
                size -= len(part)
        except UNPACKABLE as exc:
            if not parts:
                raise self._say_wrong(f"cannot be unpacked further: {exc}") from None
        return b"".join(parts)

    def _say_wrong(self, what: str) -> FormatError:
        return FormatError(what, offset=self._before + _size_of(self._buffer[: self._at]))


def _size_of(characters: str) -> int:
    return len(characters) if characters.isascii() else len(characters.encode("utf-8", "surrogatepass"))


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """A file of bytes, unpacked where it is packed by gzip. OSError: it cannot be opened."""
    with open(path, "rb") as file:
        if file.read(2) != _GZIP:
            file.seek(0)
            yield file
            return
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]


def read_into(
    trace: DeviceTrace, take: Callable[[str, str, list[Any]], None], advance: Callable[[float], None],
    levels: Mapping[str, int], default: int = 1,
) -> None:  # fmt: skip
    """Hand the values of the trace's file to `take(first key, last key, values)`, which counts `trace.events`.

    Once there are events, what cannot be read is damage of the trace. Levels as of `JsonStream.batches`.

    Raises:
        OSError: the file cannot be opened.
        FormatError: nothing in it could be read.
    """
    with open_file(Path(trace.file)) as file, with_damage(trace):
        for first, last, values in JsonStream(file, advance).batches(levels, default):
            take(first, last, values)
            if trace.events >= EVENTS_AT_MOST:
                raise FormatError(f"has more than {EVENTS_AT_MOST} events: the rest is left out")


def whole_ns(value: Any, unit_ns: int) -> int | None:
    """Whole ns of a time in another unit, from a number or a text, no digit lost; None where it is neither."""
    if type(value) not in (int, str) or (isinstance(value, str) and len(value) > 40):
        return None
    try:
        exact = Decimal(value) * unit_ns
    except ArithmeticError:
        return None
    return int(exact) if exact.is_finite() and abs(exact) < 1 << 62 else None
