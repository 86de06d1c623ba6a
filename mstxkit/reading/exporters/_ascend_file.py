"""One database of ranges as msMonitor and torch_npu write them, and what msprof-analyze and Insight need in it.

Source: msprof `msprof_db.cpp`, msMonitor `DataBase.cpp`, torch_npu 2.13.0 `TableColumnsManager`; schema 1.2.0. Why it
is so: `mstx_sum` takes ranges of type 2 with a connectionId other than 4294967295, and fails where one has no row in a
table TASK; so there is none, and in a profile that has one, ranges are of type 1. Without STEP_TIME all steps are one;
where one rank has no MSTX_EVENTS it reads none. Insight draws a task as part of each range that has its connectionId.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from pathlib import Path
from typing import Any, Iterable

import numpy as np
import numpy.typing as npt

from ...store import documents
from ._rank_files import RankFile, clean_name
from ._rank_rows import RankRows

# Types of a range and of a mark: those that `mstx_sum` counts, and those that it leaves alone.
_COUNTED, _UNCOUNTED = (2, 3), (1, 0)
UNUSED = 4294967295
_FIRST_CONNECTION, _EARLY_NS = 4000000001, 60_000_000_000
_TABLES = """
create table if not exists STRING_IDS(id integer primary key, value text);
create table if not exists MSTX_EVENTS(startNs integer, endNs integer, eventType integer, rangeId integer,
    category integer, message integer, globalTid integer, endGlobalTid integer, domainId integer, connectionId integer);
create table if not exists ENUM_MSTX_EVENT_TYPE(id integer primary key, name text);
create table if not exists SESSION_TIME_INFO(startTimeNs integer, endTimeNs integer);
create table if not exists HOST_INFO(hostUid text, hostName text);
create table if not exists NPU_INFO(id integer, name text);
create table if not exists RANK_DEVICE_MAP(rankId integer, deviceId integer);
create table if not exists META_DATA(name text, value text);
create table if not exists STEP_TIME(id integer, startNs integer, endNs integer);
"""
_TYPES = ((0, "marker"), (1, "push/pop"), (2, "start/end"), (3, "marker_ex"))
_VERSION = (("SCHEMA_VERSION", "1.2.0"), ("SCHEMA_VERSION_MAJOR", "1"), ("SCHEMA_VERSION_MINOR", "2"),
            ("SCHEMA_VERSION_MICRO", "0"))  # fmt: skip
# Of each column the number of what goes into it, in the order of `put`.
_EVENT = {
    "startNs": "?{0}", "endNs": "?{1}", "eventType": "?{2}", "rangeId": UNUSED, "category": UNUSED, "message": "?{3}",
    "globalTid": "?{4}", "endGlobalTid": "?{4}", "domainId": "?{5}", "connectionId": "?{6}",
}  # fmt: skip
# A statement for so many rows takes half the time; SQLite once allowed for 999 values in one.
_VALUES, _ROWS_AT_ONCE = 7, 100
# Columns that profiles of older profilers have not: what they would tell is left out.
_MAY_LACK = {"rangeId", "category", "endGlobalTid", "domainId"}


class AscendFile:
    """A database that is being written: a new file, or one that holds a profile, of which all is left as it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._base = sqlite3.connect(path, isolation_level=None)
        for setting in ("journal_mode = off", "synchronous = off", "locking_mode = exclusive"):
            self._base.execute(f"pragma {setting}")
        self._base.execute("begin")
        for statement in _TABLES.split(";"):
            self._base.execute(statement)
        # By the names of columns: Insight adds one of its own to a profile that it opens.
        lacks = _MAY_LACK - {*self._list_columns("MSTX_EVENTS")}
        columns = {name: str(value) for name, value in _EVENT.items() if name not in lacks}
        self._into, self._row = f"insert into MSTX_EVENTS ({', '.join(columns)}) values", ", ".join(columns.values())
        self._texts: dict[str, int] = {}
        self._next_text = self._largest_id("STRING_IDS", "id") + 1
        # Tasks, calls, collectives and ranges share the numbers of connections.
        tables = [str(name) for (name,) in self._base.execute("select name from sqlite_master where type = 'table'")]
        self._range, self._mark = _UNCOUNTED if "TASK" in tables else _COUNTED
        used = [self._largest_id(name, "connectionId") for name in tables if "connectionId" in self._list_columns(name)]
        self._connection = self._first_connection = max([_FIRST_CONNECTION, *(largest + 1 for largest in used)])
        self.count, self.first_ns, self.last_ns = 0, 0, 0

    def _largest_id(self, table: str, column: str) -> int:
        quoted = table.replace('"', '""')
        query = f'select max(cast({column} as integer)) from "{quoted}" where {column} != {UNUSED}'
        largest = self._base.execute(query).fetchone()[0]
        return largest if isinstance(largest, int) else -1

    def _list_columns(self, table: str) -> list[str]:
        return [str(name) for (name,) in self._base.execute("select name from pragma_table_info(?)", (table,))]

    def text(self, content: str) -> int:
        """The number of a text."""
        if content not in self._texts:
            self._texts[content] = self._next_text
            self._base.execute(
                "insert into STRING_IDS (id, value) values (?, ?)", (self._next_text, clean_name(content))
            )
            self._next_text += 1
        return self._texts[content]

    def put(self, rows: RankRows, texts: list[str], pid: int) -> None:
        """Rows of a process; `texts` says what their numbers of names and domains stand for."""
        if not len(rows.start):
            return
        numbers = np.zeros(len(texts), dtype=np.int64)
        for used in np.flatnonzero(np.bincount(np.concatenate((rows.name, rows.domain)))).tolist():
            numbers[used] = self.text(texts[used])
        kinds, threads = np.where(rows.is_mark, self._mark, self._range), (pid << 32) | rows.thread
        connections = np.arange(self._connection, self._connection + len(rows.start), dtype=np.int64)
        connections[connections >= UNUSED] += self._connection <= UNUSED
        self._connection = int(connections[-1]) + 1
        names = numbers[rows.name], threads, numbers[rows.domain]
        values = np.column_stack((rows.start, rows.end, kinds, *names, connections))
        rest = len(values) % _ROWS_AT_ONCE
        self._insert_rows(_ROWS_AT_ONCE, values[: len(values) - rest])
        self._insert_rows(1, values[len(values) - rest :])
        self.count += len(values)
        self.first_ns = min(self.first_ns or int(rows.start[0]), int(rows.start.min()))
        self.last_ns = max(self.last_ns, int(rows.end.max()))

    def _insert_rows(self, at_once: int, values: npt.NDArray[np.int64]) -> None:
        numbers = (range(first + 1, first + 1 + _VALUES) for first in range(0, at_once * _VALUES, _VALUES))
        statement = f"{self._into} {', '.join(f'({self._row.format(*row)})' for row in numbers)}"
        self._base.executemany(statement, values.reshape(-1, at_once * _VALUES).tolist())

    def describe(self, file: RankFile, steps: Iterable[tuple[int, int, int]], more: dict[str, str]) -> None:
        """What a tool must know of a whole rank; of each step its number, begin and end in ns. Of a profile's tables
        those that have rows are left as they are.
        """
        tables: dict[str, Iterable[tuple[Any, ...]]] = {
            "ENUM_MSTX_EVENT_TYPE": _TYPES,
            "SESSION_TIME_INFO": [(self.first_ns, self.last_ns)],
            "HOST_INFO": [(str(zlib.crc32(file.host.encode())), clean_name(file.host_name))],
            "NPU_INFO": [(max(file.number, 0), "Ascend")],
            "RANK_DEVICE_MAP": [(file.number, max(file.number, 0))],
            "META_DATA": [*_VERSION, *((name, clean_name(value)) for name, value in more.items())],
            "STEP_TIME": steps,
        }
        for table, rows in tables.items():
            listed = list(rows)
            if listed and self._base.execute(f"select 1 from {table} limit 1").fetchone() is None:
                marks = ", ".join("?" * len(listed[0]))
                names = ", ".join(self._list_columns(table)[: len(listed[0])])
                self._base.executemany(f"insert into {table} ({names}) values ({marks})", listed)

    def begin_early(self, first_ns: int, last_ns: int) -> None:
        """One more session, from the first of our ranges on that began a little before one that is told already.

        Insight draws nothing that began before all sessions; the stage for which a profiler was started did.
        """
        earliest_ns = first_ns - max(_EARLY_NS, last_ns - first_ns)
        ours = f"startNs >= ? and connectionId >= {self._first_connection}"
        begun = f"select min(startNs) at from MSTX_EVENTS where {ours}"
        query = f"insert into SESSION_TIME_INFO (startTimeNs, endTimeNs) select at, ? from ({begun}) where at < ?"
        self._base.execute(query, (last_ns, earliest_ns, first_ns))

    def finish(self) -> None:
        """All of it is in the file, which has no journal beside it and can be read where nothing can be written."""
        self._base.execute("commit")
        self._base.execute("pragma journal_mode = delete")
        self._base.close()
        os.chmod(self._path, documents.FILE_MODE)

    def close(self) -> None:
        """Close it as it is, where it is not finished."""
        self._base.close()
