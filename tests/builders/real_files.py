"""Real profiles that others have published, and what they tell, found out without mstxkit's readers: by the tool's own
table where there is one, else by adding up what stands in the file.

They are where `make real-files` has put them, below .venvs/real_files, or, with REAL_FILES_AT, in another folder.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import os
import re
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Iterable, NamedTuple

Stretches = list[tuple[int, int]]
_ROOT = Path(__file__).resolve().parents[2]
TOP = Path(os.environ.get("REAL_FILES_AT", _ROOT / ".venvs" / "real_files"))
GUIDE, BEGIN, END = _ROOT / "docs/guide/import.md", "<!-- made by `make real-files` -->\n", "<!-- end -->\n"
_COLLECTIVE = re.compile(r"nccl|hccl|hcom|gloo|xccl|c10d", re.IGNORECASE)
_OUTPUT = "ASCEND_PROFILER_OUTPUT"
# Their files hold a few rows of the step that the table beside them is of.
_EXCERPTS = ("test_rank_0", "test_rank_1")
_MOVES = ("SDMA", "RDMA", "Memcpy", "Reduce_Inline", "RDMASend", "RDMA Send", "SDMA Memcpy")


class Told(NamedTuple):
    """What a file tells of a stretch of time. Lengths in ns; None where it is not told.

    Args:
        by: Who says so.
        communicating: In which nothing was computed.
        transfer: Between what the time in which data moved lies.
        host: Who recorded it, as far as it says.
    """

    by: str
    begin: int
    end: int
    computing: int | None = None
    communicating: int | None = None
    overlapped: int | None = None
    free: int | None = None
    transfer: tuple[int, int] | None = None
    host: str = ""


def here() -> list[str]:
    """The repositories that are here."""
    return sorted(path.parent.name for path in TOP.glob("*/commit"))


def sources() -> Any:
    """The repositories that `make real-files` takes them from, as .ci/real_files.py has them."""
    spec = importlib.util.spec_from_file_location("real_files_of_ci", _ROOT / ".ci/real_files.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SOURCES


def told(path: Path) -> Told | None:
    """What a profile tells; None where there is no other way to find out."""
    if path.suffix == ".db":
        return _of_database(path)
    if path.suffix == ".csv":
        return _of_kernels(path)
    document = _document(path)
    if isinstance(document, list):
        return _of_trace_view(path, document)
    if not isinstance(document, dict):
        return None
    return _of_torch(document) if "traceEvents" in document else _of_communication(document)


def _document(path: Path) -> Any:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    try:  # numbers as they are written: a time in microseconds since 1970 is more than a float holds
        return json.loads(content.decode("utf-8-sig", "replace"), parse_float=Decimal)
    except ValueError:
        return None


def _ns(microseconds: Any) -> int:
    return round(Decimal(str(microseconds).strip()) * 1000)


# Tables of steps, and what moved, as torch_npu says it.


def _table_of_steps(output: Path) -> dict[str, int] | None:
    """Of a profile of one step: lengths."""
    file, rows = output / "step_trace_time.csv", list[dict[str, Any]]()
    if file.exists():
        with open(file, newline="") as opened:
            rows = list(csv.DictReader(opened))
        names = ("Computing", "Communication(Not Overlapped)", "Overlapped", "Free")
    elif (output / "analysis.db").exists():
        rows = _rows(output / "analysis.db", "select * from StepTraceTime")
        names = ("computing", "communication_not_overlapped", "overlapped", "free")
    if len(rows) != 1:
        return None
    lengths = [_ns(rows[0][name]) for name in names]
    return dict(zip(("computing", "communicating", "overlapped", "free"), lengths))


def _rows(file: Path, query: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as base:
        base.row_factory = sqlite3.Row
        return [dict(row) for row in base.execute(query)]


def _transfer(output: Path) -> tuple[int, int] | None:
    """Between transit and what was elapsed but for waiting, by communication.json or the table made of it."""
    file = output / "communication.json"
    if not file.exists() and (output / "analysis.db").exists():
        tables = {row["name"] for row in _rows(output / "analysis.db", "select name from sqlite_master")}
        named = _rows(output / "analysis.db", "select * from CommAnalyzerTime") if "CommAnalyzerTime" in tables else []
        times = [(row["transit_time"], row["elapse_time"], row["wait_time"]) for row in named]
    elif file.exists():
        times = [_times(about) for about in _operations(json.loads(file.read_text()))]
    else:
        return None
    ms = [sum(Decimal(str(value)) for value in column) for column in zip(*times)]
    return (int(ms[0] * 1_000_000), int((ms[1] - ms[2]) * 1_000_000)) if ms else None


def _operations(document: Any) -> Iterable[dict[str, Any]]:
    for step in document.values():
        for kind in step.values():
            yield from (about for name, about in kind.items() if "Total" not in name)


def _times(about: dict[str, Any]) -> tuple[Any, Any, Any]:
    times = about["Communication Time Info"]
    return (
        times["Transit Time(ms)"],
        times.get("Elapse Time(ms)", times.get("Elapsed Time(ms)")),
        times["Wait Time(ms)"],
    )


# Files.


def _of_database(path: Path) -> Told | None:
    tables = {row["name"] for row in _rows(path, "select name from sqlite_master")}
    if not {"TASK", "COMPUTE_TASK_INFO", "COMMUNICATION_OP"} <= tables:
        return None
    kernels = "select startNs, endNs from COMPUTE_TASK_INFO join TASK using (globalTaskId)"
    computing, whole = (
        [(row["startNs"], row["endNs"]) for row in _rows(path, query)]
        for query in (kernels, "select startNs, endNs from COMMUNICATION_OP")
    )
    moving = "(select id from STRING_IDS where value in ({}))".format(", ".join(f"'{name}'" for name in _MOVES))
    moves = f"""select t.startNs, t.endNs from COMMUNICATION_TASK_INFO c join TASK t using (globalTaskId)
        where t.taskType in {moving} or c.taskType in {moving}"""
    moved = _rows(path, moves) if "COMMUNICATION_TASK_INFO" in tables else []
    made = _made("its own rows", computing, whole, [(row["startNs"], row["endNs"]) for row in moved])
    hosts = _rows(path, "select hostName from HOST_INFO") if "HOST_INFO" in tables else []
    return None if made is None else _by_table(path, made._replace(host=hosts[0]["hostName"] if hosts else ""))


def _of_kernels(path: Path) -> Told | None:
    """`kernel_details.csv`, or msprof's `op_summary`."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    length = next((name for name in ("Duration(us)", "Task Duration(us)") if rows and name in rows[0]), None)
    if length is None or "Start Time(us)" not in rows[0]:
        return None
    stretches: tuple[Stretches, Stretches] = ([], [])
    for row in rows:
        begin, kinds = _ns(row["Start Time(us)"]), [row.get(name) for name in ("Type", "Accelerator Core", "Task Type")]
        name = row.get("Name") or row.get("Op Name") or ""
        is_collective = "COMMUNICATION" in kinds or bool(_COLLECTIVE.match(name))
        stretches[is_collective].append((begin, begin + _ns(row[length])))
    return _by_table(path, _made("its own rows", *stretches))


def _of_trace_view(path: Path, events: list[Any]) -> Told | None:
    """By its process Overlap Analysis, which is msprof's own."""
    named = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    kinds: dict[str, Stretches] = {}
    for event in events:
        if named.get(event.get("pid")) == "Overlap Analysis" and event.get("ph") == "X":
            begin = _ns(event["ts"])
            kinds.setdefault(event["name"], []).append((begin, begin + _ns(event["dur"])))
    if "Computing" not in kinds:
        whole = _union([(_ns(at["ts"]), _ns(at["ts"]) + _ns(at["dur"])) for at in events if at.get("ph") == "X"])
        return Told("", whole[0][0], whole[-1][1]) if whole else None
    made = _made("its Overlap Analysis", kinds["Computing"], kinds.get("Communication", []))
    return _by_table(path, made)


def _of_communication(document: dict[str, Any]) -> Told | None:
    """When it communicated at all."""
    stretches: Stretches = []
    try:
        for about in _operations(document):
            begin = _ns(about["Communication Time Info"]["Start Timestamp(us)"])
            stretches.append((begin, begin + _ns(Decimal(str(_times(about)[1])) * 1000)))
    except (AttributeError, KeyError, TypeError):  # another tool's
        return None
    whole = _union(stretches)
    return Told("", whole[0][0], whole[-1][1]) if whole else None


def _of_torch(document: dict[str, Any], kinds: tuple[str, ...] = ("kernel",)) -> Told | None:
    """Without a kernel only when operators ran is told."""
    base, host = int(document.get("baseTimeNanoseconds", 0)), str(document.get("host_name", ""))
    stretches: tuple[Stretches, Stretches] = ([], [])
    operators: Stretches = []
    for event in document["traceEvents"]:
        kind = str(event.get("cat")).lower()
        if event.get("ph") == "X" and (kind == "cpu_op" or kind in kinds):
            begin = base + _ns(event["ts"])
            where = operators if kind == "cpu_op" else stretches[bool(_COLLECTIVE.search(event["name"][:200]))]
            where.append((begin, begin + _ns(event["dur"])))
    made = _made("its own events", *stretches)
    if made is None and operators:
        made = Told("", min(operators)[0], max(end for _, end in operators))
    return None if made is None else made._replace(host=host)


def report_of(trace: Path) -> Path | None:
    """TraceLens' own report of a trace."""
    folders = (trace.with_name(trace.name.removesuffix(".json.gz") + "_perf_report_csvs"), trace.parent / "perf_csvs")
    return next((folder / "gpu_timeline.csv" for folder in folders if (folder / "gpu_timeline.csv").exists()), None)


def by_report(report: Path) -> Told:
    """What it says."""
    with open(report, newline="") as file:
        ms = {row["type"]: row["time ms"] for row in csv.DictReader(file)}
    return Told(
        "TraceLens", 0, 0, *(_ns(Decimal(ms[name]) * 1000) for name in ("computation_time", "exposed_comm_time"))
    )


def with_memsets(trace: Path) -> Told | None:
    """A trace, in which memsets compute: some versions of TraceLens take them for kernels."""
    return _of_torch(_document(trace), ("kernel", "gpu_memset"))


def _made(by: str, computing: Stretches, whole: Stretches, moved: Stretches | None = None) -> Told | None:
    computing, whole = _union(computing), _union(whole)
    if not computing and not whole:
        return None
    busy = _union(computing + whole)
    apart, both = _length(busy) - _length(computing), _length(computing) + _length(whole) - _length(busy)
    begin, end = busy[0][0], busy[-1][1]
    transfer = None
    if moved:
        alone = _shared(busy, moved) - _shared(computing, moved)
        transfer = (alone, alone)
    return Told(by, begin, end, _length(computing), apart, both, end - begin - _length(busy), transfer)


def _by_table(path: Path, made: Told | None) -> Told | None:
    """Figures of the table of steps beside it, from the first event of the device on."""
    if made is None or path.parent.name != _OUTPUT or path.parent.parent.name in _EXCERPTS:
        return made
    table, bounds = _table_of_steps(path.parent), _transfer(path.parent)
    if bounds is not None and made.transfer is None:
        made = made._replace(transfer=(max(0, bounds[0] - (made.overlapped or 0)), bounds[1]))
    if table is None:
        return made
    end = made.begin + table["computing"] + table["communicating"] + table["free"]
    return Told("step_trace_time", made.begin, end, **table, transfer=made.transfer, host=made.host)


def _union(stretches: Stretches) -> Stretches:
    made: Stretches = []
    for begin, end in sorted(stretches):
        if made and begin <= made[-1][1]:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        elif end > begin:
            made.append((begin, end))
    return made


def _shared(one: Stretches, other: Stretches) -> int:
    return _length(_union(one)) + _length(_union(other)) - _length(_union(one + other))


def _length(stretches: Stretches) -> int:
    return sum(end - begin for begin, end in stretches)
