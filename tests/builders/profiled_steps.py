"""Profiled steps of a run as their parses leave them: collectives of a device, by the rules of msprof and torch_npu.

Source: msprof-analyze 26.2.0 (which tables and columns it reads) and CANN 8.5 (the message of a range of the domain
`communication`; `connectionId` from 4000000001 on; unused ids 4294967295). A collective is over for all members at the
same moment but for `skew_ns`; each host's wall clock is off by its own seconds.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Mapping, Sequence

from builders.profiler_database import write_database

MS = 1_000_000
RUN_ID = "0" * 32
_START_NS = 1_790_000_000_000_000_000
_NO_ID = 4294967295
_TABLES = """
create table TASK(startNs integer, endNs integer, deviceId integer, connectionId integer, globalTaskId integer,
    globalPid integer, taskType integer, contextId integer, streamId integer, taskId integer, modelId integer);
"""
_OPERATIONS = """
create table COMMUNICATION_OP(opName integer, startNs integer, endNs integer, connectionId integer, groupName integer,
    opId integer primary key, relay integer, retry integer, dataType integer, algType integer, count integer,
    opType integer, deviceId integer, rankSize integer);
"""


class ProfiledStep:
    """One window, of all ranks of one group.

    Args:
        run: The run folder; made, with its run.json, where it is missing.
        late_ms: Rank to how long after the first it comes into each collective, one after the other.
    """

    def __init__(self, run: Path, late_ms: Mapping[int, Sequence[float]], group: str = "10.0.0.1%eth0_6000_0") -> None:
        self.run, self.late_ms, self.group = run, late_ms, group
        run.mkdir(exist_ok=True)
        if not (run / "run.json").exists():
            (run / "run.json").write_text(json.dumps({"format": 1, "run": RUN_ID, "created_ns": 1}))

    def write(
        self, step: int = 5, stage: str = "actor_update", parsed: bool = True, as_operations: bool = False,
        takes_ms: float = 2, skew_ns: Mapping[int, int] = {}, **session: Any,
    ) -> None:  # fmt: skip
        """Sessions, raw folders and, where it is parsed, databases; `session`: what is other than usual."""
        last_ms = [max(each) for each in zip(*self.late_ms.values())]
        for rank, late in self.late_ms.items():
            raw = self._session(rank, step, stage, session)
            if parsed:
                waits = [last - own for last, own in zip(last_ms, late)]
                took = [round((wait + takes_ms) * MS) + skew_ns.get(rank, 0) for wait in waits]
                self._database(raw, rank, step, took, as_operations)

    def _session(self, rank: int, step: int, stage: str, session: Mapping[str, Any]) -> Path:
        folder = self.run / "profiles" / stage / f"step{step}" / f"rank{rank}" / f"{1000 + rank}-77"
        raw = folder / "host_77_20261122000000000_ascend_pt"
        raw.mkdir(parents=True)
        about = {
            "format": 1, "run": RUN_ID, "host": f"node{rank}", "pid": 77, "rank": rank, "stage": stage, "step": step,
            "steps": [step], "request": "", "state": "recorded", "output": raw.name, "backend": "torch_npu",
            "start_ns": _START_NS + step,
        }  # fmt: skip
        (folder / "session.json").write_text(json.dumps({**about, **session}))
        return raw

    def _database(self, raw: Path, rank: int, step: int, took_ns: Sequence[int], as_operations: bool) -> None:
        clock_ns = _START_NS + 300 * MS * (-1) ** rank * rank
        spans = [(clock_ns + 1000 * MS * at - took, clock_ns + 1000 * MS * at) for at, took in enumerate(took_ns, 1)]
        with sqlite3.connect(write_database(raw, rank, step, [("forward", 5 * MS)])) as base:
            base.executescript(_TABLES)
            (_as_operations if as_operations else _as_ranges)(base, self.group, spans)
        base.close()


def _as_ranges(base: sqlite3.Connection, group: str, spans: Sequence[tuple[int, int]]) -> None:
    base.executemany("insert into STRING_IDS values (?, ?)", [(900, "communication"), (901, "MsTx")])
    for number, (start, end) in enumerate(spans):
        about = {"streamId": "4", "count": "8", "dataType": "FP32", "groupName": group, "opName": f"allReduce_{number}"}
        connection = 4_000_000_900 + number
        base.execute("insert into STRING_IDS values (?, ?)", (910 + number, json.dumps(about)))
        event = (start - MS, start, 2, _NO_ID, _NO_ID, 910 + number, (7 << 32) | 7, (7 << 32) | 7, 900, connection)
        base.execute("insert into MSTX_EVENTS values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event)
        task = (start, end, 0, connection, _NO_ID, 7, 901, _NO_ID, 4, _NO_ID, _NO_ID)
        base.execute("insert into TASK values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", task)


def _as_operations(base: sqlite3.Connection, group: str, spans: Sequence[tuple[int, int]]) -> None:
    base.executescript(_OPERATIONS)
    base.executemany("insert into STRING_IDS values (?, ?)", [(900, group), (901, "hcom_allReduce_")])
    for number, (start, end) in enumerate(spans):
        row = (901, start, end, 4_000_000_900 + number, 900, number, 0, 0, 0, 0, 1, 0, 0, 8)
        base.execute(f"insert into COMMUNICATION_OP values ({','.join('?' * len(row))})", row)
