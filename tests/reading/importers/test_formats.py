"""Every format tells the same of the same device, and each says by itself what it cannot tell."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import device_profiles, imported_run
from builders.device_profiles import MS, PID, SCHEMAS, WRITERS, Device
from builders.imported_run import APART, REFERENCE, UPDATE
from builders.run_files import WALL_OFFSET_NS

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading import importers
from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.importers._importing import Imported
from mstxkit.reading.run import open_run


def imported(run: Path, *paths: Path) -> list[Imported]:
    damage: list[Any] = []
    files = _places.find_files(paths, damage)
    assert damage == []
    return _importing.import_all(open_run(run).files, files, lambda _: None)


def figures(made: Imported, step: int, stage: str) -> dict[str, int | None]:
    """Lengths in ms."""
    (row,) = (row for row in made.rows if (row["step"], row["stage"]) == (step, stage))
    return {key: value if value is None else round(value / MS, 3) for key, value in row.items() if key.endswith("_ns")}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported_run.run_of(tmp_path_factory.mktemp("import") / "run")


def test_every_format_has_a_module_here_and_is_written_by_the_builder() -> None:
    assert importers.list_formats() == sorted(WRITERS)


# Of one stage, in ms. Tasks tell transfer from waiting; collectives alone do not tell what was free.
DIVIDED, COLLECTIVES = {**UPDATE, "overlapped_ns": 5}, {"communicating_ns": 25, "computing_ns": None, "free_ns": None}
TOLD: dict[str, dict[str, int | None]] = {
    "ascend_db": {**DIVIDED, **APART}, "trace_view": {**DIVIDED, **APART},
    "kernel_details": DIVIDED, "torch_trace": DIVIDED, "nsys": DIVIDED,
    "communication": {**COLLECTIVES, "transfer_ns": 10, "waiting_ns": 15}, "flight_recorder": COLLECTIVES,
    "otlp": {"spans_ns": 30, "computing_ns": None},
}  # fmt: skip


@pytest.mark.parametrize("format", TOLD)
def test_a_stage_is_divided_as_far_as_the_format_tells(run: Path, tmp_path: Path, format: str) -> None:
    name, write = WRITERS[format]
    (made,) = imported(run, write(tmp_path / name, imported_run.device_of()))

    assert figures(made, 2, "actor_update").items() >= TOLD[format].items()
    if TOLD[format].items() >= DIVIDED.items():
        assert figures(made, 2, "reference").items() >= REFERENCE.items()
        assert (made.problem, made.damage) == ("", [])


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_of_the_database_is_read(run: Path, tmp_path: Path, schema: str) -> None:
    file = tmp_path / "ascend_pytorch_profiler_0.db"
    (made,) = imported(run, device_profiles.ascend_db(file, imported_run.device_of(), schema))

    assert figures(made, 3, "reference").items() >= REFERENCE.items()
    assert figures(made, 3, "actor_update").items() >= UPDATE.items()
    has_no_tasks = schema in ("msmonitor", "level none")  # of collectives
    assert (figures(made, 3, "actor_update")["transfer_ns"] is None) == has_no_tasks


def test_a_recording_without_kernels_does_not_say_that_nothing_computed(run: Path, tmp_path: Path) -> None:
    device = imported_run.device_of()
    device.kernels = []
    (made,) = imported(run, device_profiles.ascend_db(tmp_path / "msprof_0.db", device, "level none"))
    update = figures(made, 3, "actor_update")

    assert (update["computing_ns"], update["communicating_ns"], update["free_ns"]) == (None, 25, None)
    assert "level none" in " ".join(made.notes)


def test_a_view_without_overlap_analysis_counts_tasks(run: Path, tmp_path: Path) -> None:
    view = device_profiles.trace_view(tmp_path / "rank0" / "trace_view.json", imported_run.device_of(), False)
    (made,) = imported(run, view)

    assert figures(made, 2, "actor_update").items() >= {**UPDATE, **APART}.items()


def test_a_trace_of_a_cpu_counts_operators_and_says_so(run: Path, tmp_path: Path) -> None:
    trace = device_profiles.torch_trace(tmp_path / "a.pt.trace.json", imported_run.device_of(), has_kernels=False)
    (made,) = imported(run, trace)

    assert figures(made, 2, "actor_update").items() >= UPDATE.items()
    assert "operators on the CPU count as computing" in " ".join(made.notes)


def test_a_trace_of_2021_has_the_same_events_by_other_names(run: Path, tmp_path: Path) -> None:
    """Kineto wrote `Kernel` and `Operator` then, and times since 1970."""
    trace = device_profiles.torch_trace(tmp_path / "a.pt.trace.json", imported_run.device_of())
    document = json.loads(trace.read_text())
    base = document.pop("baseTimeNanoseconds")
    for event in document["traceEvents"]:
        event["cat"] = {"kernel": "Kernel", "cpu_op": "Operator"}.get(event["cat"], event["cat"])
        event["ts"] += base / 1000
    trace.write_text(json.dumps(document))
    (made,) = imported(run, trace)
    (update,) = (row for row in made.rows if (row["step"], row["stage"]) == (2, "actor_update"))

    assert made.notes == []
    assert abs(update["computing_ns"] - 30 * MS) < 1000  # a float of microseconds since 1970 has a quarter of one


def test_copies_and_waits_of_mtia_are_no_kernels(run: Path, tmp_path: Path) -> None:
    """Of its device all events have one category; HolisticTraceAnalysis leaves the copies out as well."""
    trace = device_profiles.torch_trace(tmp_path / "a.pt.trace.json", imported_run.device_of())
    document = json.loads(trace.read_text())
    kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
    for event in kernels:
        event["cat"] = "mtia_ccp_events"
    for name in ("dma_request", "event_wait", "event_record"):
        document["traceEvents"] += [{**event, "name": name, "dur": 2 * event["dur"]} for event in kernels]
    trace.write_text(json.dumps(document))
    (made,) = imported(run, trace)

    assert figures(made, 2, "actor_update").items() >= UPDATE.items()


def test_events_of_a_view_may_stand_in_an_object(run: Path, tmp_path: Path) -> None:
    view = device_profiles.trace_view(tmp_path / "rank0" / "trace_view.json", imported_run.device_of())
    view.write_text(json.dumps({"schemaVersion": 1, "traceEvents": json.loads(view.read_text())}))
    (made,) = imported(run, view)

    assert (made.source, figures(made, 2, "actor_update").items() >= {**UPDATE, **APART}.items()) == (
        "trace_view.json", True,
    )  # fmt: skip


@pytest.mark.parametrize("format", sorted(set(WRITERS) - {"ascend_db", "nsys"}))
def test_a_byte_order_mark_changes_nothing(run: Path, tmp_path: Path, format: str) -> None:
    name, write = WRITERS[format]
    plain, marked = (write(tmp_path / kind / name, imported_run.device_of()) for kind in ("plain", "marked"))
    marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())

    assert imported(run, marked)[0].rows == imported(run, plain)[0].rows != []


def test_another_encoding_is_refused_with_what_to_do(tmp_path: Path) -> None:
    details = device_profiles.kernel_details(tmp_path / "kernel_details.csv", imported_run.device_of())
    details.write_bytes(details.read_text().encode("utf-16"))
    damage: list[Any] = []
    _places.find_files([details], damage)

    assert [loss.reason for loss in damage] == ["is UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_spans_that_are_printed_over_many_lines_are_read(run: Path, tmp_path: Path, mark: bytes) -> None:
    spans = device_profiles.otlp(tmp_path / "spans.jsonl", imported_run.device_of())
    resources = [each for line in spans.read_text().splitlines() for each in json.loads(line)["resourceSpans"]]
    printed = tmp_path / "printed.json"
    printed.write_bytes(mark + json.dumps({"resourceSpans": resources}, indent=2).encode())

    assert imported(run, printed)[0].rows == imported(run, spans)[0].rows != []


@pytest.mark.parametrize("columns", [
    "Op Name,OP Type,Task Type,Start Time(us),Task Duration(us)",
    "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)",
])  # fmt: skip
def test_op_summary_of_msprof_has_the_same_in_other_columns(run: Path, tmp_path: Path, columns: str) -> None:
    lines, device = [columns], imported_run.device_of()
    for name, kind, times in (
        *(("MatMul", "AI_CORE", times) for times in device.kernels),
        *((f"hcom_allReduce__{group}_0", "HCCL", times) for group, *times in device.collectives),
    ):
        lines.append(f"{name},{name},{kind},{device_profiles.us(times[0])},{(times[1] - times[0]) / 1000}")
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / "op_summary_20261124101010.csv").write_text("\n".join(lines) + "\n")
    (made,) = imported(run, tmp_path / "rank0")

    assert figures(made, 2, "actor_update").items() >= UPDATE.items()


def test_processes_in_one_export_of_nsys_are_ranks_by_who_recorded_them(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run", ranks=2)
    file = device_profiles.nsys(tmp_path / "report1.sqlite", imported_run.device_of())
    with sqlite3.connect(file) as base:
        base.execute(f"update CUPTI_ACTIVITY_KIND_KERNEL set globalPid = {(PID + 1) << 24} where rowid > 6")
    base.close()
    (made,) = imported(run, file)
    computing = {
        (row["rank"], row["step"]): row["computing_ns"] / MS for row in made.rows if row["stage"] == "reference"
    }

    assert made.ranks == [0, 1]
    assert (computing[0, 0], computing[1, 2]) == (20, 20)  # six kernels are of two steps


def test_the_report_of_nsys_itself_is_refused_with_the_command_that_exports_it(run: Path, tmp_path: Path) -> None:
    (tmp_path / "report1.nsys-rep").write_bytes(b"\x00" * 100)
    (made,) = imported(run, tmp_path / "report1.nsys-rep")

    assert made.problem.endswith("nsys export --type sqlite -o report1.sqlite report1.nsys-rep")


def test_what_mindspore_writes_on_a_cpu_counts_its_operators_and_says_so(run: Path, tmp_path: Path) -> None:
    """As its 2.10 wrote it here: one process, lengths as texts, no hardware and no overlap analysis."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 2, "tid": 0, "args": {"name": "CPU OP"}}]
    for start, end in imported_run.device_of().kernels:
        times = {"ts": device_profiles.us(start), "dur": device_profiles.us(end - start)}
        events.append(
            {"ph": "X", "name": "MatMul", "pid": 2, "tid": 0, "cat": "", "args": {"type": "HostCpuOps"}} | times
        )
    view = tmp_path / "rank0" / "trace_view.json"
    view.parent.mkdir()
    view.write_text(json.dumps(events))
    (made,) = imported(run, view)

    assert figures(made, 2, "actor_update")["computing_ns"] == 30
    assert "operators on the CPU count as computing" in " ".join(made.notes)


def test_a_packed_trace_is_read(run: Path, tmp_path: Path) -> None:
    plain = device_profiles.torch_trace(tmp_path / "a.pt.trace.json", imported_run.device_of())
    packed = tmp_path / "packed" / "a.pt.trace.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    (made,) = imported(run, packed)

    assert figures(made, 2, "actor_update").items() >= UPDATE.items()


def test_kernels_are_completed_by_the_communication_json_beside_them(run: Path, tmp_path: Path) -> None:
    device = imported_run.device_of()
    folder = tmp_path / f"{device.host}_{device.pid}_20261124101010123_ascend_ms"
    device_profiles.kernel_details(folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", device)
    device_profiles.communication(folder / "ASCEND_PROFILER_OUTPUT" / "communication.json", device)
    (folder / "profiler_info_0.json").write_text("{}")
    (made,) = imported(run, tmp_path)

    update = figures(made, 2, "actor_update")

    assert made.ranks == [0]
    assert update.items() >= UPDATE.items()
    # It says that of 25 ms 10 moved data and 15 waited, not which: 5 of them lie under a kernel.
    assert (update["transfer_from_ns"], update["transfer_to_ns"]) == (5, 10)
    assert (update["waiting_from_ns"], update["waiting_to_ns"]) == (10, 15)
    assert (update["transfer_ns"], update["waiting_ns"]) == (None, None)


def known(made: Imported, step: int, stage: str) -> str | None:
    (how,) = (row["known"] for row in made.rows if (row["step"], row["stage"]) == (step, stage))
    return how


def between(made: Imported, step: int, stage: str) -> tuple[Any, ...]:
    """Bounds of transfer, then those of waiting, ms."""
    update = figures(made, step, stage)
    return tuple(update[f"{part}_{end}_ns"] for part in ("transfer", "waiting") for end in ("from", "to"))


def of_ranks(folder: Path, late_ms: dict[int, int], ranks: int, **operation: str) -> list[Imported]:
    """Databases without tasks of collectives."""
    run, files = imported_run.run_of(folder / "run", ranks=ranks), []
    for rank, late in late_ms.items():
        device = imported_run.device_of(rank=rank, late_ms=late)
        file = folder / f"msmonitor_1_20261124101010123_{rank}.db"
        files.append(device_profiles.ascend_db(file, device, "msmonitor"))
        with sqlite3.connect(file) as base:
            for name in operation.values():
                base.execute("update STRING_IDS set value = ? where value = 'hcom_allReduce_'", (name,))
        base.close()
    return imported(run, *files)


def test_comparing_ranks_bounds_waiting_and_never_says_that_the_last_to_come_waits_for_nobody(tmp_path: Path) -> None:
    """Of 25 ms one rank stays 10: the other one has waited for 15 of its 25 at least; 5 ms lie under a kernel."""
    waits, late = of_ranks(tmp_path, {0: 0, 1: 15}, ranks=2)

    assert between(waits, 2, "actor_update") == (0, 10, 10, 20)
    assert between(late, 2, "actor_update") == (0, 10, 0, 10)
    assert {known(made, 2, "actor_update") for made in (waits, late)} == {"bounded"}
    assert {row["transfer_ns"] for made in (waits, late) for row in made.rows if row["stage"] == "actor_update"} == {
        None
    }


@pytest.mark.parametrize("ranks", [3, 8])
def test_ranks_that_are_missing_only_make_the_bounds_wider(tmp_path: Path, ranks: int) -> None:
    """As in a real profile of two of eight ranks: both waited 85 ms for one that was not profiled."""
    first, second = of_ranks(tmp_path, {0: 0, 1: 1}, ranks)

    assert between(first, 2, "actor_update") == (0, 20, 0, 20)  # 24 of its 25 ms may be either; 5 lie under a kernel
    assert between(second, 2, "actor_update")[3] == 20


@pytest.mark.parametrize(
    "name", ["hcom_broadcast_", "hcom_send_", "hcom_receive_", "hcom_reduce_", "hcom_batchSendRecv_"]
)
def test_an_operation_that_somebody_may_leave_before_the_others_come_bounds_nobody(tmp_path: Path, name: str) -> None:
    """The root of a broadcast is done in no time; that says nothing of how long the others waited."""
    waits, late = of_ranks(tmp_path, {0: 0, 1: 15}, ranks=2, name=name)

    assert {between(made, 2, "actor_update") for made in (waits, late)} == {(None,) * 4}


def of_level0(path: Path) -> Path:
    """COMMUNICATION_TASK_INFO says "N/A" of all tasks, and TASK what they are, as torch_npu writes it at level 0."""
    with sqlite3.connect(path) as base:
        for text in ("N/A", "SDMA", "Notify Wait", "Write Value"):
            base.execute("insert into STRING_IDS select max(id) + 1, ? from STRING_IDS", (text,))
        for old, new in (("MEMCPY_ASYNC", "SDMA"), ("NOTIFY_WAIT", "Notify Wait")):
            id = "select id from STRING_IDS where value = ?"
            base.execute(f"update TASK set taskType = ({id}) where taskType = ({id})", (new, old))
        base.execute("update COMMUNICATION_TASK_INFO set taskType = (select id from STRING_IDS where value = 'N/A')")
    base.close()
    return path


@pytest.mark.parametrize("schema", ["0", "1.0.0", "1.2.0"])
def test_a_database_of_level_0_tells_transfer_by_its_table_of_tasks(run: Path, tmp_path: Path, schema: str) -> None:
    file = device_profiles.ascend_db(tmp_path / "ascend_pytorch_profiler_0.db", imported_run.device_of(), schema)
    (made,) = imported(run, of_level0(file))

    assert figures(made, 2, "actor_update").items() >= APART.items()
    assert known(made, 2, "actor_update") == "told"


def test_a_value_that_is_written_to_signal_the_others_is_no_transfer(run: Path, tmp_path: Path) -> None:
    file = of_level0(device_profiles.ascend_db(tmp_path / "ascend_pytorch_profiler_0.db", imported_run.device_of()))
    with sqlite3.connect(file) as base:
        base.execute("update TASK set taskType = (select id from STRING_IDS where value = 'Write Value') "
                     "where taskType = (select id from STRING_IDS where value = 'SDMA')")  # fmt: skip
    base.close()
    (made,) = imported(run, file)

    assert figures(made, 2, "actor_update")["transfer_ns"] in (0, None)


def of_communication(folder: Path, links: dict[str, float], **times: float) -> Path:
    """One collective of 20 ms in `reference`, as communication.json has it."""
    begin_us = (WALL_OFFSET_NS + 5 * MS) / 1000
    info = {"Start Timestamp(us)": begin_us, "Elapse Time(ms)": 20, "Synchronization Time(ms)": 0}
    info |= {f"{name.capitalize()} Time(ms)": times.get(name, 0) for name in ("transit", "wait", "idle")}
    moved = {name: {"Transit Size(MB)": 1, "Transit Time(ms)": time} for name, time in links.items()}
    operation = {"Communication Time Info": info, "Communication Bandwidth Info": moved}
    file = folder / "rank0" / "communication.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"step0": {"p2p": {}, "collective": {"hcom_allReduce__097_4_1@586": operation}}}))
    return file


@pytest.mark.parametrize(
    ("links", "times", "expected"),
    [
        ({}, {"transit": 5, "wait": 15}, (5, 5, 15, 15)),  # all of it is told
        ({}, {"transit": 5, "wait": 11, "idle": 4}, (5, 9, 7, 15)),  # nobody knows what was done meanwhile
        ({"HCCS": 18}, {"idle": 20}, (0, 18, 0, 20)),  # links moved data, which is no transit, and no waiting
        ({"HCCS": 70, "SDMA": 70}, {"idle": 20}, (0, 20, 0, 20)),  # seven planes, ten each
        ({"HCCS": 6, "SDMA": 6}, {"transit": 5, "wait": 11, "idle": 4}, (5, 6, 10, 15)),
        ({"RDMA": 2, "HCCS": 3, "SDMA": 3}, {"wait": 20}, (0, 5, 15, 20)),  # others moved data while this plane waited
        ({"HCCS": 0, "SDMA": 0}, {"wait": 20}, (0, 0, 20, 20)),
    ],
)  # fmt: skip
def test_communication_json_bounds_what_it_does_not_tell(
    run: Path, tmp_path: Path, links: dict[str, float], times: dict[str, float], expected: tuple[int, ...]
) -> None:
    """Waiting is what it calls so; idling is neither. Times of links add up over planes."""
    (made,) = imported(run, of_communication(tmp_path, links, **times))

    assert between(made, 0, "reference") == expected
    assert known(made, 0, "reference") == ("told" if expected[::2] == expected[1::2] else "bounded")


def test_files_that_are_named_are_completed_by_the_communication_json_beside_them(run: Path, tmp_path: Path) -> None:
    device = imported_run.device_of()
    details = device_profiles.kernel_details(tmp_path / "rank0" / "kernel_details.csv", device)
    device_profiles.communication(tmp_path / "rank0" / "communication.json", device)
    (made,) = imported(run, details)

    assert between(made, 2, "actor_update") == (5, 10, 10, 15)


def test_a_trace_whose_base_stands_behind_its_events_is_read_as_one_in_which_it_comes_first(
    run: Path, tmp_path: Path
) -> None:
    """As torch 2.4 to 2.7 writes it; there is no range of the run in it, which would bring any clock right."""
    device, rows = imported_run.device_of(), []
    device.ranges = []
    for name, moves in (("first", False), ("last", True)):
        file = device_profiles.torch_trace(tmp_path / f"{name}.pt.trace.json", device)
        document = json.loads(file.read_text())
        if moves:
            document["baseTimeNanoseconds"] = document.pop("baseTimeNanoseconds")
        file.write_text(json.dumps(document))
        rows.append(imported(run, file)[0].rows)

    assert rows[0] == rows[1]
    assert len(rows[0]) == 12


def test_a_database_of_several_devices_is_one_trace_a_rank(tmp_path: Path) -> None:
    run = imported_run.run_of(tmp_path / "run", ranks=2)
    file = device_profiles.ascend_db(tmp_path / "msprof_1.db", imported_run.device_of())
    with sqlite3.connect(file) as base:
        base.execute("insert into RANK_DEVICE_MAP values (1, 1)")
        base.execute("update TASK set deviceId = 1 where globalTaskId = 6")
    base.close()
    (made,) = imported(run, file)
    computing = {(row["rank"], row["step"], row["stage"]): row["computing_ns"] / MS for row in made.rows}

    assert made.ranks == [0, 1]
    assert (computing[0, 2, "reference"], computing[1, 2, "reference"]) == (0, 20)


PROGRAM = """
import mstxkit, sys, torch
import torch.distributed as dist
folder = sys.argv[1]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
with mstxkit.capture(f"{folder}/run"):
    mstxkit.identify(rank=0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for number in range(6):
            mstxkit.step(number)
            with mstxkit.stage("actor_update"):
                for _ in range(10 + number):
                    torch.ones(200, 200) @ torch.ones(200, 200)
                dist.all_reduce(torch.ones(1000))
            with mstxkit.stage("reward"):
                sum(range(20_000 + 9_000 * number))
            with mstxkit.mstx_range("score", domain="mine"):
                sum(range(10_000))
profiler.export_chrome_trace(f"{folder}/own.pt.trace.json")
with open(f"{folder}/fr_0.json", "wb") as file:
    file.write(torch._C._distributed_c10d._dump_fr_trace_json(True, False))
with open(f"{folder}/fr_0", "wb") as file:
    file.write(torch._C._distributed_c10d._dump_fr_trace(True, True, False))
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and what torch wrote of its process: a trace, and its flight recorder in both ways."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("real")
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return folder


def of_real(folder: Path, name: str) -> Imported:
    (source,) = _places.find_files([folder / name], [])
    (made,) = _importing.import_all(open_run(folder / "run").files, [source], lambda _: None)
    return made


def test_ranges_of_a_run_are_found_in_a_real_trace_of_torch(real: Path) -> None:
    """mstxkit's own ranges are in it, with their domain in front: the clocks go by them."""
    made = of_real(real, "own.pt.trace.json")
    (clock,) = made.clocks

    assert (made.ranks, clock["how"]) == ([0], "ranges")
    assert clock["matches"] >= 9  # of 18: on a busy machine some begin later in one than in the other
    assert clock["error_ns"] < 1 * MS
    assert abs(clock["offset_ns"]) < 50 * MS


def test_a_trace_without_a_rank_is_of_the_process_with_its_pid(run: Path, tmp_path: Path) -> None:
    trace = device_profiles.torch_trace(tmp_path / "a.pt.trace.json", imported_run.device_of())
    document = json.loads(trace.read_text())
    del document["distributedInfo"], document["host_name"]
    trace.write_text(json.dumps(document))
    (made,) = imported(run, trace)

    assert (made.ranks, made.problem) == ([0], "")


def test_the_rank_in_a_file_counts_and_not_a_number_in_the_name_of_its_folder(run: Path, tmp_path: Path) -> None:
    (tmp_path / "grpo_rank_1").mkdir()
    trace = device_profiles.torch_trace(tmp_path / "grpo_rank_1" / "a.pt.trace.json", imported_run.device_of())
    (made,) = imported(run, trace)

    assert (made.ranks, made.problem) == ([0], "")


def test_the_rank_of_a_lora_adapter_is_nobodys_rank(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lora_rank_1").mkdir()
    device = imported_run.device_of()
    (made,) = imported(run, device_profiles.kernel_details(tmp_path / "lora_rank_1" / "kernel_details.csv", device))

    assert "--rank" in made.problem


def test_stages_of_a_real_trace_hold_what_ran_in_them(real: Path) -> None:
    rows = of_real(real, "own.pt.trace.json").rows
    updates = [row for row in rows if row["stage"] == "actor_update"]

    assert all(0 < row["computing_ns"] <= row["stage_ns"] for row in updates)  # how much is the machine's affair
    assert min(row["communicating_ns"] for row in updates) > 0
    assert max(row["computing_ns"] for row in rows if row["stage"] == "reward") == 0


def test_a_real_flight_recorder_of_gloo_does_not_say_when_collectives_were_over(real: Path) -> None:
    made = of_real(real, "fr_0.json")

    assert (made.events, made.problem) == (6, "holds no time of a device")
    assert made.notes == ["6 of 6 collectives do not say when they were over"]


def test_a_real_pickle_of_torch_is_refused(real: Path) -> None:
    assert "is a pickle" in of_real(real, "fr_0").problem


def test_spans_that_mstxkit_exports_are_read_again(run: Path, tmp_path: Path) -> None:
    program = ["-m", "mstxkit", "export", str(run), "--to", "otlp", "-o", str(tmp_path / "spans.jsonl")]
    done = subprocess.run([sys.executable, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = imported(run, tmp_path / "spans.jsonl")

    assert {row["spans_ns"] - row["stage_ns"] for row in made.rows} == {0}
    assert made.clocks[0]["matches"] == 12


def test_a_pickle_is_refused_with_what_writes_json(run: Path, tmp_path: Path) -> None:
    import pickle

    dump = tmp_path / "nccl_trace_rank_0"
    dump.write_bytes(pickle.dumps({"version": "2.10", "entries": []}, protocol=2))
    (source,) = _places.find_files([dump], [])
    (made,) = _importing.import_all(open_run(run).files, [source], lambda _: None)

    assert "is a pickle" in made.problem
    assert "_dump_fr_trace_json" in made.problem
    assert len(made.damage) == 1


def test_what_writes_json_is_there_in_torch() -> None:
    pytest.importorskip("torch")
    c10d = pytest.importorskip("torch._C._distributed_c10d")

    assert isinstance(json.loads(c10d._dump_fr_trace_json(True, False)), dict)
    assert hasattr(c10d, "_dump_fr_trace_json")


def test_zero_and_negative_lengths_count_for_nothing(run: Path, tmp_path: Path) -> None:
    device: Device = imported_run.device_of()
    first = device.kernels[0][0]
    device.kernels += [(first, first), (first + 9 * MS, first), (-5, 7), (1, 1 << 61), (first, 1 << 62)]
    (made,) = imported(run, device_profiles.ascend_db(tmp_path / "ascend_pytorch_profiler_0.db", device))

    assert figures(made, 0, "reference").items() >= REFERENCE.items()
