"""What MindStudio Insight draws of a database: its views, asked as its server asks for them.

Source, as facts: msinsight 4e16fca1f. A task is drawn on the lane of its stream unless a range has its connectionId,
and once for each range that has it; nothing is drawn that began before the earliest session; a line joins a call, or a
range, with a task of the same connectionId, unless that is -1 or 4294967295; where a table is missing, an empty one
takes its place. The statements are our own.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

Rows = Counter[tuple[Any, ...]]
_TABLES = {
    "TASK": "startNs, endNs, deviceId, connectionId integer, globalTaskId, taskType, streamId",
    "CANN_API": "startNs, endNs, type, globalTid, connectionId integer, name",
    "PYTORCH_API": "startNs, endNs, globalTid, connectionId integer, name",
    "CONNECTION_IDS": "id, connectionId integer",
    "COMPUTE_TASK_INFO": "name, globalTaskId",
    "COMMUNICATION_SCHEDULE_TASK_INFO": "name, globalTaskId",
    "COMMUNICATION_OP": "opName, startNs, endNs, connectionId integer, groupName, opId",
    "COMMUNICATION_TASK_INFO": "globalTaskId, taskType, planeId, groupName",
    "MSTX_EVENTS": "startNs, endNs, message, globalTid, domainId, connectionId integer",
}
_NAMED_TASK = """
    select t.rowid as task, t.streamId, t.startNs, t.endNs, t.connectionId, t.taskType,
    coalesce(k.name, s.name) as kernel from TASK t left join COMPUTE_TASK_INFO k on k.globalTaskId = t.globalTaskId
    left join COMMUNICATION_SCHEDULE_TASK_INFO s on s.globalTaskId = t.globalTaskId
"""
_LINE = "connectionId not in (-1, 4294967295)"
DEVICE = {
    "lanes of the hardware": """
        select distinct t.streamId, domain.value from TASK t left join MSTX_EVENTS m on m.connectionId = t.connectionId
        left join STRING_IDS domain on domain.id = m.domainId""",
    "tasks on lanes of streams": f"""
        select task, streamId, startNs, endNs, value from ({_NAMED_TASK})
        left join STRING_IDS text on text.id = coalesce(kernel, taskType)
        where connectionId not in (select connectionId from MSTX_EVENTS)""",
    "tasks as parts of ranges": """
        select t.rowid, t.streamId, t.startNs, t.endNs, text.value, domain.value from TASK t
        join MSTX_EVENTS m on m.connectionId = t.connectionId left join STRING_IDS text on text.id = m.message
        left join STRING_IDS domain on domain.id = m.domainId""",
    "events of the hardware": f"""
        select t.task, t.streamId, t.startNs, t.endNs - t.startNs, text.value from ({_NAMED_TASK}) t
        left join MSTX_EVENTS m on m.connectionId = t.connectionId
        left join STRING_IDS text on text.id = coalesce(t.kernel, m.message, t.taskType)""",
    "summary of the hardware": f"""
        select text.value, count(*), sum(endNs - startNs) from ({_NAMED_TASK}) left join STRING_IDS text
        on text.id = coalesce(kernel, taskType) group by text.value""",
    "collectives": """
        select op.opId, text.value, whose.value, op.startNs, op.endNs from COMMUNICATION_OP op
        left join STRING_IDS text on text.id = op.opName left join STRING_IDS whose on whose.id = op.groupName""",
    "tasks on lanes of planes": """
        select t.rowid, whose.value, info.planeId, text.value, t.startNs, t.endNs from COMMUNICATION_TASK_INFO info
        join TASK t on t.globalTaskId = info.globalTaskId left join STRING_IDS text on text.id = info.taskType
        left join STRING_IDS whose on whose.id = info.groupName""",
    "collectives and their tasks": """
        select op.opId, t.rowid from COMMUNICATION_OP op join TASK t on t.connectionId = op.connectionId""",
    "lines from calls to tasks": f"""
        select call.rowid, t.rowid from CANN_API call join TASK t using (connectionId) where {_LINE}""",
    "lines from operators": f"""
        select op.rowid, t.rowid from PYTORCH_API op join CONNECTION_IDS ids on ids.id = op.connectionId
        join TASK t on t.connectionId = ids.connectionId where t.{_LINE}""",
    "lines from ranges to tasks": f"""
        select text.value, m.startNs, t.rowid from MSTX_EVENTS m join TASK t using (connectionId)
        left join STRING_IDS text on text.id = m.message where {_LINE}""",
    "lines from ranges to calls": f"""
        select text.value, m.startNs, call.rowid from MSTX_EVENTS m join CANN_API call using (connectionId)
        left join STRING_IDS text on text.id = m.message where {_LINE}""",
    "calls of the host": """
        select c.rowid, globalTid, type, value, startNs, endNs from CANN_API c left join STRING_IDS t on t.id = name""",
    "operators of the host": """
        select p.rowid, globalTid, value, startNs, endNs from PYTORCH_API p left join STRING_IDS t on t.id = name""",
}
_RANGE = """
    from MSTX_EVENTS m left join STRING_IDS text on text.id = m.message
    left join STRING_IDS domain on domain.id = m.domainId
"""
RANGES = {
    "lanes": f"select globalTid, domain.value, text.value, startNs, endNs {_RANGE} "
    "where startNs >= (select min(startTimeNs) from SESSION_TIME_INFO)",
    "events": f"select globalTid, coalesce(domain.value, 'MSTX'), text.value, startNs, endNs {_RANGE}",
    "by name": "select globalTid, null, value, startNs, endNs from MSTX_EVENTS join STRING_IDS on id = message",
}


class Views:
    """What is drawn of one database.

    Attributes:
        device: By the name of a view, what it shows of devices, and of calls on the host.
        ranges: By the name of a view, the ranges and marks in it: thread, domain, name, begin, end.
    """

    def __init__(self, file: Path) -> None:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as base:
            _open(base)
            self.device = {view: Counter(base.execute(query).fetchall()) for view, query in DEVICE.items()}
            self.ranges = {view: Counter(base.execute(query).fetchall()) for view, query in RANGES.items()}

    def rl_tab(self, names: set[str]) -> Rows:
        """The bars of tasks with these names: name, begin, end."""
        return Counter({row[2:]: count for row, count in self.ranges["by name"].items() if row[2] in names})


def _open(base: sqlite3.Connection) -> None:
    there = {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}
    for table, columns in _TABLES.items():
        if table not in there:
            base.execute(f"create temporary table {table}({columns})")


def added(before: dict[str, Rows], after: dict[str, Rows]) -> dict[str, Rows]:
    """What views show now that they did not show before.

    Raises:
        AssertionError: something that was shown is not shown any more.
    """
    for view, rows in before.items():
        assert not rows - after[view], f"{view}: not drawn any more"
    return {view: after[view] - rows for view, rows in before.items()}
