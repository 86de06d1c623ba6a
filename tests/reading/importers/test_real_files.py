"""Real profiles of others mean what their own tools say: what `make real-files` has put into .venvs/real_files.

Each is imported into a run with one step, as long as what is told of it otherwise (`builders/real_files.py`). In
`make real-files` all of them are, and the table of docs/guide/import.md is written; in `make test` some a day.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import pytest
from builders import insight_views, real_files, soak
from builders.real_files import BEGIN, END, GUIDE, TOP, Told
from builders.run_files import BankFiles, ProcessFiles, anchor, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")
if not real_files.here():
    pytest.skip("no real profiles of others are here: make real-files", allow_module_level=True)

from mstxkit.judging import device_lateness, meeting
from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.importers import _importing, _places
from mstxkit.reading.importers._places import FileToImport
from mstxkit.reading.run import open_run

pytestmark = pytest.mark.days("even")

OUTPUT = "ASCEND_PROFILER_OUTPUT"
FIGURES = ("computing", "communicating", "overlapped", "free")
WITHIN_NS = 1_000
ALWAYS = Told("", 1_000_000_000_000_000_000, 2_000_000_000_000_000_000)  # from 2001 to 2033
# Which files are refused, or hold nothing of a device, and why.
REFUSED = {
    r"cluster_communication\.json": "holds no collective with its times",
    r"memscope_dump_\d+\.db": "not a profiler's",
    r"mindstudio_profiler_output/msprof_.*\.json": "is empty",
    r"\.pkl$": "is a pickle",
    r"_perf_report_csvs/kernel_details\.csv": "no columns",  # a report of TraceLens' that is called so
    r"event_list\.json|trace_view_tiny\.json|graph_debug\.json|execution_details\.json": "holds no time of a device",
}
# Reports of TraceLens' that are of other steps than the trace beside them.
OTHER_STEPS = re.compile(r"Qwen_Qwen1\.5|resnet_act_checkpoint")
HTA_FILES = TOP / "HolisticTraceAnalysis/tests/data"
# Microseconds computed by HolisticTraceAnalysis, and how far off that may be: it cuts each time to whole microseconds.
# The first two are of its own tests, with what was overlapped, the others of version 0.6.1 run on all steps.
HTA = {
    "vision_transformer/rank-0.json.gz": (596_651, 203), "vision_transformer/rank-1.json.gz": (596_759, 203),
    "critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz": (10_630, 0),
    "critical_path/cuda_event_sync/event_sync_trace.json.gz": (49, 0),
    "critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz": (10_670, 0),
    "df_index_resolver/df_index_resolver.json.gz": (620_516, 0),
    "execution_trace/benchmark_simple_add_trace.json.gz": (16, 0),
    "timeline_analysis/sampled_rank-0.json.gz": (210_320, 0), "trace_diff/control/control.json.gz": (281_336, 0),
    "trace_filter/sampled_rank-1.json.gz": (271_973, 0), "nccl_parser_config/nccl_data.json.gz": (113_012, 2_700),
    "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (464_915, 4_350),
    "mtia_trace_single_rank/mtia_rank_0.json.gz": (7_305_597, 22_269),
}  # fmt: skip
OVERLAPPED = {
    "vision_transformer/rank-0.json.gz": (240_322, 109), "vision_transformer/rank-1.json.gz": (262_584, 123)
}  # fmt: skip


class Profiles(NamedTuple):
    """Files that are imported together: the ranks of one job."""

    name: str
    files: tuple[FileToImport, ...]


@dataclass
class Findings:
    """For the table of the guide."""

    read: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    compared: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    transfer: Counter[tuple[str, str]] = field(default_factory=Counter)


FOUND = Findings()


def every_profile() -> list[Profiles]:
    """All that can be imported; beside the best of a folder also its kernel_details.csv."""
    groups: dict[str, list[FileToImport]] = {}
    for source in _places.find_files([TOP / name for name in real_files.here()], []):
        is_of_job = source.path.parent.name == OUTPUT
        where = source.path.parents[2] if is_of_job else source.path
        groups.setdefault(str(where.relative_to(TOP)), []).append(source)
        beside = source.path.with_name("kernel_details.csv")
        if is_of_job and source.path.name == "trace_view.json" and beside.exists():
            groups[str(beside.relative_to(TOP))] = _places.find_files([beside], [])
    return [Profiles(name, tuple(files)) for name, files in sorted(groups.items())]


PROFILES = soak.sample(every_profile(), 20)
REPORTED = [
    file for profiles in PROFILES for file in profiles.files
    if real_files.report_of(file.path) and not OTHER_STEPS.search(profiles.name)
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Write what was found into the guide, where that is asked for."""
    yield
    if os.environ.get("REAL_FILES_TABLE") == "write" and FOUND.read:
        head, _, rest = GUIDE.read_text(encoding="utf-8").partition(BEGIN)
        GUIDE.write_text(f"{head}{BEGIN}{as_table(FOUND)}{END}{rest.partition(END)[2]}", encoding="utf-8")


def run_of(folder: Path, told: dict[int, Told]) -> Path:
    """A run with a step of each rank, from when to when that is told."""
    run, first = new_run(folder), min(its.begin for its in told.values()) - 1_000
    anchors = tuple(anchor(ticks, offset_ns=first) for ticks in (0, max(its.end for its in told.values()) - first))
    for rank, its in told.items():
        bank = BankFiles().range("step", its.begin - first, its.end - first, stage="step", own=True, step=1)
        about = {"start_ns": its.begin, "world_size": len(told), "start": f"s{rank}"}
        ProcessFiles(run, 100 + rank, rank=rank, host=its.host or "host", anchors=anchors, **about).seal(bank)
    return run


def imported(profiles: Profiles, folder: Path) -> Iterator[tuple[FileToImport, Told, _importing.Imported]]:
    """Each file with what is told of it, and what became of it."""
    sources = [source._replace(rank=source.rank or 0) for source in profiles.files]
    told = [real_files.told(source.path) or ALWAYS for source in sources]
    run = run_of(folder / "run", {source.rank or 0: its for source, its in zip(sources, told)})
    yield from zip(sources, told, _importing.import_all(open_run(run).files, sources, lambda _: None))


def key_of(file: FileToImport) -> tuple[str, str]:
    return file.path.relative_to(TOP).parts[0], file.importer.what


@pytest.mark.timeout(400)
@pytest.mark.parametrize("profiles", PROFILES, ids=lambda profiles: str(profiles.name))
def test_a_real_profile_means_what_is_told_of_it_otherwise(profiles: Profiles, tmp_path: Path) -> None:
    wrong = []
    for file, told, made in imported(profiles, tmp_path):
        if not made.rows:
            FOUND.refused[key_of(file)] += 1
            wrong += [] if is_explained(file, made.problem) else [f"{file.path.name}: refused: {made.problem}"]
            continue
        FOUND.read[key_of(file)] += 1
        (row,) = made.rows
        wrong += [f"{file.path.name}: {problem}" for problem in differences(key_of(file), told, row)]

    assert wrong == []


def is_explained(file: FileToImport, problem: str) -> bool:
    path = file.path.as_posix()
    return any(re.search(where, path) and why in problem for where, why in REFUSED.items())


def differences(key: tuple[str, str], told: Told, row: dict[str, Any]) -> Iterator[str]:
    """Where a row differs from what is told."""
    if told.computing is not None:
        apart = {name: abs((row[f"{name}_ns"] or 0) - getattr(told, name)) for name in FIGURES}
        FOUND.compared.setdefault((*key, told.by), []).append(max(apart.values()))
        yield from (
            f"{name} is off by {off} ns of {getattr(told, name)}" for name, off in apart.items() if off > WITHIN_NS
        )
    if told.transfer is None:
        return
    least, most = told.transfer
    between = [row["transfer_ns"]] * 2
    if row["transfer_ns"] is None:  # it may be bounded
        between = [row.get("transfer_from_ns"), row.get("transfer_to_ns")]
    if None in between:
        if least == most:
            yield "transfer stands in its own rows, and is not told"
    elif least - WITHIN_NS <= between[0] <= between[1] <= most + WITHIN_NS:
        FOUND.transfer[key] += 1
    else:
        yield f"transfer {between} is not between {least} and {most} ns"


@pytest.mark.parametrize("file", REPORTED, ids=lambda file: str(file.path.relative_to(TOP)))
def test_what_is_added_up_is_what_tracelens_says_itself(file: FileToImport) -> None:
    """So that what our figures are compared with is no invention of these tests."""
    report = real_files.report_of(file.path)
    assert report is not None
    theirs, ours = real_files.by_report(report), (real_files.told(file.path), real_files.with_memsets(file.path))

    pairs = ((one.computing or 0, one.communicating or 0) for one in ours if one is not None)
    wanted = theirs.computing or 0, theirs.communicating or 0
    apart = min(max(abs(a - b) for a, b in zip(pair, wanted)) for pair in pairs)
    FOUND.compared.setdefault((*key_of(file), theirs.by), []).append(apart)
    assert apart <= WITHIN_NS


@pytest.mark.parametrize("name", [name for name in HTA if (HTA_FILES / name).exists()])
def test_a_trace_is_divided_as_holistic_trace_analysis_says(name: str, tmp_path: Path) -> None:
    ((file, _, made),) = imported(Profiles(name, tuple(_places.find_files([HTA_FILES / name], []))), tmp_path)

    (row,) = made.rows
    computed, within = HTA[name]
    assert row["computing_ns"] / 1000 == pytest.approx(computed, abs=within)
    if not within:
        FOUND.compared.setdefault((*key_of(file), "HolisticTraceAnalysis"), []).append(
            abs(row["computing_ns"] - computed * 1000)
        )
    if name in OVERLAPPED:
        overlapped, within = OVERLAPPED[name]
        assert row["overlapped_ns"] / 1000 == pytest.approx(overlapped, abs=within)


@pytest.mark.parametrize(
    "database", sorted(TOP.glob("msinsight/test/data/pytorch/db/*/*_ascend_pt/*/ascend_*.db")), ids=str
)
def test_insight_draws_of_a_real_profile_with_ranges_added_what_it_drew(database: Path, tmp_path: Path) -> None:
    told = real_files.told(database)
    assert told is not None
    rank = int(database.stem.rpartition("_")[2])
    run, out = run_of(tmp_path / "run", {rank: told}), tmp_path / "out"
    out.mkdir()

    load_exporter("ascend-db").write(open_run(run), out, into=str(database))

    (joined,) = out.rglob(database.name)
    before, after = insight_views.Views(database), insight_views.Views(joined)
    assert all(
        before.device[view] for view in ("tasks on lanes of streams", "collectives", "lines from calls to tasks")
    )
    assert {view: rows for view, rows in insight_views.added(before.device, after.device).items() if rows} == {}
    assert after.ranges["lanes"].total() - before.ranges["lanes"].total() == 1


@pytest.mark.parametrize("level", sorted(TOP.glob("msinsight/test/data/pytorch/db/*")), ids=lambda level: level.name)
def test_nobody_is_said_to_be_late_for_waiting_less_for_its_own_host(level: Path) -> None:
    """Two ranks of one host, whose clock says who came last; both wait inside of the first collective for it."""
    import numpy as np

    read = [device_lateness.read_collectives(file) for file in sorted(level.glob("*_ascend_pt/*/ascend_*.db"))]
    entered = device_lateness.join_collectives(dict(enumerate(read)))

    assert entered is not None
    late, bound_s = meeting.late_in(entered, np.zeros(2)), device_lateness.bounds_s(entered)
    assert (late.late_s < bound_s[late.at]).all()
    apart_s = [(one.start_ns - other.start_ns) / 1e9 for one, other in zip(*read)]
    by_device = [entered.entered_s[entered.member == member] for member in (0, 1)]
    assert by_device[0] - by_device[1] == pytest.approx(apart_s, abs=30e-6)


def as_table(found: Findings) -> str:
    """Lines for each repository and format: one for each way in which its figures were compared."""
    commits = {source.name.rpartition("/")[2]: source for source in real_files.sources()}
    lines = ["| of | format | read | refused | transfer fits | compared with | files | apart by |", f"|{'---|' * 8}"]
    for key in sorted({*found.read, *found.refused}, key=lambda key: str(key).lower()):
        source, transfer = commits[key[0]], str(found.transfer[key] or "")
        first = (f"{source.name} {source.commit[:8]}", key[1], str(found.read[key]), str(found.refused[key]), transfer)
        by = [(who, off) for (*its, who), off in sorted(found.compared.items()) if tuple(its) == key and who]
        for place, (who, off) in enumerate(by or [("", [])]):
            shown = (f"`{who}`" if "_" in who else who, str(len(off) or ""), f"{max(off) / 1000:.3f} µs" if off else "")
            lines.append(f"| {' | '.join((*(first if not place else [''] * 5), *shown))} |")
    return "\n".join(lines) + "\n"
