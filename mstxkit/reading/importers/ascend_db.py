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
from ._database import MAGIC, UNREADABLE, Database, is_of_nsys, opened
from ._trace import LATEST_NS, RANGES_AT_MOST, CoveredTime, DeviceTrace, NamedColumn, text

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
_KINDS = ((_MOVED, _MOVES, _SIGNALS), (_WAITED, re.compile(r"wait", re.IGNORECASE), re.compile(r"(?!)")))
_MARK_TYPES = "0, 3"
_COMMUNICATION_DOMAIN = "communication"
_Numbers = npt.NDArray[np.int64]
_NOTHING: _Numbers = np.zeros(0, dtype=np.int64)


def read(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace; one for each rank where RANK_DEVICE_MAP has several devices.
    Raises FormatError: it is no such database.
    """
    with opened(path, advance) as base:
        if not _OURS & {*base.tables}:
            shown = ", ".join(sorted(base.tables)[:5]) or "none"
            raise FormatError(f"is a database, but not a profiler's: it has no TASK, COMMUNICATION_OP or MSTX_EVENTS "
                              f"(its tables: {shown})")  # fmt: skip
        ranks = _read_ranks(base)
        devices = {device: rank for rank, device in ranks} if len({device for _, device in ranks}) > 1 else {None: None}
        return [_RankOfDatabase(base, path, device, rank).trace() for device, rank in devices.items()]


def _read_ranks(base: Database) -> list[tuple[int, int]]:
    pairs = base.pairs(_RANKS, "rankId", "deviceId")
    return [(rank, device) for rank, device in pairs if small_number(rank) is not None and type(device) is int]


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
        ranks = [rank for rank, _ in _read_ranks(base)]
        if trace.rank is None and len(ranks) == 1:
            trace.rank = ranks[0]
        trace.host = next((text(name) for _, name in base.pairs("HOST_INFO", "hostUid", "hostName", 1)), "")
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
                Damage.of(trace.file, f"has no times of tasks (table {_TASK}), of which {table} tells").note_in(
                    trace.damage
                )
            return
        computing, moving, waiting = (CoveredTime() for _ in range(3))
        try:
            self._sort_tasks(times, computing, moving, waiting)
        finally:
            if self._has_kernels and _COMPUTE not in self._unsure:
                trace.computing = computing.told()
            if (moving.count or waiting.count) and _COMM_TASK not in self._unsure:
                trace.transfer, trace.waiting = moving.told(), waiting.told()
            trace.lose("tasks have no usable time and are left out", computing, moving, waiting)

    def _sort_tasks(
        self, times: tuple[str, str], computing: CoveredTime, moving: CoveredTime, waiting: CoveredTime
    ) -> None:
        base = self._base
        id, type = base.column(_TASK, "globalTaskId"), base.column(_TASK, "taskType")
        has_compute = id and base.column(_COMPUTE, "globalTaskId")
        compute = _TaskIds(np.sort(base.all_numbers(_COMPUTE, "globalTaskId")[:, 0]) if has_compute else _NOTHING)
        communication = self._of_collectives(id)
        types = _NOTHING if len(compute.ids) or not type else self._find_types(_COMPUTES)
        if not id and not type:
            self._trace.notes.append("its tasks have no type: all of them count as computing")
        elif not len(compute.ids) and not len(types):
            self._has_kernels = False
            self._trace.notes.append("it was recorded without kernels (level none): nobody knows what was free")
        has_untold = bool(type) and _UNTOLD in communication.kinds
        by_type = {kind: self._find_types(*patterns) for kind, *patterns in _KINDS} if has_untold else {}
        columns = (*times, id or times[0], type if has_untold or len(types) else times[0])
        for rows in base.numbers(_TASK, *columns, where=self._of_device(_TASK)):
            self._trace.events += len(rows)
            starts, ends, ids, of_type = np.ascontiguousarray(rows.T)
            if self._has_kernels:
                every = _are_among(of_type, types) if len(types) else np.ones(len(rows), dtype=bool)
                chosen = compute.kinds_of(ids) > 0 if len(compute.ids) else every
                computing.extend(starts[chosen], ends[chosen])
            kinds = communication.kinds_of(ids) if len(communication.ids) else _NOTHING
            for kind, stretches in ((_MOVED, moving), (_WAITED, waiting)):
                chosen = kinds == kind
                if by_type:
                    chosen |= (kinds == _UNTOLD) & _are_among(of_type, by_type[kind])
                stretches.extend(starts[: len(kinds)][chosen], ends[: len(kinds)][chosen])
        if len(communication.ids) and not moving.count and not waiting.count:
            self._trace.notes.append("its tasks of collectives do not say what they did: moved data, or waited")
        self._count_ids({_COMPUTE: compute, _COMM_TASK: communication})

    def _count_ids(self, every: dict[str, _TaskIds]) -> None:
        for table, ids in every.items():
            if not len(ids.ids):
                continue
            # How many tasks, or rows about tasks, have the id of one before them, and how many ids no task has.
            times = np.bincount(np.concatenate([_NOTHING, *ids.places]), minlength=len(ids.ids))
            is_first = np.append(True, ids.ids[1:] != ids.ids[:-1])
            doubled = int(np.maximum(times - 1, 0).sum()) + int(np.count_nonzero(~is_first))
            missing = int(np.count_nonzero(is_first & (times == 0)))
            doubled += int(np.isin(ids.ids, every[_COMPUTE].ids).sum()) if table != _COMPUTE else 0
            self._unsure |= {table} if doubled else set()
            why = f"rows of {_TASK} or {table} have the id of another one: which is meant is not known"
            self._trace.lost[why] += doubled
            if self._device is None:
                self._trace.lost[f"rows of {table} have no task: when they ran is not known"] += missing

    def _of_collectives(self, id: str) -> _TaskIds:
        """What each task of a collective did, as far as COMMUNICATION_TASK_INFO tells; at level 0 it does not."""
        if not id or not all(self._base.column(_COMM_TASK, name) for name in ("globalTaskId", "taskType")):
            return _TaskIds(_NOTHING)
        rows = self._base.all_numbers(_COMM_TASK, "globalTaskId", "taskType")
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        types = _distinct_values(rows[:, 1])
        names, kinds = self._base.texts(types), np.zeros(len(rows), dtype=np.int8)
        for type in types:
            name = names.get(type, "")
            kind = next((kind for kind, is_one, but in _KINDS if is_one.search(name) and not but.search(name)), _OTHER)
            kinds[rows[:, 1] == type] = _UNTOLD if name.strip().upper() in ("", "N/A", "NA") else kind
        return _TaskIds(rows[:, 0], kinds)

    def _find_types(self, pattern: re.Pattern[str], but: re.Pattern[str] | None = None) -> _Numbers:
        """Values of TASK.taskType whose names match."""
        names = self._base.texts(self._base.distinct(_TASK, "taskType"))
        chosen = (type for type, name in names.items() if pattern.search(name) and not (but and but.search(name)))
        return np.array(sorted(chosen), dtype=np.int64)

    def _read_operations(self) -> None:
        trace, stretches, column = self._trace, CoveredTime(), NamedColumn()
        times = self._read_times(_COMM)
        is_there = times is not None
        if times is not None:
            self._of_operations(times, stretches, column)
        if not stretches.count:
            is_there |= self._of_communication_ranges(stretches, column)
        if is_there:
            trace.communicating = stretches.told()
        elif self._base.column(_COMM_TASK, "globalTaskId"):
            why = f"has no table {_COMM}, of which {_COMM_TASK} tells: nobody knows what communicated"
            Damage.of(trace.file, why).note_in(trace.damage)
        elif trace.computing is not None:
            trace.communicating = stretches.all()
            trace.notes.append("it has no table of collectives: what they took, if there were any, counts as free")
        trace.lose("collectives have no usable time and are left out", stretches)
        trace.operations = column.all()

    def _of_operations(self, times: tuple[str, str], stretches: CoveredTime, column: NamedColumn) -> None:
        if self._device is not None and not self._base.column(_COMM, "deviceId"):
            self._trace.notes.append("its collectives do not say of which device they are: they are left out")
            return
        group, name = (self._base.column(_COMM, column) for column in ("groupName", "opName"))
        where = self._of_device(_COMM)
        rows = self._base.all_numbers(_COMM, *times, group or times[0], name or times[0], where=where)
        self._trace.events += len(rows)
        stretches.extend(rows[:, 0], rows[:, 1])
        names = self._base.texts(_distinct_values(rows[:, 2])) if group else {}
        operations = self._base.texts(_distinct_values(rows[:, 3])) if name else {}
        of_all = {code for code, operation in operations.items() if _bounds.needs_all(operation)}
        for start, end, code, operation in rows[:RANGES_AT_MOST].tolist():
            if code in names and operation in of_all:
                column.add(names[code], start, end)

    def _of_communication_ranges(self, stretches: CoveredTime, column: NamedColumn) -> bool:
        """Device parts of the mstx ranges that torch_npu puts around each collective: tasks of the same connection."""
        needed = ("message", "domainId", "connectionId")
        times = self._read_times(_TASK)
        if times is None or not all(self._base.column(_MSTX, name) for name in needed):
            return False
        if not self._base.column(_TASK, "connectionId"):
            return False
        rows = self._base.all_numbers(_MSTX, *needed)
        domains = self._base.texts(_distinct_values(rows[:, 1]))
        ours = [id for id, name in domains.items() if name == _COMMUNICATION_DOMAIN]
        rows = rows[np.isin(rows[:, 1], ours)]
        rows = rows[np.unique(rows[:, 2], return_index=True)[1]]
        if not len(rows):
            return False
        messages = self._base.texts(_distinct_values(rows[:, 0]))
        for part in self._base.numbers(_TASK, *times, "connectionId", where=self._of_device(_TASK)):
            mine = part[_are_among(part[:, 2], rows[:, 2])]
            stretches.extend(mine[:, 0], mine[:, 1])
            codes = rows[np.searchsorted(rows[:, 2], mine[:, 2]), 0].tolist()
            for (start, end, _), code in zip(mine.tolist(), codes):
                message = messages.get(code, "")
                if (group := _group_in(message)) and _bounds.needs_all(message):
                    column.add(group, start, end)
        return True

    def _host_ranges(self) -> None:
        times, base = self._read_times(_MSTX), self._base
        if times is None or not base.column(_MSTX, "message"):
            return
        domain, thread = base.column(_MSTX, "domainId"), base.column(_MSTX, "globalTid")
        where = f"eventType not in ({_MARK_TYPES})" if base.column(_MSTX, "eventType") else ""
        columns = (*times, "message", domain or "message", thread or "message")
        rows = base.all_numbers(_MSTX, *columns, where=where)[:RANGES_AT_MOST]
        self._trace.events += len(rows)
        names = base.texts(_distinct_values(rows[:, 2:4].ravel() if domain else rows[:, 2]))
        column = NamedColumn()
        for start, end, message, of, _ in rows.tolist():
            if message in names and not (domain and names.get(of) == _COMMUNICATION_DOMAIN):
                column.add(names[message], start, end)
        self._trace.ranges = column.all()
        self._trace.lose("ranges of the host have no usable time", column)
        if thread and len(rows):
            self._trace.pid = small_number(int(rows[0, 4]) >> 32) or None


def _distinct_values(values: _Numbers) -> list[int]:
    """Each value once, in order. numpy's own `unique` hashes, which takes ten times as long for a million of few."""
    ordered = np.sort(values)
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return [int(value) for value in ordered[is_new]]


def _are_among(values: _Numbers, ordered: _Numbers) -> npt.NDArray[np.bool_]:
    """Which of these values are among others, which are in order."""
    if not len(ordered):
        return np.zeros(len(values), dtype=bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[place] == values)


class _TaskIds:
    """Ids of tasks, in order, and what each is; and which of them the table of tasks was found to have."""

    def __init__(self, ids: _Numbers, kinds: npt.NDArray[np.int8] | None = None) -> None:
        self.ids, self.kinds = ids, np.ones(len(ids), dtype=np.int8) if kinds is None else kinds
        self.places: list[npt.NDArray[np.int32]] = []

    def kinds_of(self, tasks: _Numbers) -> npt.NDArray[np.int8]:
        """The kind of each of these tasks; 0 for what is none of them."""
        place = np.minimum(np.searchsorted(self.ids, tasks), len(self.ids) - 1)
        is_one = self.ids[place] == tasks
        self.places.append(place[is_one].astype(np.int32))
        return np.where(is_one, self.kinds[place], np.int8(0))


def _group_in(message: str) -> str:
    # Cut where it is long: then its end is missing, and it is no JSON any more.
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):
        match = re.search(r'"groupName"\s*:\s*"([^"\\]{1,200})"', message)
        return match[1] if match else ""
    return text(fields.get("groupName")) if isinstance(fields, dict) else ""


IMPORTER = Importer(
    "Ascend DB",
    lambda path, head: bool(_NAME.fullmatch(path.name)) or (head.startswith(MAGIC) and not is_of_nsys(path, head)),
    read, preference=1,
)  # fmt: skip
