"""The same table by three tools: of each name of a range, how often, and how long in all, of one run of many ranks.

mstxkit reads the run; HolisticTraceAnalysis reads its Chrome JSON, a file a rank; msprof-analyze's `mstx_sum` reads its
Ascend databases, of the large run those of a few ranks: it takes a process for each. CPU seconds of a tool with its
children, and the memory that they hold at once (their PSS, looked at 20 times a second). HTA is no dependency:
PYTHON_OF_HTA names a Python that has it (`pip install HolisticTraceAnalysis`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Mapping, NamedTuple, Sequence

from .bench_reader import Setting, write_run
from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"few_steps": {}, "million": {}}
PROCESSES = 1
# Ranks, ranges of each, and ranks that are given to `mstx_sum`, whose time grows with the square of the ranges.
SIZES = {"few_steps": (16, 2_000, 16), "million": (128, 8_000, 8)}
LOOK_EVERY_S = 0.05
# What `mstx_sum` puts behind a name that comes again in a step.
_NUMBER = re.compile(r"_\d+$")
Sums = Mapping[str, Sequence[int]]

EXPORT = """
import sys
from pathlib import Path
from mstxkit import open_run
from mstxkit.reading.exporters import load_exporter
run, to, target, ranks = sys.argv[1], load_exporter(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
target.mkdir()
if to.form == "folder":
    to.write_to(open_run(run, ranks=range(ranks)), target)
for rank in range(0 if to.form == "folder" else ranks):
    to.write_to(open_run(run, ranks=rank), target / f"{rank}.json")
"""
OWN = """
import json, sys
import polars as pl
from mstxkit import open_run
ranges = open_run(sys.argv[1]).ranges(attributes=False)
sums = ranges.group_by("name").agg(pl.len(), pl.col("duration_ns").sum())
print(json.dumps({name: rest for name, *rest in sums.with_columns(pl.col("name").cast(pl.String)).iter_rows()}))
"""
HTA = """
import json, sys
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    files = {int(file.stem): str(file) for file in Path(sys.argv[1]).iterdir()}
    trace = TraceAnalysis(trace_files=files, trace_dir=sys.argv[1]).t
    names, sums = trace.symbol_table.get_sym_table(), {}
    for rank in files:
        found = trace.get_trace(rank).groupby("name")["dur"].agg(["count", "sum"])
        for code, count, total in found.itertuples():
            have = sums.get(names[code], (0, 0))
            sums[names[code]] = have[0] + int(count), have[1] + round(total * 1000)
    print(json.dumps(sums))
"""


class Used(NamedTuple):
    """What a command took, all its processes together."""

    cpu_s: float
    taken_s: float
    mb: float
    output: str


def measure(variant: str) -> list[Row]:
    """One reading by each tool: they take long enough."""
    ranks, ranges, summed = SIZES[variant]
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as name:
        folder = Path(name)
        run = folder / "run"
        run.mkdir()
        write_run(run, Setting(ranks, ranks * ranges, "ranges", {}, 0, per_block=min(ranges, 40_000), attributes=False))
        own = _used([sys.executable, "-c", OWN, str(run)])
        expected: Sums = json.loads(own.output)
        rows = _rows(f"{variant}_mstxkit", own, ranks * ranges)
        rows += _of_hta(f"{variant}_hta", run, folder, ranks, expected)
        of_summed = {name: [value * summed // ranks for value in sums] for name, sums in expected.items()}
        return rows + _of_mstx_sum(f"{variant}_mstx_sum", run, folder, summed, of_summed)


def _of_hta(key: str, run: Path, folder: Path, ranks: int, expected: Sums) -> list[Row]:
    python = os.environ.get("PYTHON_OF_HTA")
    if not python:
        return [Row(f"reading_peers.{key}", 0, "s", note="left out: PYTHON_OF_HTA names no Python that has it")]
    files = _exported(run, "chrome", folder / "json", ranks)
    script = folder / "hta_sums.py"
    script.write_text(HTA)
    used = _used([python, str(script), str(folder / "json")])
    sums: Sums = json.loads(used.output.splitlines()[-1])
    for name, (count, total) in expected.items():  # begins and ends are whole microseconds to it
        assert sums[name][0] == count and abs(sums[name][1] - total) <= 2000 * count, (name, sums[name], count, total)
    return _rows(key, used, sum(count for count, _ in expected.values()), files)


def _of_mstx_sum(key: str, run: Path, folder: Path, ranks: int, expected: Sums) -> list[Row]:
    sys.path.insert(0, str(HERE.parent / "tests"))
    from builders import msprof_analyze

    if not msprof_analyze.IS_HERE:
        return [Row(f"reading_peers.{key}", 0, "s", note="left out: make setup unpacks msprof-analyze")]
    files = _exported(run, "ascend-db", folder / "databases", ranks)
    command = ["msprof-analyze", "cluster", "-m", "mstx_sum", "-d", str(folder / "databases")]
    environ = msprof_analyze.install(folder / "bin")
    used = _used([str(folder / "bin" / command[0]), *command[1:], "-o", str(folder / "sums")], environ)
    found, whole = _of_database(folder / "sums"), {name: tuple(sums) for name, sums in expected.items()}
    assert found == whole, [(name, found.get(name), sums) for name, sums in whole.items() if found.get(name) != sums]
    return _rows(key, used, sum(count for count, _ in expected.values()), files)


def _of_database(sums: Path) -> dict[str, tuple[int, int]]:
    """Its own table, by the run's names: added up over steps, and over what it numbers and puts paths before."""
    import sqlite3

    from mstxkit.reading.exporters import _rl_names

    stages = {task.name: task.stage for task in _rl_names.VERL}
    base = sqlite3.connect(sums / "cluster_analysis_output" / "cluster_analysis.db")
    found: dict[str, tuple[int, int]] = {}
    for path, count, total in base.execute("select Name, Count, SumNs from MSTXAllCannStats"):
        name = _NUMBER.sub("", path.rpartition("::")[2])
        name = stages.get(name, name)
        found[name] = found.get(name, (0, 0))[0] + int(count), found.get(name, (0, 0))[1] + int(total)
    return found


def _exported(run: Path, to: str, target: Path, ranks: int) -> str:
    """The export that a tool needs first, and what that took, as a note."""
    used = _used([sys.executable, "-c", EXPORT, str(run), to, str(target), str(ranks)])
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    return f"of {size / 1e6:.0f} MB that mstxkit exported in {used.cpu_s:.1f} s of CPU"


def _used(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Used:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        before, began = os.times(), time.perf_counter()
        process = subprocess.Popen(command, cwd=HERE.parent, env=environ, stdout=output, stderr=errors)
        most = 0
        while process.poll() is None:
            most = max(most, sum(_pss_kb(pid) for pid in _tree(process.pid)))
            time.sleep(LOOK_EVERY_S)
        taken, after = time.perf_counter() - began, os.times()
        errors.seek(0)
        assert process.returncode == 0, errors.read()[-2000:]
        output.seek(0)
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return Used(cpu, taken, most * 1024 / 1e6, output.read())


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            tasks = Path(f"/proc/{parent}/task").iterdir()
            found += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:  # it has ended
            continue
    return found


def _pss_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _rows(key: str, used: Used, ranges: int, files: str = "of the run itself") -> list[Row]:
    note = f"{ranges:,} ranges, {files}; {used.taken_s:.1f} s by the clock"
    return [
        Row(f"reading_peers.{key}_cpu_s", used.cpu_s, "s", note=note),
        Row(f"reading_peers.{key}_mb", used.mb, "MB"),
    ]
