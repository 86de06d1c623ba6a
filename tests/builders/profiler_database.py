"""Databases as a parse leaves them, with mstx ranges and steps and nothing of a device: what msprof-analyze reads.

Source: msprof-analyze 26.2.0 and torch_npu 2.13.0 `profiler/analysis/prof_common_func/_db_manager.py` (tables and their
columns). A range's `connectionId` must not be 4294967295, and there is no table TASK where ranges have no device time.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Sequence

OUTPUT = "ASCEND_PROFILER_OUTPUT"
_START_NS = 1_790_000_000_000_000_000
_NONE = 4294967295
_THREAD = (7 << 32) | 7
_TABLES = """
create table STRING_IDS(id integer primary key, value text);
create table MSTX_EVENTS(startNs integer, endNs integer, eventType integer, rangeId integer, category integer,
    message integer, globalTid integer, endGlobalTid integer, domainId integer, connectionId integer);
create table ENUM_MSTX_EVENT_TYPE(id integer primary key, name text);
create table SESSION_TIME_INFO(startTimeNs integer, endTimeNs integer);
create table HOST_INFO(hostUid text, hostName text);
create table NPU_INFO(id integer, name text);
create table RANK_DEVICE_MAP(rankId integer, deviceId integer);
create table META_DATA(name text, value text);
create table STEP_TIME(id integer, startNs integer, endNs integer);
"""


def write_database(raw: Path, rank: int, step: int, ranges: Sequence[tuple[str, int]]) -> Path:
    """The database of a rank below its raw folder; each range is a name and a duration in ns, one after the other."""
    file = raw / OUTPUT / f"ascend_pytorch_profiler_{rank}.db"
    file.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(file) as base:
        base.executescript(_TABLES)
        base.execute("insert into STRING_IDS values (0, 'default')")
        at = _START_NS
        for number, (name, duration_ns) in enumerate(ranges, 1):
            base.execute("insert into STRING_IDS values (?, ?)", (number, name))
            event = (
                at,
                at + duration_ns,
                2,
                _NONE,
                _NONE,
                number,
                (7 << 32) | 7,
                (7 << 32) | 7,
                0,
                4000000000 + number,
            )
            base.execute("insert into MSTX_EVENTS values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event)
            at += duration_ns + 1000
        base.execute("insert into STEP_TIME values (?, ?, ?)", (step, _START_NS - 1000, at))
        base.execute("insert into SESSION_TIME_INFO values (?, ?)", (_START_NS - 1000, at))
        base.execute("insert into HOST_INFO values ('1', 'node1')")
        base.execute("insert into NPU_INFO values (?, 'Ascend910B')", (rank,))
        base.execute("insert into RANK_DEVICE_MAP values (?, ?)", (rank, rank))
        base.execute("insert into META_DATA values ('SCHEMA_VERSION', '1.2.0')")
    base.close()
    return file
