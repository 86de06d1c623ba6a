"""What profilers write of a device, in every format that can be imported, made of the same events.

Tables and columns by the rules of msprof's schema (1.0.0, 1.1.0, 1.2.0), of msMonitor, and of level none; JSON and CSV
as torch_npu 2.13.0 and torch 2.13.0 write them. Times are ns of the recorder's wall clock.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from mstxkit.host import identity

Times = tuple[int, int]
NONE = 4294967295
# Who records, as the builders of runs have it; other ranks count from there.
PID, HOST = 100, identity.name_host()
MS = 1_000_000
# All there is in each; columns are name and kind.
_ALWAYS = {
    "STRING_IDS": "id integer primary key, value text", "META_DATA": "name text, value text",
    "SESSION_TIME_INFO": "startTimeNs integer, endTimeNs integer", "HOST_INFO": "hostUid text, hostName text",
    "NPU_INFO": "id integer, name text", "RANK_DEVICE_MAP": "rankId integer, deviceId integer",
}  # fmt: skip
_TASK = (
    "{start} integer, {end} integer, deviceId integer, connectionId integer, globalTaskId integer, globalPid integer, "
    "taskType integer, contextId integer, streamId integer, taskId integer, modelId integer"
)
_COMPUTE = "name integer, globalTaskId integer primary key, {block} integer, taskType integer, opType integer"
_MSTX = (
    "startNs integer, endNs integer, eventType integer, rangeId integer, category integer, message integer, "
    "globalTid integer, endGlobalTid integer, domainId integer, connectionId integer"
)
_OPERATION = "opName integer, {start} integer, {end} integer, connectionId integer, groupName integer, opId integer"
_OPERATION_TASK = (
    "name integer, globalTaskId integer, taskType integer, planeId integer, groupName integer, opId integer"
)
SCHEMAS = ("0", "1.0.0", "1.1.0", "1.2.0", "msmonitor", "level none")


@dataclass
class Device:
    """What happened on a device: kernels, collectives with what in them waited and moved data, ranges of the host."""

    rank: int = 0
    kernels: list[Times] = field(default_factory=list)
    collectives: list[tuple[str, int, int]] = field(default_factory=list)
    waits: list[Times] = field(default_factory=list)
    moves: list[Times] = field(default_factory=list)
    ranges: list[tuple[str, int, int]] = field(default_factory=list)
    window: Times | None = None
    pid: int = PID
    host: str = HOST

    def shifted(self, by_ns: int, drift: float = 0.0) -> Device:
        """The same by a clock that is ahead by so much, and goes fast by that part."""
        first = min((start for start, _ in self.kernels), default=0)

        def moved(time: int) -> int:
            return time + by_ns + round((time - first) * drift)

        def both(all: list[Any]) -> list[Any]:
            return [(*row[:-2], moved(row[-2]), moved(row[-1])) for row in all]

        window = None if self.window is None else (moved(self.window[0]), moved(self.window[1]))
        lists = (self.kernels, self.collectives, self.waits, self.moves, self.ranges)
        return Device(self.rank, *map(both, lists), window=window, pid=self.pid, host=self.host)


class _Texts:
    """STRING_IDS."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base, self._ids = base, {}  # type: ignore[var-annotated]

    def __call__(self, text: str) -> int:
        if text not in self._ids:
            self._ids[text] = len(self._ids)
            self._base.execute("insert into STRING_IDS values (?, ?)", (self._ids[text], text))
        return int(self._ids[text])


def ascend_db(path: Path, device: Device, schema: str = "1.2.0", journal: str = "delete") -> Path:
    """The database of a rank. Of schema 1.0.0 there are no mstx events; msMonitor has no tasks of collectives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {"start": "start", "end": "end"} if schema == "0" else {"start": "startNs", "end": "endNs"}
    with closing(sqlite3.connect(path)) as base, base:  # closed also where the format has no such number
        base.execute(f"pragma journal_mode={journal}")
        for table, columns in _tables(schema, names).items():
            base.execute(f"create table {table}({columns})")
        text = _Texts(base)
        _fill(base, text, device, schema)
    return path


def _tables(schema: str, names: dict[str, str]) -> dict[str, str]:
    tables = {**_ALWAYS, "TASK": _TASK.format(**names)}
    if schema != "level none":
        tables["COMPUTE_TASK_INFO"] = _COMPUTE.format(block="blockDim" if schema in ("0", "1.0.0") else "blockNum")
        more = ", deviceId integer, rankSize integer" if schema in ("1.2.0", "msmonitor") else ""
        tables["COMMUNICATION_OP"] = _OPERATION.format(**names) + more
        if schema != "msmonitor":
            tables["COMMUNICATION_TASK_INFO"] = _OPERATION_TASK
    if schema not in ("0", "1.0.0"):
        tables["MSTX_EVENTS"] = _MSTX
    return tables


def _fill(base: sqlite3.Connection, text: _Texts, device: Device, schema: str) -> None:
    def task(id: int, kind: str, times: Times, connection: int = NONE) -> None:
        row = (*times, 0, connection, id, device.pid, text(kind), NONE, 3, id, NONE)
        base.execute("insert into TASK values (?,?,?,?,?,?,?,?,?,?,?)", row)

    for id, kernel in enumerate(device.kernels):
        task(id, "KERNEL_AICORE", kernel)
        if schema != "level none":
            base.execute("insert into COMPUTE_TASK_INFO values (?,?,?,?,?)", (text("MatMul"), id, 8, 0, text("MatMul")))
    if schema != "level none":
        for id, (group, start, end) in enumerate(device.collectives):
            row: tuple[Any, ...] = (text("hcom_allReduce_"), start, end, id, text(group), id)
            row += (0, 2) if schema in ("1.2.0", "msmonitor") else ()
            base.execute(f"insert into COMMUNICATION_OP values ({','.join('?' * len(row))})", row)
    else:
        for id, (group, start, end) in enumerate(device.collectives):
            _communication_range(base, text, 4000000001 + id, group, (start, end), device.pid)
            task(5000 + id, "MsTx", (start, end), 4000000001 + id)
    if schema not in ("msmonitor", "level none"):
        parts = (("Notify_Wait", device.waits), ("Memcpy", device.moves))
        for id, (kind, times) in enumerate(((kind, times) for kind, all in parts for times in all), 100_000):
            task(id, "MEMCPY_ASYNC" if kind == "Memcpy" else "NOTIFY_WAIT", times)
            row = (text(kind), id, text(kind), 0, text("group"), 0)
            base.execute("insert into COMMUNICATION_TASK_INFO values (?,?,?,?,?,?)", row)
    if schema not in ("0", "1.0.0"):
        for id, (name, start, end) in enumerate(device.ranges, 4000900001):
            _event(base, text, name, (start, end), "default", id, device.pid)
    _about(base, device, schema)


def _communication_range(base: sqlite3.Connection, text: _Texts, id: int, group: str, times: Times, pid: int) -> None:
    message = json.dumps({"streamId": "3", "count": "8", "dataType": "fp32", "groupName": group, "opName": "allReduce"})
    _event(base, text, message, (times[0] - 50_000, times[0] - 40_000), "communication", id, pid)


def _event(
    base: sqlite3.Connection, text: _Texts, name: str, times: Times, domain: str, id: int, pid: int
) -> None:  # fmt: skip
    thread = pid << 32 | pid
    row = (*times, 2, NONE, NONE, text(name), thread, thread, text(domain), id)
    base.execute("insert into MSTX_EVENTS values (?,?,?,?,?,?,?,?,?,?)", row)


def _about(base: sqlite3.Connection, device: Device, schema: str) -> None:
    if device.window is not None:
        base.execute("insert into SESSION_TIME_INFO values (?, ?)", device.window)
    base.execute("insert into HOST_INFO values ('1', ?)", (device.host,))
    base.execute("insert into RANK_DEVICE_MAP values (?, 0)", (device.rank,))
    if schema[0] == "1":
        base.execute("insert into META_DATA values ('SCHEMA_VERSION', ?)", (schema,))


def us(ns: int) -> str:
    """Microseconds as Ascend's JSON has them: a text with three digits more."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def trace_view(path: Path, device: Device, has_overlap: bool = True) -> Path:
    """With or without the process Overlap Analysis."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {1: "python", 2: "Ascend Hardware", 3: "Communication", **({4: "Overlap Analysis"} if has_overlap else {})}
    events: list[dict[str, Any]] = []

    def add(pid: int, tid: int, name: str, times: Times, **arguments: Any) -> None:
        length = (times[1] - times[0]) / 1000
        events.append({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": us(times[0]), "dur": length,
                       "args": arguments})  # fmt: skip

    for kernel in device.kernels:
        add(2, 3, "MatMul", kernel, **{"Task Type": "AI_CORE"})
        if has_overlap:
            add(4, 0, "Computing", kernel)
    for number, (group, start, end) in enumerate(device.collectives):
        add(3, 0, f"hcom_allReduce__{group}_{number}_1", (start, end))
        if has_overlap:
            add(4, 1, "Communication", (start, end))
            add(4, 2, "Communication(Not Overlapped)", (start, end))
    for times in device.waits:
        add(3, 10, "Notify_Wait", times)
    for times in device.moves:
        add(3, 10, "Memcpy", times)
    for name, start, end in device.ranges:
        add(1, 1, name, (start, end), event_type="start/end", domain="default")
    named = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names.items()]
    named.append({"ph": "M", "name": "thread_name", "pid": 3, "tid": 10, "args": {"name": "Plane 0"}})
    path.write_text(json.dumps(events + named))
    return path


def kernel_details(path: Path, device: Device) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [("MatMul", "MatMul", "AI_CORE", *times) for times in device.kernels]
    rows += [(f"hcom_allReduce__{group}_0_1", "hcom_allReduce_", "COMMUNICATION", start, end)
             for group, start, end in device.collectives]  # fmt: skip
    lines = ["Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"]
    lines += [
        f'1,0,{name},{kind},{core},"{us(start)}\t",{(end - start) / 1000:.3f},0'
        for name, kind, core, start, end in rows
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def communication(path: Path, device: Device) -> Path:
    """Transit and waiting as they are in each collective."""
    path.parent.mkdir(parents=True, exist_ok=True)
    operations = {}
    for number, (group, start, end) in enumerate(device.collectives):
        wait, moved = (sum(b - a for a, b in all if start <= a < end) for all in (device.waits, device.moves))
        operations[f"hcom_allReduce__{group}_{number}_1@{group}"] = {
            "Communication Time Info": {
                "Start Timestamp(us)": start / 1000, "Elapse Time(ms)": (end - start) / MS,
                "Transit Time(ms)": moved / MS, "Wait Time(ms)": wait / MS, "Synchronization Time(ms)": wait / MS,
                "Idle Time(ms)": 0.0, "Wait Time Ratio": 0.5, "Synchronization Time Ratio": 0.5,
            },
            "Communication Bandwidth Info": {"SDMA": {"Transit Size(MB)": 1.0, "Size Distribution": {}}},
        }  # fmt: skip
    total = {"Total Op Info": {"Communication Time Info": {"Start Timestamp(us)": 0, "Elapse Time(ms)": 9e9}}}
    path.write_text(json.dumps({"step1": {"p2p": {}, "collective": {**operations, **total}}}))
    return path


def torch_trace(path: Path, device: Device, has_kernels: bool = True) -> Path:
    """Of a GPU, or of a CPU alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    base = 1_690_000_000_000_000_000
    events: list[dict[str, Any]] = []

    def add(kind: str, name: str, times: Times, **arguments: Any) -> None:
        events.append({"ph": "X", "cat": kind, "name": name, "pid": device.pid, "tid": 7,
                       "ts": (times[0] - base) / 1000, "dur": (times[1] - times[0]) / 1000,
                       "args": arguments})  # fmt: skip

    kernel = "kernel" if has_kernels else "cpu_op"
    for times in device.kernels:
        add(kernel, "void at::native::gemm<float>()" if has_kernels else "aten::mm", times)
    for group, start, end in device.collectives:
        name = "ncclDevKernel_AllReduce_Sum_bf16" if has_kernels else "gloo:all_reduce"
        add(kernel, name, (start, end), **{"Process Group Name": group})
    for name, start, end in device.ranges:
        add("user_annotation", name, (start, end))
    add("user_annotation", "ProfilerStep#3", (device.kernels[0][0], device.kernels[-1][1]))
    document = {
        "schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": base, "host_name": device.host,
        "distributedInfo": {"backend": "nccl", "rank": device.rank, "world_size": 2}, "traceEvents": events,
        "traceName": "trace.json",
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def flight_recorder(path: Path, device: Device) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [
        {"record_id": number, "process_group": [group, "default_pg"], "collective_seq_id": number,
         "profiling_name": "nccl:all_reduce", "time_created_ns": start, "time_discovered_started_ns": None,
         "time_discovered_completed_ns": end, "state": "completed"}
        for number, (group, start, end) in enumerate(device.collectives)
    ]  # fmt: skip
    path.write_text(json.dumps({"version": "2.10", "rank": device.rank, "pg_config": {}, "entries": entries}))
    return path


def otlp(path: Path, device: Device) -> Path:
    """One line for each kernel, as a span."""
    path.parent.mkdir(parents=True, exist_ok=True)
    attributes = [
        {"key": "rank", "value": {"intValue": str(device.rank)}},
        {"key": "host.name", "value": {"stringValue": device.host}},
    ]
    lines = []
    for start, end in device.kernels:
        span = {"name": "llm_request", "startTimeUnixNano": str(start), "endTimeUnixNano": str(end)}
        resource = {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [span]}]}
        lines.append(json.dumps({"resourceSpans": [resource]}))
    path.write_text("\n".join(lines) + "\n")
    return path


def nsys(path: Path, device: Device) -> Path:
    """An export of Nsight Systems by its schema reference; times count from the begin of the session."""
    path.parent.mkdir(parents=True, exist_ok=True)
    began = 1_690_000_000_000_000_000
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("create table StringIds(id integer primary key, value text not null)")
        base.execute("create table TARGET_INFO_SESSION_START_TIME(utcEpochNs integer, utcTime text, localTime text)")
        base.execute("create table TARGET_INFO_SYSTEM_ENV(globalVid integer, devStateName text, name text, nameEnum "
                     "integer, value text)")  # fmt: skip
        kernel = "deviceId integer, streamId integer, globalPid integer, demangledName integer, shortName integer"
        base.execute(f"create table CUPTI_ACTIVITY_KIND_KERNEL(start integer not null, end integer not null, {kernel})")
        span = "eventType integer, text text, globalTid integer, domainId integer, textId integer"
        base.execute(f"create table NVTX_EVENTS(start integer not null, end integer, {span})")
        base.execute("insert into TARGET_INFO_SESSION_START_TIME values (?, '', '')", (began,))
        base.execute("insert into TARGET_INFO_SYSTEM_ENV values (0, '', 'Hostname', 0, ?)", (device.host,))
        texts = dict.fromkeys(["gemm", "ncclDevKernel_AllReduce_Sum_bf16", *(name for name, _, _ in device.ranges)])
        base.executemany("insert into StringIds values (?, ?)", list(enumerate(texts)))
        ids, who = {name: id for id, name in enumerate(texts)}, device.pid << 24
        rows = [(start, end, "gemm") for start, end in device.kernels]
        rows += [(start, end, "ncclDevKernel_AllReduce_Sum_bf16") for _, start, end in device.collectives]
        kernels = [(start - began, end - began, who, ids[name], ids[name]) for start, end, name in rows]
        base.executemany("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, 7, ?, ?, ?)", kernels)
        ranges = [(start - began, end - began, who | 1, ids[name]) for name, start, end in device.ranges]
        base.executemany("insert into NVTX_EVENTS values (?, ?, 59, null, ?, 0, ?)", ranges)
        base.execute("insert into NVTX_EVENTS values (5, null, 34, 'a mark', ?, 0, null)", (who | 1,))
    return path


WRITERS: dict[str, tuple[str, Callable[[Path, Device], Path]]] = {
    "ascend_db": ("ascend_pytorch_profiler_0.db", ascend_db),
    "trace_view": ("rank0/trace_view.json", trace_view),
    "kernel_details": ("rank0/kernel_details.csv", kernel_details),
    "communication": ("rank0/communication.json", communication),
    "torch_trace": ("host_4711.pt.trace.json", torch_trace),
    "flight_recorder": ("fr_0.json", flight_recorder),
    "otlp": ("spans.jsonl", otlp),
    "nsys": ("report1.sqlite", nsys),
}
