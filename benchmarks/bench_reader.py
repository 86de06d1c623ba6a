"""Reading a run: 10 million ranges to one frame, one rank of a thousand, one step, all stages, and who took part.

The run is written block by block with the package's own encoder, then read by a fresh process each time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from .harness import HERE, REFERENCE, Rounds, Row

VARIANTS: dict[str, dict[str, str]] = {"all": {}, "one_rank": {}, "one_step": {}, "stages": {}, "status": {}}
READS = 3
STAGES = ("actor_generate", "reward", "actor_compute_log_prob", "actor_update")
NAMES = tuple(f"layer_{number}.forward" for number in range(40))
# A step: four stages one after the other, of each 24 ranges inside.
INSIDE, RANGES_A_STEP = 24, 100
# So many different blocks; what comes after them has the same records.
KINDS = 64
# Imports are not what is measured: a session of a notebook pays for them once.
READ = """
import json, os, sys, time
import numpy, polars, zstandard
from mstxkit.reading import align, attributes, frames, live, opened, rows, sealed, selection, vocabulary
from mstxkit.reading.tables import stages, waits
from mstxkit.reading import endings, labels
from mstxkit import open_run
def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
real, sizes = os.pread, []
def counted(*given):
    sizes.append(len(found := real(*given)))
    return found
os.pread = counted
before = peak_kb()
began, cpu = time.perf_counter(), time.process_time()
run = open_run(sys.argv[1], **json.loads(sys.argv[3]))
frame = getattr(run, sys.argv[2])()
taken, cpu = time.perf_counter() - began, time.process_time() - cpu
print(json.dumps([frame.height, taken, cpu, peak_kb(), before, sum(sizes)]))
"""


class Setting(NamedTuple):
    """A run, and what is asked of it. `height`: so many rows are the answer."""

    processes: int
    ranges: int
    table: str
    asked: dict[str, Any]
    height: int
    per_block: int = 40_000
    attributes: bool = True


SETTINGS = {
    "all": Setting(4, 10_000_000, "ranges", {}, 10_000_000, attributes=False),
    "one_rank": Setting(1024, 10_240_000, "ranges", {"ranks": 500}, 10_000, per_block=2_500),
    "one_step": Setting(64, 25_600_000, "ranges", {"steps": 1000}, 64 * RANGES_A_STEP),
    "stages": Setting(1024, 10_240_000, "stages", {}, 1024 * 400, per_block=2_500),
    "status": Setting(2, 2 * 750 * 40_000, "processes", {}, 2),
}


def measure(variant: str) -> list[Row]:
    """Medians of three readings, each by a fresh process."""
    setting = SETTINGS[variant]
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        size = write_run(Path(folder), setting)
        reads = [_read(folder, setting) for _ in range(READS)]
    assert all(read[0] == setting.height for read in reads), reads
    cpu_s, taken_s = (statistics.median(read[place] for read in reads) for place in (2, 1))
    more_mb = max(read[3] for read in reads) * 1024 / 1e6
    note = f"{taken_s:.2f} s, {more_mb:.0f} MB at most, {more_mb - reads[0][4] * 1024 / 1e6:.0f} of it for the reading"
    spread = max(read[2] for read in reads) - min(read[2] for read in reads)
    if variant == "status":
        note = f"of {size / setting.processes / 1e6:.0f} MB a process"
        return [Row("reader.status_kb", reads[0][5] / setting.processes / 1024, "KB", note=note)]
    rows = [Row(f"reader.{variant}_cpu_s", cpu_s, "s", spread, note=note), Row(f"reader.{variant}_mb", more_mb, "MB")]
    return rows + (_of_all(setting.ranges, cpu_s, taken_s, size) if variant == "all" else [])


def _of_all(ranges: int, cpu_s: float, taken_s: float, size: int) -> list[Row]:
    return [
        Row("reader.all_s", taken_s, "s", note="by the clock, on the cores that there are"),
        Row("reader.rows_per_s", ranges / taken_s, "rows/s"),
        Row("reader.row_cpu", cpu_s / ranges / _no_op_s(), "x", note=f"{ranges / cpu_s:,.0f} rows a second of CPU"),
        Row("reader.file_bytes_per_range", size / ranges, "bytes", note="made up data; see memory.sealed_bytes"),
    ]


def _no_op_s() -> float:
    """CPU seconds of one reference, as every other ratio here has it."""
    rounds = Rounds().run()
    return statistics.median(rounds.net(REFERENCE)) / 1e9


def _read(folder: str, setting: Setting) -> list[Any]:
    command = [sys.executable, "-c", READ, folder, setting.table, json.dumps(setting.asked)]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read: list[Any] = json.loads(done.stdout)
    return read


def write_run(folder: Path, setting: Setting) -> int:
    """A finished run of these ranges, evenly over its processes; the size of its sealed files in bytes.

    Blocks are packed once and used by all processes: what is read is the same, and a thousand ranks are soon written.
    """
    from mstxkit.recorder.sealed import SealedFiles
    from mstxkit.store import block_index, segment

    (folder / "sealed").mkdir()
    (folder / "run.json").write_text(json.dumps({"format": 1, "run": "0" * 32, "created_ns": 1}))
    packed: dict[tuple[int, int], tuple[dict[str, Any], bytes]] = {}
    for rank in range(setting.processes):
        identity = {"host": "bench", "pid": 100 + rank, "start": f"a{rank}", "rank": rank, "world_size": 1024}
        files = SealedFiles(folder / "sealed", f"bench-{100 + rank}-a{rank}", 64 << 20, 1 << 40, lambda count: None)
        for bank, n in _banks(setting):
            kind = bank % KINDS, n
            if kind not in packed:
                packed[kind] = _block(*kind, setting.attributes)
            meta, payload = packed[kind]
            moved = {**meta, **_when(bank, n, setting), "identity": identity}
            files.append(block_index.make_block(segment.RECORDS, moved, payload, n))
        files.append(block_index.make_block(segment.END, {"identity": identity, "ended": "exit"}), is_last=True)
    return sum(path.stat().st_size for path in (folder / "sealed").iterdir())


def _banks(setting: Setting) -> Iterator[tuple[int, int]]:
    ranges = setting.ranges // setting.processes
    for bank, first in enumerate(range(0, ranges, setting.per_block)):
        yield bank, min(setting.per_block, ranges - first)


def _when(bank: int, n: int, setting: Setting) -> dict[str, Any]:
    origin = 10**12 + bank * setting.per_block * 10_000_000
    anchors = [[10**12, 10**12, 10**18, 50], [origin + 1, origin + 1, 10**18 - 10**12 + origin + 1, 50]]
    clock = {"kind": 1, "ticks_per_ns": 1.0, "anchors": anchors}
    first, steps = _first_step(bank, n), n // RANGES_A_STEP
    about = {"bank": bank + 1, "origin": origin, "clock": clock, "counters": {}, "heartbeat_ns": origin}
    extent = [origin, origin + n * 20_000_000, first, first + steps - 1]
    return {**about, "extent": extent, "stages": list(STAGES)}


def _first_step(bank: int, n: int) -> int:
    return bank % KINDS * n // RANGES_A_STEP


def _block(bank: int, n: int, has_attributes: bool) -> tuple[dict[str, Any], bytes]:
    from mstxkit.store import segment

    texts, planes, attributes = _texts(), _planes(bank, n), _attributes(n) if has_attributes else b""
    codec, payload = segment.compress_stream(texts + planes + attributes)
    sizes = {"records": n, "attributes": len(attributes) // 24, "text_bytes": len(texts), "codec": codec}
    return sizes, payload


def _texts() -> bytes:
    """Side table, read downwards: stages that are sites too, names inside of them, keys of attributes."""
    from mstxkit.store import livefile

    entries = [livefile.pack_text(livefile.TRACK, 0, livefile.track_payload(1000, False), 0)]
    for number, name in enumerate(STAGES, 1):
        entries.append(livefile.pack_text(livefile.STAGE, number, name.encode(), 0))
        payload = livefile.site_payload(name.encode(), b"default", number)
        entries.append(livefile.pack_text(livefile.SITE, number, payload, 0))
    for number, name in enumerate(NAMES, len(STAGES) + 1):
        payload = livefile.site_payload(name.encode(), b"default", 0)
        entries.append(livefile.pack_text(livefile.SITE, number, payload, 0))
    entries.append(livefile.pack_text(livefile.TEXT, 1, b"tokens", 0))
    return b"".join(reversed(entries))


def _planes(bank: int, n: int) -> bytes:
    """Irregular ranges as byte planes: gaps and lengths that vary by orders of magnitude, as real ones do."""
    import numpy as np

    draw, a_stage = np.random.default_rng(bank), INSIDE + 1
    place = np.arange(n) % a_stage
    stage = np.arange(n) // a_stage % len(STAGES) + 1
    is_stage = place == INSIDE  # the last of each group: it ends last
    gap = draw.exponential(8_000_000, n).astype(np.int64) + 2000
    end = np.cumsum(gap)
    duration = (gap * draw.uniform(0.1, 0.9, n)).astype(np.int64)
    last = np.flatnonzero(is_stage)
    duration[last] = end[last] - (end - gap)[last - INSIDE] - 100
    site = np.where(is_stage, stage, len(STAGES) + 1 + draw.integers(0, len(NAMES), n))
    step = _first_step(bank, n) + np.arange(n) // RANGES_A_STEP
    words = np.empty((n, 3), dtype="<u8")
    words[:, 0] = np.diff((end | stage << 48).astype(np.uint64), prepend=np.uint64(0))
    words[:, 1] = (site | step << 32).astype(np.uint64)
    words[:, 2] = (duration | np.where(is_stage, 0, 1) << 40).astype(np.uint64)
    return words.view(np.uint8).reshape(n, 24).T.tobytes()


def _attributes(n: int) -> bytes:
    """Tokens of each stage, as byte planes."""
    import numpy as np

    owner = np.arange(INSIDE, n, INSIDE + 1, dtype=np.uint64)
    words = np.empty((len(owner), 3), dtype="<u8")
    words[:, 0], words[:, 1], words[:, 2] = 1000 + owner % 977, 1 | 1 << 32, owner
    return words.view(np.uint8).reshape(len(owner), 24).T.tobytes()
