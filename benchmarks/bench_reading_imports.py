"""Importing what a profiler recorded: a database of 2.8 million tasks, and a trace in JSON, to stages of a run.

Each is made up by the rules of its format, and imported by a fresh process. For comparison only, and of another
machine: a peer's published time for a database of that many events is 677 s (mindie-agent).
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"database": {}, "json": {}}
TASKS, EVENTS = 2_800_000, 1_000_000
# Of a database's tasks: so many compute, the rest are parts of collectives, so many each.
COMPUTING, PARTS = 2_000_000, 16
STEPS, STEP_NS, AT = 100, 600_000_000, 1_700_000_000_000_000_000
STAGES = (("actor_generate", 0.5), ("reward", 0.6), ("actor_update", 1.0))
IMPORT = """
import json, sys, time
import numpy, polars
from pathlib import Path
from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.run import open_run
def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak_kb()
began, cpu = time.perf_counter(), time.process_time()
sources = _places.find_files([Path(sys.argv[2])], [])
(made,) = _importing.import_all(open_run(sys.argv[1]).files, sources, lambda _: None)
taken, cpu = time.perf_counter() - began, time.process_time() - cpu
kinds = [sum(row[name] for row in made.rows) / 1e9 for name in ("computing_ns", "communicating_ns", "free_ns")]
print(json.dumps([made.events, len(made.rows), taken, cpu, peak_kb(), before, kinds, made.clocks[0]["how"]]))
"""


def measure(variant: str) -> list[Row]:
    """One reading by a fresh process: it takes long enough."""
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        run = _write_run(Path(folder))
        write = {"database": _write_database, "json": _write_json}[variant]
        file = write(Path(folder))
        size = file.stat().st_size
        events, rows, taken, cpu, peak, before, kinds, how = _imported(run, file)
    assert (rows, how) == (STEPS * len(STAGES), "ranges"), (rows, how)
    assert sum(kinds) > 0.98 * STEPS * STEP_NS / 1e9, kinds
    megabytes = peak * 1024 / 1e6
    note = f"{events:,} events of {size / 1e6:.0f} MB; {taken:.1f} s, {megabytes - before * 1024 / 1e6:.0f} MB more"
    made = [
        Row(f"imports.{variant}_cpu_s", cpu, "s", note=note),
        Row(f"imports.{variant}_mb", megabytes, "MB", note=note),
    ]
    return made + ([Row("imports.json_mb_a_s", size / 1e6 / cpu, "MB/s")] if variant == "json" else [])


def _imported(run: Path, file: Path) -> list[Any]:
    command = [sys.executable, "-c", IMPORT, str(run), str(file)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read: list[Any] = json.loads(done.stdout)
    return read


def _stage_times() -> Iterator[tuple[int, str, int, int]]:
    for step in range(STEPS):
        begin, last = step * STEP_NS + (step * 7919) % 1000 * 1000, 0.0
        for name, part in STAGES:
            yield step, name, begin + int(last * STEP_NS), begin + int(part * STEP_NS) - 2_000_000
            last = part


def _write_run(folder: Path) -> Path:
    import mstxkit

    program = (
        "import sys; sys.path.insert(0, 'tests'); from pathlib import Path; "
        "from builders.run_files import *; from benchmarks.bench_reading_imports import _stage_times; "
        "run = new_run(Path(sys.argv[1])); bank = BankFiles(); "
        "[bank.range(n, a, b, stage=n, own=True, step=s) for s, n, a, b in _stage_times()]; "
        "ProcessFiles(run, 100, anchors=(anchor(0), anchor(10**11))).seal(bank)"
    )
    assert mstxkit
    subprocess.run([sys.executable, "-c", program, str(folder / "run")], cwd=HERE.parent, check=True)
    return folder / "run"


def _write_database(folder: Path) -> Path:
    file = folder / "ascend_pytorch_profiler_0.db"
    base = sqlite3.connect(file)
    base.executescript(
        """
        pragma journal_mode = off; pragma synchronous = off;
        create table STRING_IDS(id integer primary key, value text);
        create table META_DATA(name text, value text);
        create table RANK_DEVICE_MAP(rankId integer, deviceId integer);
        create table SESSION_TIME_INFO(startTimeNs integer, endTimeNs integer);
        create table TASK(startNs integer, endNs integer, deviceId integer, connectionId integer, globalTaskId integer,
            globalPid integer, taskType integer, contextId integer, streamId integer, taskId integer, modelId integer);
        create table COMPUTE_TASK_INFO(name integer, globalTaskId integer primary key, blockNum integer,
            mixBlockNum integer, taskType integer, opType integer);
        create table COMMUNICATION_TASK_INFO(name integer, globalTaskId integer, taskType integer, planeId integer,
            groupName integer, opId integer);
        create table COMMUNICATION_OP(opName integer, startNs integer, endNs integer, connectionId integer,
            groupName integer, opId integer primary key, deviceId integer);
        create table MSTX_EVENTS(startNs integer, endNs integer, eventType integer, rangeId integer, category integer,
            message integer, globalTid integer, endGlobalTid integer, domainId integer, connectionId integer);
        insert into RANK_DEVICE_MAP values (0, 0);
        """
    )
    texts = ["MatMul", "Notify_Wait", "Memcpy", "default", "group", *(name for name, _ in STAGES)]
    base.executemany("insert into STRING_IDS values (?, ?)", list(enumerate(texts)))
    base.execute("insert into SESSION_TIME_INFO values (?, ?)", (AT, AT + STEPS * STEP_NS + 10_000_000))
    _fill(base, texts)
    base.commit()
    base.close()
    return file


def _fill(base: sqlite3.Connection, texts: list[str]) -> None:
    every = STEPS * STEP_NS
    compute, part = every // COMPUTING, every // (TASKS - COMPUTING)
    base.executemany(
        "insert into TASK values (?, ?, 0, ?, ?, 1, 0, 0, 3, 0, 0)",
        ((AT + n * compute, AT + n * compute + compute * 3 // 4, n, n) for n in range(COMPUTING)),
    )
    base.executemany("insert into COMPUTE_TASK_INFO values (0, ?, 8, 0, 0, 0)", ((n,) for n in range(COMPUTING)))
    base.executemany(
        "insert into TASK values (?, ?, 0, ?, ?, 1, 0, 0, 4, 0, 0)",
        ((AT + n * part, AT + (n + 1) * part, n, COMPUTING + n) for n in range(TASKS - COMPUTING)),
    )
    base.executemany(
        "insert into COMMUNICATION_TASK_INFO values (?, ?, ?, 0, 4, ?)",
        ((1 + n % 2, COMPUTING + n, 1 + n % 2, n // PARTS) for n in range(TASKS - COMPUTING)),
    )
    base.executemany(
        "insert into COMMUNICATION_OP values (0, ?, ?, ?, 4, ?, 0)",
        ((AT + n * PARTS * part, AT + (n + 1) * PARTS * part, n, n) for n in range((TASKS - COMPUTING) // PARTS)),
    )
    base.executemany(
        "insert into MSTX_EVENTS values (?, ?, 2, 0, 0, ?, 1, 1, 3, 0)",
        [(AT + start, AT + end, texts.index(name)) for _, name, start, end in _stage_times()],
    )


def _write_json(folder: Path) -> Path:
    """As torch_npu writes `trace_view.json`: a list, whatever its size on one line."""
    file = folder / "rank0" / "trace_view.json"
    file.parent.mkdir()
    length = STEPS * STEP_NS // EVENTS
    with open(file, "w") as stream:
        stream.write('[{"ph": "M", "name": "process_name", "pid": 4, "args": {"name": "Overlap Analysis"}}')
        stream.write(', {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "Ascend Hardware"}}')
        for _, name, start, end in _stage_times():
            _write_event(stream, 1, name, AT + start, end - start, '{"event_type": "start/end", "domain": "default"}')
        for number in range(EVENTS):
            name, pid = (("Computing", 4), ("Communication", 4), ("aclnnMatmul_MatMulV3", 2))[number % 3]
            arguments = '{"Task Type": "AI_CORE", "Physic Stream Id": 3, "Task Id": 65533, "Batch Id": 0}'
            _write_event(stream, pid, name, AT + number * length, length, arguments)
        stream.write("]")
    return file


def _write_event(stream: Any, pid: int, name: str, start: int, length: int, arguments: str) -> None:
    ts = f"{start // 1000}.{start % 1000:03d}"
    event = f'"name": "{name}", "pid": {pid}, "tid": 3, "ts": "{ts}", "dur": {length / 1000}, "args": {arguments}'
    stream.write(f', {{"ph": "X", {event}}}')
