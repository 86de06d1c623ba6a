"""A day of a run of four weeks on 10,240 ranks: tables of stages from summaries that `mstxkit collect --compact` keeps.

One day is made of the simulator's steps, eight ranks a host, a step a minute; the other days are links to its files.
`BENCH_DATASET_HOSTS` (1280) makes it smaller. Each table is made by a fresh process, on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .harness import Row

VARIANTS: dict[str, dict[str, str]] = {"day": {}}
HOSTS, RANKS_A_HOST, STEPS, DAYS = 1280, 8, 1440, 28
START_NS, MINUTE_NS = 1_795_478_400 * 10**9, 60 * 10**9
TABLES = {"stages": ["stage"], "stages_by_rank": ["stage", "rank"], "stages_by_host": ["stage", "host"]}
READ = """
import json, os, sys, time
from pathlib import Path
import numpy, polars
from mstxkit.reading.dataset import summaries
began, cpu = time.perf_counter(), time.process_time()
table = summaries.table(Path(sys.argv[1]), by=json.loads(sys.argv[2]), days=[sys.argv[3]])
took = time.perf_counter() - began, time.process_time() - cpu
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([table.height, int(table["count"].sum()), *took, peak / 1024]))
"""


def measure(variant: str) -> list[Row]:
    """The clock's and the CPU's seconds of a day's tables, and memory."""
    hosts = int(os.environ.get("BENCH_DATASET_HOSTS", HOSTS))
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        rows, size = _write(Path(folder), hosts)
        read = {name: _read(folder, by) for name, by in TABLES.items()}
    assert all(each[1] >= rows for each in read.values()), read
    taken_s, cpu_s = (sum(each[at] for each in read.values()) for at in (2, 3))
    note = f"{rows:,} summaries of {hosts * RANKS_A_HOST} ranks, {size / rows:.1f} B each; {cpu_s:.1f} s CPU"
    return [
        Row("reading_dataset.day_s", taken_s, "s", note=f"three tables: {note}"),
        Row("reading_dataset.day_mb", max(each[4] for each in read.values()), "MB"),
        Row("reading_dataset.summary_bytes", size / rows, "B", note="on disk"),
    ]


def _write(run: Path, hosts: int) -> tuple[int, int]:
    """A day, and links to it as the other days; how many summaries it has, and bytes."""
    from mstxkit.reading.dataset import summaries
    from mstxkit.store import dataset

    frame, size = _of_a_host(), 0
    days = [dataset.day_of(START_NS + day * 1440 * MINUTE_NS) for day in range(DAYS)]
    for host in range(hosts):
        name = f"host{host:04d}"
        moved = _moved(frame, host, name)
        for kind, rows in ((dataset.SUMMARIES, moved), (dataset.DAYS, summaries.of_days(moved))):
            first = run / dataset.FOLDER / dataset.folder_of(kind, days[0], "actor", name) / "0.0.parquet"
            first.parent.mkdir(parents=True)
            rows.write_parquet(first, compression="zstd")
            size += first.stat().st_size
            for day in days[1:]:
                other = run / dataset.FOLDER / dataset.folder_of(kind, day, "actor", name) / first.name
                other.parent.mkdir(parents=True)
                os.link(first, other)
    return frame.height * hosts, size


def _of_a_host() -> Any:
    """Summaries of eight ranks, as steps of the simulator have them."""
    import numpy as np
    import polars as pl
    from builders.simulated_job import SimulatedJob

    from mstxkit.testing.simulator import JobShape

    parts = []
    for step in SimulatedJob(JobShape(ranks=RANKS_A_HOST), seed=1).steps(STEPS):
        if step.collectives is not None:
            continue  # a step that is handed over again with its ring
        members, stages = np.indices(step.total_s.shape)
        total_ns = np.nan_to_num(step.total_s * 1e9).astype(np.int64).ravel()
        parts.append(
            pl.DataFrame({
                "process": [f"p{member}" for member in members.ravel()], "rank": members.ravel().astype(np.int32),
                "stage": [step.stages[at] for at in stages.ravel()], "step": np.full(total_ns.size, step.step),
                "count": np.ones(total_ns.size, np.int64), "total_ns": total_ns, "longest_ns": total_ns,
                "start_ns": START_NS + (np.nan_to_num(step.entered_s) * 1e9).astype(np.int64).ravel(),
                "tokens": step.work.tokens.ravel(),
            })
        )  # fmt: skip
    rows = pl.concat(parts).with_columns(
        role=pl.lit("actor"), part=pl.lit("trainer"), pid=pl.lit(100, pl.Int32), waits_for=pl.lit(None, pl.String),
        busy_ns=pl.lit(None, pl.Int64), end_ns=pl.col("start_ns") + pl.col("total_ns"),
        buckets=pl.lit(None, pl.List(pl.UInt16)), bucket_counts=pl.lit(None, pl.List(pl.UInt32)),
    )  # fmt: skip
    # The simulator has four stages; real jobs have eight.
    more = rows.with_columns(stage=pl.lit("second_") + pl.col("stage"))
    return pl.concat([rows, more]).sort("process", "stage", "step")


def _moved(frame: Any, host: int, name: str) -> Any:
    """Of another host: other ranks, and times that are a little longer."""
    import polars as pl

    times = pl.col("total_ns", "longest_ns") * (1_000_000 + 37 * host) // 1_000_000
    return frame.with_columns(times, pl.col("rank") + RANKS_A_HOST * host, host=pl.lit(name)).with_columns(
        process=pl.lit(f"{name}-") + pl.col("process")
    )


def _read(folder: str, by: list[str]) -> list[float]:
    from mstxkit.store import dataset

    command = [sys.executable, "-c", READ, folder, json.dumps(by), dataset.day_of(START_NS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    read: list[float] = json.loads(done.stdout)
    return read
