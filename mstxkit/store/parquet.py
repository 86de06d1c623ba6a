"""Is a Parquet file what it says? Looked at before a reader in another language believes a length in it.

Such readers reserve memory by the lengths that a file claims, and a claim beyond the memory that there is aborts the
process: one flipped bit in the footer is enough. So all that is claimed is followed here, without decoding a value:
each length in the footer against the bytes that are there (`look_at_file`), and in each page's header before it is read
(`check_pages`).

Source: apache/parquet-format 2.11, `parquet.thrift` (numbers of fields); thrift's `thrift-compact-protocol.md`.
"""

from __future__ import annotations

import os
from itertools import accumulate
from typing import IO, Any, Collection, Mapping, NamedTuple, Sequence

from ..errors import FormatError

MAGIC = b"PAR1"
ROWS_AT_MOST, PAGE_BYTES_AT_MOST, VALUES_AT_MOST = 1 << 27, 1 << 28, 1 << 29
# Headers of pages that hold the least and the largest of long texts (polars 1) are larger than others.
_FOOTER_AT_MOST, _HEADER_AT_MOST, _HEADER_MOSTLY = 1 << 26, 1 << 24, 1 << 12
_DEEPEST, _WIDEST_FIXED = 12, 64
# Kinds of values in thrift's compact form.
_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12
# Fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData and PageHeader.
_SCHEMA, _ROWS, _GROUPS = 2, 3, 4
_TYPE, _TYPE_LENGTH, _ELEMENT_NAME, _CHILDREN = 1, 2, 4, 5
_COLUMNS, _GROUP_ROWS = 1, 3
_COLUMN_FILE, _COLUMN_META = 1, 3
_VALUES, _COMPRESSED, _DATA_AT, _DICTIONARY_AT = 5, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
_DEFINITIONS, _REPETITIONS = 5, 6
_FIXED = 7
# Fields of ColumnMetaData and of Statistics, and physical types, for what is said of values.
_STATISTICS, _NULLS, _MOST, _LEAST = 12, 3, 5, 6
_BOOLEAN, _WHOLE, _TEXT = 0, (1, 2), 6


class _Chunk(NamedTuple):
    """A column's part of a group: the column's name, from where to where its pages lie, and so many values."""

    column: str
    at: int
    stop: int
    values: int


class RowGroup(NamedTuple):
    """Rows that lie together in a file, and what it says of their values."""

    first: int  # the first of them
    rows: int  # so many
    names: frozenset[str]  # its columns
    bounds: dict[str, tuple[Any, Any]]  # the least and the greatest value of a column, where that is said
    empty: frozenset[str]  # columns of which no row has a value, where that is said
    chunks: tuple[_Chunk, ...]  # where its values lie

    def between(self, name: str) -> tuple[int, int] | None:
        """The least and the greatest of a column of whole numbers; None where that is not said."""
        least, most = self.bounds.get(name, (None, None))
        return (least, most) if type(least) is type(most) is int else None


def look_at_file(file: IO[bytes]) -> list[RowGroup]:
    """Follow what a file's footer claims; it is at its begin again afterwards.

    *Cost*: 5 ms for a thousand chunks of columns. Raises FormatError: it claims what it does not hold, or more than a
    file of a run can hold; `offset` says where; OSError: it cannot be read.
    """
    size = file.seek(0, os.SEEK_END)
    ending = _bytes_at(file, max(size - 8, 0), 8)
    length = int.from_bytes(ending[:4], "little")
    if size < 12 or ending[4:] != MAGIC or length > min(size - 12, _FOOTER_AT_MOST):
        raise FormatError("is no whole Parquet file", offset=max(size - 8, 0))
    end = size - 8 - length
    footer = _Reading(_bytes_at(file, end, length), end).struct()
    columns = _list_columns(footer, end)
    groups = _list_structs(footer, _GROUPS, end)
    rows = [_number_at(group, _GROUP_ROWS, ROWS_AT_MOST, end) for group in groups]
    if sum(rows) != _number_at(footer, _ROWS, ROWS_AT_MOST, end):
        raise FormatError("its parts have other rows than it says", offset=end)
    file.seek(0)
    places = accumulate(rows, initial=0)
    return [_row_group(group, first, count, columns, end) for group, first, count in zip(groups, places, rows)]


def check_pages(file: IO[bytes], group: RowGroup, names: Collection[str] | None = None) -> None:
    """Follow what the pages of these columns of a group claim (None: of all); raises as `look_at_file`.

    *Cost*: 15 microseconds a page; the pages' headers are read, no page is.
    """
    for chunk in group.chunks:
        if names is None or chunk.column in names:
            left, at = chunk.values, chunk.at
            while at < chunk.stop:
                count, at = _read_page(file, at, chunk.stop)
                left -= count
            if left:
                raise FormatError("a column of it has other values than it says", offset=at)
    file.seek(0)


def _row_group(group: Mapping[int, Any], first: int, rows: int, columns: Sequence[str], end: int) -> RowGroup:
    """What is said of a group; what cannot be read of its values is as if it were not said."""
    listed = _list_structs(group, _COLUMNS, end)
    if len(listed) != len(columns):
        raise FormatError("a part of it has other columns than it says", offset=end)
    chunks = tuple(_read_chunk(column, name, rows, end) for column, name in zip(listed, columns))
    metas = {name: column[_COLUMN_META] for column, name in zip(listed, columns)}
    bounds = {name: (_find_value(meta, _LEAST), _find_value(meta, _MOST)) for name, meta in metas.items()}
    empty = frozenset(name for name, meta in metas.items() if _statistics_of(meta).get(_NULLS) == rows)
    whole = {name: both for name, both in bounds.items() if None not in both}
    return RowGroup(first, rows, frozenset(metas), whole, empty, chunks)


def _statistics_of(meta: Mapping[int, Any]) -> Mapping[int, Any]:
    fields = meta.get(_STATISTICS)
    return fields if isinstance(fields, dict) else {}


def _find_value(meta: Mapping[int, Any], key: int) -> Any:
    content, kind = _statistics_of(meta).get(key), meta.get(_TYPE)
    if not isinstance(content, bytes):
        return None
    if kind == _TEXT:
        return content.decode("utf-8", "replace")
    if kind == _BOOLEAN:
        return any(content)
    return int.from_bytes(content, "little", signed=True) if kind in _WHOLE else None


def _list_columns(footer: Mapping[int, Any], end: int) -> list[str]:
    """The column that each leaf of the schema is of: a reader takes chunks by their place, whatever they are called."""
    elements = _list_structs(footer, _SCHEMA, end)
    if not elements:
        raise FormatError("has no schema", offset=end)
    children = [_number_at(element, _CHILDREN, len(elements), end, 0) for element in elements]
    widths = [
        _number_at(column, _TYPE_LENGTH, _WIDEST_FIXED, end, 0) for column in elements if column.get(_TYPE) == _FIXED
    ]
    if sum(children) != len(elements) - 1 or 0 in widths:
        raise FormatError("its schema is none", offset=end)
    names: list[str] = []
    left, column = 0, ""  # of the column at hand, elements that are still to come
    for element, count in zip(elements[1:], children[1:]):
        if not left:
            name = element.get(_ELEMENT_NAME)
            left, column = 1, name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
        left += count - 1
        names += [] if count else [column]
    return names


def _read_chunk(column: Mapping[int, Any], name: str, rows: int, end: int) -> _Chunk:
    meta = column.get(_COLUMN_META)
    if not isinstance(meta, dict) or _COLUMN_FILE in column:
        raise FormatError("a column of it is elsewhere", offset=end)
    data = _number_at(meta, _DATA_AT, end, end)
    at = min(data, _number_at(meta, _DICTIONARY_AT, end, end, data) or data)
    stop = at + _number_at(meta, _COMPRESSED, end - at, end)
    values = _number_at(meta, _VALUES, VALUES_AT_MOST, end)
    if at < len(MAGIC) or values < rows:
        raise FormatError("a column of it has too few values", offset=end)
    return _Chunk(name, at, stop, values)


def _read_page(file: IO[bytes], at: int, stop: int) -> tuple[int, int]:
    """Values of a page of data (a dictionary's do not count), and where the next page begins."""
    reading, header = _read_header(file, at, stop - at)
    unpacked = _number_at(header, _PAGE_UNPACKED, PAGE_BYTES_AT_MOST, at)
    begin = at + reading.at
    packed = _number_at(header, _PAGE_PACKED, stop - begin, at)
    kinds = [kind for kind in (_DATA, _DICTIONARY, _DATA_2) if isinstance(header.get(kind), dict)]
    if len(kinds) != 1:
        raise FormatError("a page of it is of no kind", offset=at)
    of_kind = header[kinds[0]]
    count = _number_at(of_kind, 1, unpacked if kinds[0] == _DICTIONARY else VALUES_AT_MOST, at)
    levels = [_number_at(of_kind, key, packed, at) for key in (_DEFINITIONS, _REPETITIONS) if kinds[0] == _DATA_2]
    if sum(levels) > min(packed, unpacked):
        raise FormatError("a page of it is shorter than it says", offset=at)
    return 0 if kinds[0] == _DICTIONARY else count, begin + packed


def _read_header(file: IO[bytes], at: int, there: int) -> tuple[_Reading, dict[int, Any]]:
    try:
        reading = _Reading(_bytes_at(file, at, min(there, _HEADER_MOSTLY)), at)
        return reading, reading.struct()
    except FormatError:
        reading = _Reading(_bytes_at(file, at, min(there, _HEADER_AT_MOST)), at)
        return reading, reading.struct()


def _list_structs(fields: Mapping[int, Any], key: int, at: int) -> list[dict[int, Any]]:
    values = fields.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise FormatError("its footer is none", offset=at)
    return values


def _number_at(fields: Mapping[int, Any], key: int, at_most: int, at: int, missing: int = -1) -> int:
    value = fields.get(key, missing)
    if type(value) is not int or not 0 <= value <= at_most:
        raise FormatError(f"claims a number that cannot be (field {key})", offset=at)
    return value


def _bytes_at(file: IO[bytes], at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


class _Reading:
    """Values in thrift's compact form, each length checked against the bytes that are left."""

    def __init__(self, content: bytes, offset: int) -> None:
        self._content, self._offset, self.at = content, offset, 0

    def struct(self, deep: int = 0) -> dict[int, Any]:
        """Fields by number."""
        if deep > _DEEPEST:
            raise self._say_wrong("is nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._read_byte()) != 0:
            number = number + (head >> 4) if head >> 4 else _as_signed(self._read_varint())
            kind = head & 15
            if number in fields:
                raise self._say_wrong("says a thing twice")
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, deep)
        return fields

    def _value(self, kind: int, deep: int) -> Any:
        if kind in _INTEGERS:
            return _as_signed(self._read_varint())
        if kind == _BINARY:
            return self._bytes(self._read_varint())
        if kind in _LISTS:
            head = self._read_byte()
            count = self._read_varint() if head >> 4 == 15 else head >> 4
            if count > len(self._content) - self.at:
                raise self._say_wrong("claims more than it holds")
            return [self._value(head & 15, deep + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(deep + 1)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._read_byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise self._say_wrong("holds a kind of value that there is not")

    def _bytes(self, size: int) -> bytes:
        if size > len(self._content) - self.at:
            raise self._say_wrong("claims more than it holds")
        self.at += size
        return self._content[self.at - size : self.at]

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise self._say_wrong("holds a number that is too long")

    def _read_byte(self) -> int:
        if self.at >= len(self._content):
            raise self._say_wrong("ends in the middle")
        self.at += 1
        return self._content[self.at - 1]

    def _say_wrong(self, what: str) -> FormatError:
        return FormatError(what, offset=self._offset + self.at)


def _as_signed(value: int) -> int:
    return value >> 1 if not value & 1 else -(value + 1 >> 1)
