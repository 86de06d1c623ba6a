"""Exports: ranges a second of CPU, bytes a range, memory; each by a fresh process, of a run of several ranks.

The same run as the reader's: stages with 24 ranges inside of each. `plain` has no attributes, `attributes` has tokens
on each stage, as patched frameworks give them; `compacted` is a run whose sealed files became Parquet, `controller` one
with a driver that waits for each stage of its workers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

from .bench_reader import STAGES, Setting, write_run
from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {
    "perfetto": {}, "ascend_db": {}, "many_ranks": {}, "compacted": {}, "controller": {}, "others": {},
}  # fmt: skip
PROCESSES = 1
RANGES = 2_000_000
# Ticks of a made-up driver on the clock of the made-up workers.
CLOCK = {"kind": 1, "ticks_per_ns": 1.0, "anchors": [[10**12, 10**12, 10**18, 50]]}
MANY_RANKS = Setting(256, 256 * 10_000, "ranges", {}, 0, per_block=2_500, attributes=False)
EXPORT = """
import json, sys, time
from pathlib import Path
import numpy, polars, zstandard
from mstxkit import open_run
from mstxkit.reading.exporters import load_exporter
def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
exporter, target = load_exporter(sys.argv[2]), Path(sys.argv[3])
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
            return _rows("perfetto_many_ranks", *_best(_run(Path(folder), MANY_RANKS), "perfetto"))
        if variant == "controller":
            return _rows("perfetto_controller", *_best(_with_controller(Path(folder)), "perfetto"))
        if variant == "compacted":
            return [row for name, run in _compacted(Path(folder)) for row in _rows(name, *_best(run, "perfetto"))]
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


def _compacted(folder: Path) -> Iterator[tuple[str, Path]]:
    """Few processes of many ranges each, and many of few: there each file holds rows of many."""
    from mstxkit.reading.dataset import compacting

    settings = {"few": Setting(4, 2 * RANGES, "ranges", {}, 0), "many_ranks": MANY_RANKS}
    for name, setting in settings.items():
        run = _run(folder / name, setting)
        compacting.compact_files(run, remove=True)
        yield f"perfetto_compacted_{name}", run


def _with_controller(folder: Path) -> Path:
    """Four workers, and a driver whose waits last as long as each stage of the first one."""
    from mstxkit import open_run
    from mstxkit.recorder.sealed import SealedFiles
    from mstxkit.store import block_index, segment

    run = _run(folder, Setting(4, RANGES, "ranges", {}, 0, attributes=False))
    identity = {"host": "bench", "pid": 99, "start": "a"}
    files = SealedFiles(run / "sealed", "bench-99-a", 64 << 20, 1 << 40, lambda count: None)
    stages = open_run(run, ranks=0).files.stage_rows.sort("start_ns", "duration_ns")
    for bank, rows in enumerate(stages.iter_slices(10_000), 1):
        meta, payload = _waits(rows)
        meta |= {"bank": bank, "identity": identity, "clock": CLOCK, "counters": {}, "heartbeat_ns": 10**12}
        files.append(block_index.make_block(segment.RECORDS, meta, payload, rows.height))
    files.append(block_index.make_block(segment.END, {"identity": identity, "ended": "exit"}), is_last=True)
    return run


def _waits(rows: Any) -> tuple[dict[str, Any], bytes]:
    """A block of waits for these occurrences of stages: texts, records and attributes, packed."""
    import numpy as np
    import polars as pl

    from mstxkit.store import livefile, records, segment

    keys = [livefile.pack_text(livefile.TEXT, number, text, 0) for number, text in ((1, b"waits_for"), (2, b"actor"))]
    for number, stage in enumerate(STAGES, 1):
        keys.append(livefile.pack_text(livefile.STAGE, number, stage.encode(), 0))
        site = livefile.site_payload(b"wait for " + stage.encode(), b"default", number)
        keys.append(livefile.pack_text(livefile.SITE, number, site, 0))
    stages = rows["stage"].cast(pl.String).replace_strict(STAGES, range(1, 5), return_dtype=pl.UInt64).to_numpy()
    duration = rows["duration_ns"].to_numpy().astype(np.uint64)
    end = rows["start_ns"].to_numpy().astype(np.uint64) + duration - np.uint64(10**18)
    words = np.empty((2, rows.height, 3), dtype="<u8")
    words[0, :, 0] = np.diff(end | stages << np.uint64(48), prepend=np.uint64(0))
    words[0, :, 1] = stages | rows["step"].to_numpy().astype(np.uint64) << np.uint64(32)
    words[0, :, 2] = duration
    words[1] = np.stack(
        (np.full(rows.height, 2), np.full(rows.height, 1 | records.TEXT << 32), np.arange(rows.height)), 1
    )
    texts = b"".join(reversed(keys))
    codec, payload = segment.compress_stream(
        texts + b"".join(part.view(np.uint8).reshape(-1, 24).T.tobytes() for part in words)
    )
    sizes = {"records": rows.height, "attributes": rows.height, "text_bytes": len(texts), "codec": codec}
    return {**sizes, "origin": 10**12}, payload


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
