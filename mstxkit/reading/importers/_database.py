"""A foreign SQLite database, read so that nothing in it is executed, nothing is written, and nobody is waited for.

Of its schema only tables count: a view would run what somebody else wrote, and a virtual table a module. Columns come
in pieces, as arrays; what is no number becomes -1.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ...errors import FormatError
from ..folder import reason_of
from ._trace import NAME_CHARACTERS, NamedStretches, Times

MAGIC = b"SQLite format 3\0"
# What a damaged database raises: the message itself may hold names out of it that are no UTF-8.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError, OverflowError)
_ROWS_AT_A_TIME, _BYTES_A_ROW = 1 << 16, 64  # in the file, about
ROWS_AT_MOST = 200_000_000
_WAIT_S, _TABLES_AT_MOST, _TEXTS_AT_A_TIME = 1.0, 1000, 500
_LENGTH, _LENGTH_AT_MOST = 0, 1 << 26  # SQLITE_LIMIT_LENGTH
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}


class Database:
    """What there is in a database; `tables` maps names to their columns."""

    def __init__(self, base: sqlite3.Connection, advance: Callable[[float], None]) -> None:
        self._base, self._advance = base, advance
        # A virtual table has no root page.
        query = "select name from sqlite_master where type = 'table' and rootpage > 0 limit ?"
        names = [str(name) for (name,) in base.execute(query, (_TABLES_AT_MOST,))]
        plain = [name for name in names if name.replace("_", "a").isalnum() and name.isascii()]
        self.tables = {name: [str(row[1]) for row in base.execute(f'pragma table_info("{name}")')] for name in plain}
        base.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)

    def column(self, table: str, *names: str) -> str:
        """The first of these columns that a table has; "" where it has none of them."""
        return next((name for name in names if name in self.tables.get(table, ())), "")

    def numbers(self, table: str, *columns: str, where: str = "") -> Iterator[npt.NDArray[np.int64]]:
        """Rows of whole numbers, (rows, columns), piece by piece. What is null, or a text that is no number, is -1.
        Raises sqlite3.Error: the rest cannot be read.
        """
        wanted = ", ".join(f'"{name}"' for name in columns)
        cursor = self._base.execute(f'select {wanted} from "{table}" {where and "where " + where} limit {ROWS_AT_MOST}')
        while rows := cursor.fetchmany(_ROWS_AT_A_TIME):
            self._advance(len(rows) * _BYTES_A_ROW)
            size = len(rows) * len(columns)
            try:  # a third of the time that `np.array` takes of tuples
                flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=size)
            except (TypeError, ValueError, OverflowError):
                flat = np.fromiter(map(_whole_or, chain.from_iterable(rows)), dtype=np.int64, count=size)
            yield flat.reshape(-1, len(columns))

    def distinct(self, table: str, column: str) -> list[int]:
        """Each number in a column once."""
        query = f'select distinct "{column}" from "{table}" limit {_TEXTS_AT_A_TIME * _TABLES_AT_MOST}'
        return sorted({_whole_or(value) for (value,) in self._base.execute(query)})

    def all_numbers(self, table: str, *columns: str, where: str = "") -> npt.NDArray[np.int64]:
        """The same at once: of tables that are small."""
        parts = self.numbers(table, *columns, where=where)
        return np.concatenate([np.zeros((0, len(columns)), dtype=np.int64), *parts])

    def texts(self, ids: Sequence[int], table: str = "STRING_IDS") -> dict[int, str]:
        """What numbers stand for in a table of texts, cut where it is long."""
        if not self.column(table, "id") or not self.column(table, "value"):
            return {}
        of_ids: dict[int, str] = {}
        for at in range(0, len(ids), _TEXTS_AT_A_TIME):
            part = [int(id) for id in ids[at : at + _TEXTS_AT_A_TIME]]
            marks = ",".join("?" * len(part))
            query = f"select id, substr(cast(value as text), 1, {NAME_CHARACTERS}) from {table} where id in ({marks})"
            of_ids.update((id, value) for id, value in self._base.execute(query, part) if isinstance(value, str))
        return of_ids

    def called(
        self, ids: npt.NDArray[np.int64], starts: Times, ends: Times, table: str = "STRING_IDS"
    ) -> NamedStretches:
        """Stretches by the texts that their ids stand for; those without one are left out."""
        different = distinct_values(ids)
        texts = self.texts(different, table)
        return NamedStretches.of([texts.get(id) for id in different], np.searchsorted(different, ids), starts, ends)

    def pairs(self, table: str, first: str, second: str, at_most: int = 1000) -> list[tuple[Any, Any]]:
        """Two columns of a small table, as they are; texts of more than a million characters are cut."""
        if not {first, second} <= {*self.tables.get(table, ())}:
            return []
        cut = (f'case when typeof("{name}") = \'text\' then substr("{name}", 1, 1048576) else "{name}" end'
               for name in (first, second))  # fmt: skip
        return list(self._base.execute(f'select {", ".join(cut)} from "{table}" limit {at_most}'))


def distinct_values(values: npt.NDArray[np.int64]) -> list[int]:
    """Each value once, in order. numpy's own `unique` hashes, which takes ten times as long for a million of few."""
    different: list[int] = pl.Series(values).unique().sort().to_list()
    return different


def _whole_or(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(1 << 63) <= number < 1 << 63 else -1


def is_of_nsys(path: Path, head: bytes) -> bool:
    """Is it what Nsight Systems recorded, by its name or by what its first pages say of its tables?"""
    is_named = path.suffix in (".sqlite", ".nsys-rep")
    return is_named or (head.startswith(MAGIC) and (b"CUPTI_ACTIVITY_KIND" in head or b"NVTX_EVENTS" in head))


@contextmanager
def open_database(path: Path, advance: Callable[[float], None]) -> Iterator[Database]:
    """A database for reading. Raises FormatError: it is none, is damaged where its tables are listed, or is locked."""
    try:
        with closing(connect_to(path)) as base:
            yield Database(base, advance)
    except UNREADABLE as exc:
        raise FormatError(f"cannot be read as a database: {reason_of(exc)[:200]}") from None


def connect_to(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing and waits a second at most for who has locked it.
    Raises sqlite3.Error: it cannot be opened.
    """
    # Where nobody writes, `immutable` leaves even the folder as it was; beside a log that must be read as well, it
    # would show an old state.
    has_log = any(os.path.exists(f"{path}{suffix}") and os.path.getsize(f"{path}{suffix}") for suffix in _LOGS)
    mode = "mode=ro" if has_log else "mode=ro&immutable=1"
    base = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=_WAIT_S, check_same_thread=False)
    try:
        base.text_factory = lambda raw: raw.decode("utf-8", "replace")
        if hasattr(base, "enable_load_extension"):
            base.enable_load_extension(False)
        if hasattr(base, "setlimit"):
            base.setlimit(_LENGTH, _LENGTH_AT_MOST)
        for pragma in ("trusted_schema = off", "cell_size_check = on", "query_only = on"):
            base.execute(f"pragma {pragma}")
    except BaseException:
        base.close()
        raise
    return base


_LOGS = ("-wal", "-journal")
