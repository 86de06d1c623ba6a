"""The database of a rank as torch_npu, MindSpore, msprof and msMonitor write it.

Computing are tasks with a row in COMPUTE_TASK_INFO, communicating are rows of COMMUNICATION_OP, as msprof's own overlap
analysis has it; what moved data and what waited is in COMMUNICATION_TASK_INFO. Without these (level none), tasks are
told apart by their type, and collectives are ranges of the mstx domain `communication`.

Source: msprof 9ba1ac7be `msprof_db.cpp` (schema 1.0.0 to 1.2.0; times are ns since 1970 by the host's clock),
torch_npu 2.13.0 `prof_db_parse/`, msMonitor b942bf5 `DataBase.cpp`. Before 1.0 the columns were `start` and `end`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Callable

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...store.values import small_number
from ..folder import Damage, reason_of
from . import Importer, _bounds
from ._database import MAGIC, UNREADABLE, Database, distinct_values, is_of_nsys, open_database
from ._trace import LATEST_NS, RANGES_AT_MOST, CoveredTime, DeviceTrace, NamedStretches, are_usable, clean_text

_NAME = re.compile(r"(ascend_pytorch_profiler|ascend_mindspore_profiler|msprof)(_\d{1,16})?\.db|msmonitor_.*\.db")
_TASK, _COMPUTE, _COMM, _COMM_TASK = "TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "COMMUNICATION_TASK_INFO"
_MSTX, _RANKS = "MSTX_EVENTS", "RANK_DEVICE_MAP"
_OURS = {_TASK, _COMM, _MSTX}
_START, _END = ("startNs", "start", "startTimeNs"), ("endNs", "end", "endTimeNs")
_COMPUTES = re.compile(r"AI_?CORE|AI_?VEC|AIC\b|AIV\b|MIX|AI_?CPU|FFTS", re.IGNORECASE)
# What a task of a collective does, by its type, in COMMUNICATION_TASK_INFO or TASK; a value written is a signal.
_MOVED, _WAITED, _UNTOLD, _OTHER = 1, 2, 3, 4
_MOVES = re.compile(r"memcpy|sdma|rdma|reduce|send|write|read|ub", re.IGNORECASE)
_SIGNALS = re.compile(r"notify|record|write.?value|wait", re.IGNORECASE)
_NEVER = re.compile(r"(?!)")
_KINDS = ((_MOVED, _MOVES, _SIGNALS), (_WAITED, re.compile(r"wait", re.IGNORECASE), _NEVER))
_BY_TYPE = (*_KINDS, (_UNTOLD, re.compile(r"^\s*(n/?a)?\s*$", re.IGNORECASE), _NEVER))
_MARK_TYPES = "0, 3"
_COMMUNICATION_DOMAIN = "communication"
_Numbers = npt.NDArray[np.int64]
_NOTHING: _Numbers = np.zeros(0, dtype=np.int64)


def read_traces(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace; one for each rank where RANK_DEVICE_MAP has several devices.
    Raises FormatError: it is no such database.
    """
    with open_database(path, advance) as base:
        if not _OURS & {*base.tables}:
            shown = ", ".join(sorted(base.tables)[:5]) or "none"
            raise FormatError(f"is a database, but not a profiler's: it has no TASK, COMMUNICATION_OP or MSTX_EVENTS "
                              f"(its tables: {shown})")  # fmt: skip
        pairs = base.pairs(_RANKS, "rankId", "deviceId")
        ranks = [(rank, device) for rank, device in pairs if small_number(rank) is not None and type(device) is int]
        devices: dict[int | None, int | None] = {device: rank for rank, device in ranks}
        if len(devices) < 2:
            devices = {None: ranks[0][0] if len(ranks) == 1 else None}
        return [_RankOfDatabase(base, path, device, rank).trace() for device, rank in devices.items()]


class _RankOfDatabase:
    """One rank of a database."""

    def __init__(self, base: Database, path: Path, device: int | None, rank: int | None) -> None:
        self._base, self._device = base, device
        self._trace, self._has_kernels = DeviceTrace(str(path), IMPORTER.what, rank), True
        self._unsure: set[str] = set()

    def trace(self) -> DeviceTrace:
        trace = self._trace
        for part in (self._read_who, self._read_tasks, self._read_operations, self._host_ranges):
            try:  # what cannot be read of one part leaves the others
                part()
            except UNREADABLE as exc:
                Damage.of(trace.file, f"{reason_of(exc)[:200]}: the rest of a table is left out").note_in(trace.damage)
        return trace

    def _read_who(self) -> None:
        trace, base = self._trace, self._base
        trace.host = next((clean_text(name) for _, name in base.pairs("HOST_INFO", "hostUid", "hostName", 1)), "")
        for start, end in base.pairs("SESSION_TIME_INFO", "startTimeNs", "endTimeNs", 1):
            if type(start) is int and type(end) is int and 0 < start < end < LATEST_NS:
                trace.window = start, end

    def _read_times(self, table: str) -> tuple[str, str] | None:
        start, end = self._base.column(table, *_START), self._base.column(table, *_END)
        return (start, end) if start and end else None

    def _of_device(self, table: str) -> str:
        if self._device is None or not self._base.column(table, "deviceId"):
            return ""
        return f"deviceId = {self._device:d}"

    def _read_tasks(self) -> None:
        trace, times, base = self._trace, self._read_times(_TASK), self._base
        if times is None:
            for table in (name for name in (_COMPUTE, _COMM_TASK) if base.column(name, "globalTaskId")):
                why = f"has no times of tasks (table {_TASK}), of which {table} tells"
                Damage.of(trace.file, why).note_in(trace.damage)
            return
        computing, moving, waiting = (CoveredTime() for _ in range(3))
        try:
            self._sort_tasks(times, computing, {_MOVED: moving, _WAITED: waiting})
        finally:
            if self._has_kernels and _COMPUTE not in self._unsure:
                trace.computing = computing.told()
            if (moving.count or waiting.count) and _COMM_TASK not in self._unsure:
                trace.transfer, trace.waiting = moving.told(), waiting.told()
            trace.lose("tasks have no usable time and are left out", computing, moving, waiting)

    def _sort_tasks(
        self, times: tuple[str, str], computing: CoveredTime, of_collectives: dict[int, CoveredTime]
    ) -> None:
        base = self._base
        id, type = base.column(_TASK, "globalTaskId"), base.column(_TASK, "taskType")
        has_compute, communication = id and base.column(_COMPUTE, "globalTaskId"), self._find_collectives(id)
        compute = _TaskIds(base.all_numbers(_COMPUTE, "globalTaskId")[:, 0] if has_compute else _NOTHING)
        types = [] if len(compute.ids) or not type else self._find_types(_COMPUTES)
        if not id and not type:
            self._trace.notes.append("its tasks have no type: all of them count as computing")
        elif not len(compute.ids) and not types:
            self._has_kernels = False
            self._trace.notes.append("it was recorded without kernels (level none): nobody knows what was free")
        has_untold = bool(type) and _UNTOLD in communication.kinds
        by_type = {kind: self._find_types(*patterns) for kind, *patterns in _KINDS} if has_untold else {}
        columns = (*times, id or times[0], type if has_untold or types else times[0])
        for rows in base.numbers(_TASK, *columns, where=self._of_device(_TASK)):
            self._trace.events += len(rows)
            starts, ends, ids, of_type = np.ascontiguousarray(rows.T)
            if self._has_kernels:
                chosen = np.isin(of_type, types) if types else np.ones(len(rows), dtype=bool)
                chosen = compute.kinds_of(ids) > 0 if len(compute.ids) else chosen
                computing.extend(starts[chosen], ends[chosen])
            kinds = communication.kinds_of(ids)
            for kind, stretches in of_collectives.items():
                kinds[(kinds == _UNTOLD) & np.isin(of_type, by_type.get(kind, []))] = kind
                stretches.extend(starts[kinds == kind], ends[kinds == kind])
        if len(communication.ids) and not any(stretches.count for stretches in of_collectives.values()):
            self._trace.notes.append("its tasks of collectives do not say what they did: moved data, or waited")
        self._count_ids(_COMPUTE, compute, 0)
        self._count_ids(_COMM_TASK, communication, int(np.isin(communication.ids, compute.ids).sum()))

    def _count_ids(self, table: str, tasks: _TaskIds, doubled: int) -> None:
        """How many tasks, or rows about tasks, have the id of one before them, and how many ids no task has."""
        is_first = np.append(True, tasks.ids[1:] != tasks.ids[:-1])[: len(tasks.ids)]
        doubled += int(np.maximum(tasks.times - 1, 0).sum()) + int(np.count_nonzero(~is_first))
        self._unsure |= {table} if doubled else set()
        why = f"rows of {_TASK} or {table} have the id of another one: which is meant is not known"
        self._trace.lost[why] += doubled
        if self._device is None:
            missing = int(np.count_nonzero(is_first & (tasks.times == 0)))
            self._trace.lost[f"rows of {table} have no task: when they ran is not known"] += missing

    def _find_collectives(self, id: str) -> _TaskIds:
        """What each task of a collective did, as far as COMMUNICATION_TASK_INFO tells; at level 0 it does not."""
        if not id or not all(self._base.column(_COMM_TASK, name) for name in ("globalTaskId", "taskType")):
            return _TaskIds(_NOTHING)
        ids, of_rows = self._base.all_numbers(_COMM_TASK, "globalTaskId", "taskType").T
        types = distinct_values(of_rows)
        names = self._base.texts(types)
        kinds = [
            next((kind for kind, is_one, but in _BY_TYPE if is_one.search(name) and not but.search(name)), _OTHER)
            for name in (names.get(type, "") for type in types)
        ]
        return _TaskIds(ids, np.array(kinds, dtype=np.int8)[np.searchsorted(types, of_rows)])

    def _find_types(self, pattern: re.Pattern[str], but: re.Pattern[str] | None = None) -> list[int]:
        """Values of TASK.taskType whose names match."""
        names = self._base.texts(self._base.distinct(_TASK, "taskType"))
        return [type for type, name in names.items() if pattern.search(name) and not (but and but.search(name))]

    def _read_operations(self) -> None:
        trace, stretches, times = self._trace, CoveredTime(), self._read_times(_COMM)
        is_there = times is not None
        if times is not None:
            self._of_operations(times, stretches)
        if not stretches.count:
            is_there |= self._of_communication_ranges(stretches)
        if is_there:
            trace.communicating = stretches.told()
        elif self._base.column(_COMM_TASK, "globalTaskId"):
            why = f"has no table {_COMM}, of which {_COMM_TASK} tells: nobody knows what communicated"
            Damage.of(trace.file, why).note_in(trace.damage)
        elif trace.computing is not None:
            trace.communicating = stretches.told()
            trace.notes.append("it has no table of collectives: what they took, if there were any, counts as free")
        trace.lose("collectives have no usable time and are left out", stretches)

    def _of_operations(self, times: tuple[str, str], stretches: CoveredTime) -> None:
        if self._device is not None and not self._base.column(_COMM, "deviceId"):
            self._trace.notes.append("its collectives do not say of which device they are: they are left out")
            return
        group, name = (self._base.column(_COMM, column) for column in ("groupName", "opName"))
        where = self._of_device(_COMM)
        rows = self._base.all_numbers(_COMM, *times, group or times[0], name or times[0], where=where)
        self._trace.events += len(rows)
        stretches.extend(rows[:, 0], rows[:, 1])
        if group and name:
            operations = self._base.texts(distinct_values(rows[:, 3]))
            of_all = [code for code, operation in operations.items() if _bounds.needs_all(operation)]
            named = rows[:RANGES_AT_MOST][np.isin(rows[:RANGES_AT_MOST, 3], of_all)]
            self._trace.operations = self._base.called(named[:, 2], named[:, 0], named[:, 1])

    def _of_communication_ranges(self, stretches: CoveredTime) -> bool:
        """Device parts of the mstx ranges that torch_npu puts around each collective: tasks of the same connection."""
        needed = ("message", "domainId", "connectionId")
        times = self._read_times(_TASK)
        has_all = all(self._base.column(_MSTX, name) for name in needed) and self._base.column(_TASK, "connectionId")
        rows = self._base.all_numbers(_MSTX, *needed) if times and has_all else np.zeros((0, 3), dtype=np.int64)
        rows = rows[self._is_of_communication(rows[:, 1])]
        rows = rows[np.unique(rows[:, 2], return_index=True)[1]]
        if times is None or not len(rows):
            return False
        parts = [np.zeros((0, 3), dtype=np.int64)]
        for part in self._base.numbers(_TASK, *times, "connectionId", where=self._of_device(_TASK)):
            place = _place_in(rows[:, 2], part[:, 2])
            parts.append(np.column_stack((part[:, :2], place))[place >= 0])
            stretches.extend(*parts[-1][:, :2].T)
        starts, ends, place = np.concatenate(parts).T
        messages = self._base.texts(distinct_values(rows[:, 0]))
        groups = [_group_in(messages.get(code, "")) for code in rows[:, 0].tolist()]
        self._trace.operations = NamedStretches.of(groups, place, starts, ends)
        return True

    def _is_of_communication(self, domains: _Numbers) -> npt.NDArray[np.bool_]:
        names = self._base.texts(distinct_values(domains))
        return np.isin(domains, [id for id, name in names.items() if name == _COMMUNICATION_DOMAIN])

    def _host_ranges(self) -> None:
        times, base = self._read_times(_MSTX), self._base
        if times is None or not base.column(_MSTX, "message"):
            return
        domain, thread = base.column(_MSTX, "domainId"), base.column(_MSTX, "globalTid")
        where = f"eventType not in ({_MARK_TYPES})" if base.column(_MSTX, "eventType") else ""
        columns = (*times, "message", domain or "message", thread or "message")
        rows = base.all_numbers(_MSTX, *columns, where=where)[:RANGES_AT_MOST]
        self._trace.events += len(rows)
        own = rows[~self._is_of_communication(rows[:, 3])] if domain else rows
        self._trace.ranges = base.called(own[:, 2], own[:, 0], own[:, 1])
        unusable = int(np.count_nonzero(~are_usable(own[:, 0], own[:, 1])))
        self._trace.lose("ranges of the host have no usable time", count=unusable)
        if thread and len(rows):
            self._trace.pid = small_number(int(rows[0, 4]) >> 32) or None


def _place_in(ordered: _Numbers, values: _Numbers) -> _Numbers:
    """The place of each of these values among others, which are in order; -1 where it is none of them."""
    if not len(ordered):
        return np.full(len(values), -1)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.where(ordered[place] == values, place, -1)


class _TaskIds:
    """Ids of tasks, in order, and what each is; and how often the table of tasks was found to have it (`times`)."""

    def __init__(self, ids: _Numbers, kinds: npt.NDArray[np.int8] | None = None) -> None:
        order = np.argsort(ids, kind="stable")
        own = np.ones(len(ids), dtype=np.int8) if kinds is None else kinds[order]
        self.ids, self.kinds = ids[order], np.append(own, np.int8(0))
        self.times = np.zeros(len(ids), dtype=np.int64)

    def kinds_of(self, tasks: _Numbers) -> npt.NDArray[np.int8]:
        """The kind of each of these tasks; 0 for what is none of them."""
        place = _place_in(self.ids, tasks)
        np.add.at(self.times, place[place >= 0], 1)
        return self.kinds[place]


def _group_in(message: str) -> str | None:
    """The group of a collective that everybody's data are needed for."""
    # Cut where it is long: then its end is missing, and it is no JSON any more.
    try:
        fields = json.loads(message)
        group = clean_text(fields.get("groupName")) if isinstance(fields, dict) else ""
    except (ValueError, RecursionError):
        match = re.search(r'"groupName"\s*:\s*"([^"\\]{1,200})"', message)
        group = match[1] if match else ""
    return group if group and _bounds.needs_all(message) else None


IMPORTER = Importer(
    "Ascend DB",
    lambda path, head: bool(_NAME.fullmatch(path.name)) or (head.startswith(MAGIC) and not is_of_nsys(path, head)),
    read_traces, preference=1,
)  # fmt: skip
