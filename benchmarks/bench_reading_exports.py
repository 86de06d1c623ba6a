"""Exports: ranges a second of CPU, bytes a range, memory; each by a fresh process, of a run of several ranks.

The same run as the reader's: stages with 24 ranges inside of each. `plain` has no attributes, `attributes` has tokens
on each stage, as patched frameworks give them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .bench_reader import Setting, write_run
from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"perfetto": {}, "ascend_db": {}, "many_ranks": {}, "others": {}}
PROCESSES = 1
RANGES = 2_000_000
EXPORT = """
import json, sys, time
from pathlib import Path
import numpy, polars, zstandard
from mstxkit import open_run
from mstxkit.reading.exporters import load
def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
exporter, target = load(sys.argv[2]), Path(sys.argv[3])
if exporter.form == "folder":
    target.mkdir()
before, began, cpu = peak_kb(), time.perf_counter(), time.process_time()
count = exporter.write_to(open_run(sys.argv[1]), target)
took = [time.perf_counter() - began, time.process_time() - cpu]
files = target.rglob("*") if target.is_dir() else [target]
print(json.dumps([count, *took, peak_kb() - before, sum(file.stat().st_size for file in files if file.is_file())]))
"""


def measure(variant: str) -> list[Row]:
    """The better of two exports of each kind, by CPU time: what else runs here only makes it slower."""
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        if variant == "many_ranks":
            run = _run(Path(folder), Setting(256, 256 * 10_000, "ranges", {}, 0, per_block=2_500, attributes=False))
            return _rows("perfetto_many_ranks", *_best(run, "perfetto"))
        if variant == "others":
            run = _run(Path(folder), Setting(4, 400_000, "ranges", {}, 0))
            return [row for to in ("chrome", "trace-view", "parquet", "csv") for row in _rows(to, *_best(run, to))]
        plain = _run(Path(folder) / "plain", Setting(4, RANGES, "ranges", {}, 0, attributes=False))
        tokens = _run(Path(folder) / "tokens", Setting(4, RANGES, "ranges", {}, 0))
        to = variant.replace("_", "-")
        return [*_rows(variant, *_best(plain, to)), *_rows(f"{variant}_attributes", *_best(tokens, to))]


def _run(folder: Path, setting: Setting) -> Path:
    folder.mkdir(exist_ok=True)
    write_run(folder, setting)
    return folder


def _best(run: Path, to: str) -> tuple[int, float, float, float, int]:
    return min((_export(run, to) for _ in range(2)), key=lambda figures: figures[2])


def _export(run: Path, to: str) -> tuple[int, float, float, float, int]:
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as place:
        command = [sys.executable, "-c", EXPORT, str(run), to, f"{place}/out"]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures: Any = json.loads(done.stdout)
    return tuple(figures)


def _rows(name: str, count: int, took_s: float, cpu_s: float, more_kb: float, size: int) -> list[Row]:
    key = f"reading_exports.{name.replace('-', '_')}"
    note = f"{count:,} ranges in {took_s:.2f} s, {more_kb / 1024:.0f} MB more than before"
    return [
        Row(f"{key}_ranges_per_s", count / cpu_s, "ranges/s", note=f"of CPU time; {note}"),
        Row(f"{key}_bytes", size / count, "B", note="a range, on disk"),
        Row(f"{key}_mb", more_kb / 1024, "MB", note="while it is written"),
    ]
