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
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import numpy.typing as npt

from ...errors import FormatError
from ...store.values import list_of, small_number, table_of
from ..folder import Damage, reason_of
from . import Importer
from ._database import MAGIC, UNREADABLE, Database, opened
from ._trace import LATEST_NS, NAME_CHARACTERS, RANGES_AT_MOST, CoveredTime, DeviceTrace, NamedColumn, text

_NAME = re.compile(r"(ascend_pytorch_profiler|ascend_mindspore_profiler|msprof)(_\d{1,16})?\.db|msmonitor_.*\.db")
_TASK, _COMPUTE, _COMM, _COMM_TASK = "TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP", "COMMUNICATION_TASK_INFO"
_MSTX, _RANKS = "MSTX_EVENTS", "RANK_DEVICE_MAP"
_OURS = {_TASK, _COMM, _MSTX}
_START, _END = ("startNs", "start", "startTimeNs"), ("endNs", "end", "endTimeNs")
_COMPUTES = re.compile(r"AI_?CORE|AI_?VEC|AIC\b|AIV\b|MIX|AI_?CPU|FFTS", re.IGNORECASE)
_WAITS = re.compile(r"wait", re.IGNORECASE)
_MOVES = re.compile(r"memcpy|sdma|rdma|reduce|send|write|read|ub", re.IGNORECASE)
_SIGNALS = re.compile(r"notify|record", re.IGNORECASE)
_MARK_TYPES, _GROUPS = "0, 3", "parallel_group_info"
_COMMUNICATION_DOMAIN = "communication"
_Numbers = npt.NDArray[np.int64]


def _is_database(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC) or bool(_NAME.fullmatch(path.name))


def read(path: Path, advance: Callable[[float], None]) -> list[DeviceTrace]:
    """One trace; one for each rank where RANK_DEVICE_MAP has several devices.

    Raises:
        FormatError: it is no such database.
    """
    with opened(path, advance) as base:
        if not _OURS & {*base.tables}:
            shown = ", ".join(sorted(base.tables)[:5]) or "none"
            raise FormatError(f"is a database, but not a profiler's: it has no TASK, COMMUNICATION_OP or MSTX_EVENTS "
                              f"(its tables: {shown})")  # fmt: skip
        ranks = _ranks(base)
        devices = {device: rank for rank, device in ranks} if len({device for _, device in ranks}) > 1 else {None: None}
        return [_RankOfDatabase(base, path, device, rank).trace() for device, rank in devices.items()]


def _ranks(base: Database) -> list[tuple[int, int]]:
    pairs = base.pairs(_RANKS, "rankId", "deviceId")
    return [(rank, device) for rank, device in pairs if small_number(rank) is not None and type(device) is int]


class _RankOfDatabase:
    """One rank of a database."""

    def __init__(self, base: Database, path: Path, device: int | None, rank: int | None) -> None:
        self._base, self._device = base, device
        self._trace, self._has_kernels = DeviceTrace(str(path), IMPORTER.what, rank), True

    def trace(self) -> DeviceTrace:
        trace = self._trace
        for part in (self._who, self._tasks, self._operations, self._host_ranges):
            with self._noted():
                part()
        return trace

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """What cannot be read of one part leaves the others."""
        try:
            yield
        except UNREADABLE as exc:
            why = f"{reason_of(exc)[:200]}: the rest of a table is left out"
            Damage.of(self._trace.file, why).note_in(self._trace.damage)

    def _who(self) -> None:
        trace, base = self._trace, self._base
        ranks = [rank for rank, _ in _ranks(base)]
        if trace.rank is None and len(ranks) == 1:
            trace.rank = ranks[0]
        trace.host = next((text(name) for _, name in base.pairs("HOST_INFO", "hostUid", "hostName", 1)), "")
        for start, end in base.pairs("SESSION_TIME_INFO", "startTimeNs", "endTimeNs", 1):
            if type(start) is int and type(end) is int and 0 < start < end < LATEST_NS:
                trace.window = start, end

        for name, value in base.pairs("META_DATA", "name", "value"):
            if name == _GROUPS:
                trace.group_sizes = _sizes_in(value)

    def _times(self, table: str) -> tuple[str, str] | None:
        start, end = self._base.column(table, *_START), self._base.column(table, *_END)
        return (start, end) if start and end else None

    def _of_device(self, table: str) -> str:
        if self._device is None or not self._base.column(table, "deviceId"):
            return ""
        return f"deviceId = {self._device:d}"

    # Tasks: which compute, which move data, which wait.

    def _tasks(self) -> None:
        trace, times = self._trace, self._times(_TASK)
        if times is None:
            return
        computing, moving, waiting = CoveredTime(), CoveredTime(), CoveredTime()
        try:
            self._sort_tasks(times, computing, moving, waiting)
        finally:
            if self._has_kernels:
                trace.computing = computing.all()
            if moving.count or waiting.count:
                trace.transfer, trace.waiting = moving.all(), waiting.all()
            left_out = computing.left_out + moving.left_out + waiting.left_out
            if left_out:
                Damage.of(trace.file, f"{left_out} tasks are left out: more than can be held").note_in(trace.damage)

    def _sort_tasks(
        self, times: tuple[str, str], computing: CoveredTime, moving: CoveredTime, waiting: CoveredTime
    ) -> None:
        base, id = self._base, self._base.column(_TASK, "globalTaskId")
        by_id = bool(id) and bool(base.column(_COMPUTE, "globalTaskId"))
        computes = self._ids_of_compute() if by_id else np.zeros(0, dtype=np.int64)
        by_id = by_id and bool(len(computes))
        moves, waits = self._ids_of_communication() if id else (computes[:0], computes[:0])
        key = id if by_id else base.column(_TASK, "taskType")
        if not key:
            self._trace.notes.append("its tasks have no type: all of them count as computing")
        elif not by_id:
            computes = self._types_that_compute(key)
            if not len(computes):
                self._has_kernels = False
                self._trace.notes.append("it was recorded without kernels (level none): nobody knows what was free")
        columns = (*times, key or times[0], *([id] if id and id != key else []))
        for rows in base.numbers(_TASK, *columns, where=self._of_device(_TASK)):
            self._trace.events += len(rows)
            starts, ends = rows[:, 0], rows[:, 1]
            chosen = _among(rows[:, 2], computes) if key else np.ones(len(rows), dtype=bool)
            computing.extend(starts[chosen], ends[chosen])
            for ids, kind in ((moves, moving), (waits, waiting)):
                if len(ids):
                    chosen = _among(rows[:, -1], ids)
                    kind.extend(starts[chosen], ends[chosen])

    def _ids_of_compute(self) -> _Numbers:
        return np.sort(self._base.all_numbers(_COMPUTE, "globalTaskId")[:, 0])

    def _ids_of_communication(self) -> tuple[_Numbers, _Numbers]:
        """Tasks of collectives that move data, and those that wait for others."""
        nothing = np.zeros(0, dtype=np.int64)
        if not all(self._base.column(_COMM_TASK, name) for name in ("globalTaskId", "taskType")):
            return nothing, nothing
        rows = self._base.all_numbers(_COMM_TASK, "globalTaskId", "taskType")
        kinds = self._base.texts(_distinct(rows[:, 1]))
        waits = [id for id, kind in kinds.items() if _WAITS.search(kind)]
        moves = [id for id, kind in kinds.items() if _MOVES.search(kind) and not _SIGNALS.search(kind)]
        return tuple(np.sort(rows[np.isin(rows[:, 1], ids), 0]) for ids in (moves, waits))  # type: ignore[return-value]

    def _types_that_compute(self, column: str) -> _Numbers:
        types = sorted({kind for rows in self._base.numbers(_TASK, column) for kind in _distinct(rows[:, 0])})
        names = self._base.texts(types)
        return np.array([type for type in types if _COMPUTES.search(names.get(type, ""))], dtype=np.int64)

    # Collectives, whole.

    def _operations(self) -> None:
        trace, stretches, column = self._trace, CoveredTime(), NamedColumn()
        is_there = self._times(_COMM) is not None
        if is_there:
            self._of_operations(stretches, column)
        if not stretches.count:
            is_there |= self._of_communication_ranges(stretches, column)
        if is_there or trace.computing is not None:
            trace.communicating = stretches.all()
        trace.operations = column.all()

    def _of_operations(self, stretches: CoveredTime, column: NamedColumn) -> None:
        times = self._times(_COMM)
        assert times is not None
        if self._device is not None and not self._base.column(_COMM, "deviceId"):
            self._trace.notes.append("its collectives do not say of which device they are: they are left out")
            return
        group = self._base.column(_COMM, "groupName")
        where = self._of_device(_COMM)
        size = self._base.column(_COMM, "rankSize")
        rows = self._base.all_numbers(_COMM, *times, group or times[0], *([size] if size else []), where=where)
        self._trace.events += len(rows)
        stretches.extend(rows[:, 0], rows[:, 1])
        names = self._base.texts(_distinct(rows[:, 2])) if group else {}
        if size and names:
            sizes = {(code, ranks) for code, ranks in zip(rows[:, 2].tolist(), rows[:, 3].tolist())}
            usable = ((code, ranks) for code, ranks in sizes if code in names and 1 < ranks < 1 << 31)
            self._trace.group_sizes.update((names[code], ranks) for code, ranks in usable)
        for start, end, code in rows[:RANGES_AT_MOST, :3].tolist():
            if code in names:
                column.add(names[code], start, end)

    def _of_communication_ranges(self, stretches: CoveredTime, column: NamedColumn) -> bool:
        """Device parts of the mstx ranges that torch_npu puts around each collective: tasks of the same connection."""
        needed = ("message", "domainId", "connectionId")
        times = self._times(_TASK)
        if times is None or not all(self._base.column(_MSTX, name) for name in needed):
            return False
        if not self._base.column(_TASK, "connectionId"):
            return False
        rows = self._base.all_numbers(_MSTX, *needed)
        domains = self._base.texts(_distinct(rows[:, 1]))
        ours = [id for id, name in domains.items() if name == _COMMUNICATION_DOMAIN]
        rows = rows[np.isin(rows[:, 1], ours)]
        rows = rows[np.unique(rows[:, 2], return_index=True)[1]]
        if not len(rows):
            return False
        messages = self._base.texts(_distinct(rows[:, 0]))
        for part in self._base.numbers(_TASK, *times, "connectionId", where=self._of_device(_TASK)):
            mine = part[_among(part[:, 2], rows[:, 2])]
            stretches.extend(mine[:, 0], mine[:, 1])
            codes = rows[np.searchsorted(rows[:, 2], mine[:, 2]), 0].tolist()
            for (start, end, _), code in zip(mine.tolist(), codes):
                if group := _group_in(messages.get(code, "")):
                    column.add(group, start, end)
        return True

    # Ranges of the host, for the clocks.

    def _host_ranges(self) -> None:
        times, base = self._times(_MSTX), self._base
        if times is None or not base.column(_MSTX, "message"):
            return
        domain, thread = base.column(_MSTX, "domainId"), base.column(_MSTX, "globalTid")
        where = f"eventType not in ({_MARK_TYPES})" if base.column(_MSTX, "eventType") else ""
        columns = (*times, "message", domain or "message", thread or "message")
        rows = base.all_numbers(_MSTX, *columns, where=where)[:RANGES_AT_MOST]
        self._trace.events += len(rows)
        names = base.texts(_distinct(rows[:, 2:4].ravel() if domain else rows[:, 2]))
        column = NamedColumn()
        for start, end, message, of, _ in rows.tolist():
            if message in names and not (domain and names.get(of) == _COMMUNICATION_DOMAIN):
                column.add(names[message], start, end)
        self._trace.ranges = column.all()
        if thread and len(rows):
            self._trace.pid = small_number(int(rows[0, 4]) >> 32) or None


def _distinct(values: _Numbers) -> list[int]:
    """Each value once, in order. numpy's own `unique` hashes, which takes ten times as long for a million of few."""
    ordered = np.sort(values)
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return [int(value) for value in ordered[is_new]]


def _among(values: _Numbers, ordered: _Numbers) -> npt.NDArray[np.bool_]:
    """Which of these values are among others, which are in order."""
    if not len(ordered):
        return np.zeros(len(values), dtype=bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[place] == values)


def _sizes_in(groups: Any) -> dict[str, int]:
    """How many ranks each group has, as torch_npu says it: `{"<group>": {"global_ranks": [0, 1], ...}}`."""
    try:
        fields = table_of(json.loads(groups))
    except (TypeError, ValueError, RecursionError):
        return {}
    ranks = {name: list_of(table_of(about).get("global_ranks")) for name, about in fields.items()}
    return {name[:NAME_CHARACTERS]: len(members) for name, members in ranks.items() if members}


def _group_in(message: str) -> str:
    # Cut where it is long: then its end is missing, and it is no JSON any more.
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):
        match = re.search(r'"groupName"\s*:\s*"([^"\\]{1,200})"', message)
        return match[1] if match else ""
    return text(fields.get("groupName")) if isinstance(fields, dict) else ""


IMPORTER = Importer("Ascend DB", _is_database, read, preference=1)
