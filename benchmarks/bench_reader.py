"""10 million ranges of four processes to one frame: CPU time a row over a C no-op's, and the reader's peak memory.

The run is written block by block with the package's own encoder, then read by a fresh process each time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

from .harness import HERE, REFERENCE, Rounds, Row

VARIANTS: dict[str, dict[str, str]] = {"default": {}}
RANGES, PROCESSES, PER_BLOCK, READS = 10_000_000, 4, 40_000, 3
NAMES = (
    "actor_generate",
    "actor_compute_log_prob",
    "reference_compute_log_prob",
    "reward",
    "actor_update",
    "resharding",
)
READ = """
import json, sys, time
from mstxkit import open_run
began, cpu = time.perf_counter(), time.process_time()
frame = open_run(sys.argv[1]).ranges()
taken, cpu = time.perf_counter() - began, time.process_time() - cpu
peak_kb = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([frame.height, taken, cpu, peak_kb]))
"""


def measure(variant: str) -> list[Row]:
    """Median of three readings."""
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        size = write_run(Path(folder), RANGES)
        reads = [_read(folder) for _ in range(READS)]
    assert all(height == RANGES for height, *_ in reads), reads
    cpu_s, no_op_s = statistics.median(cpu for _, _, cpu, _ in reads), _no_op_s()
    rates = [RANGES / taken for _, taken, _, _ in reads]
    return [
        Row("reader.rows_per_s", statistics.median(rates), "rows/s", max(rates) - min(rates)),
        Row("reader.peak_gb", max(peak for *_, peak in reads) * 1024 / 1e9, "GB"),
        Row(
            "reader.row_cpu",
            cpu_s / RANGES / no_op_s,
            "x",
            note=f"{cpu_s:.2f} s CPU, {RANGES / cpu_s:,.0f} rows a second",
        ),
        Row("reader.file_bytes_per_range", size / RANGES, "bytes", note="made up data; see memory.sealed_bytes"),
    ]


def _no_op_s() -> float:
    """CPU seconds of one reference, as every other ratio here has it."""
    rounds = Rounds().run()
    return statistics.median(rounds.net(REFERENCE)) / 1e9


def _read(folder: str) -> tuple[int, float, float, int]:
    done = subprocess.run([sys.executable, "-c", READ, folder], cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    height, taken, cpu, peak = json.loads(done.stdout)
    return height, taken, cpu, peak


def write_run(folder: Path, ranges: int) -> int:
    """A finished run of `ranges` ranges, evenly over the processes; the size of its sealed files in bytes."""
    from mstxkit.store import segment

    (folder / "sealed").mkdir()
    (folder / "run.json").write_text(json.dumps({"format": 1, "run": "0" * 32, "created_ns": 1}))
    for rank in range(PROCESSES):
        identity = {"host": "bench", "pid": 100 + rank, "start": f"a{rank}", "rank": rank, "world_size": PROCESSES}
        with open(folder / "sealed" / f"bench-{100 + rank}-a{rank}.0001.mxs", "wb") as file:
            file.write(segment.file_header())
            for meta, payload in _blocks(rank, ranges // PROCESSES):
                file.write(segment.pack_block(segment.RECORDS, {"identity": identity, **meta}, payload))
            file.write(segment.pack_block(segment.END, {"identity": identity, "ended": "exit"}))
    return sum(path.stat().st_size for path in (folder / "sealed").iterdir())


def _blocks(rank: int, ranges: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    from mstxkit.store import segment

    texts = _texts()
    for bank, first in enumerate(range(0, ranges, PER_BLOCK), 1):
        n = min(PER_BLOCK, ranges - first)
        origin = 10**12 + first * 20_000
        codec, payload = segment.compress(texts + _planes(rank * 1000 + bank, n))
        anchors = [[10**12, 10**12, 10**18, 50], [origin, origin, 10**18 - 10**12 + origin, 50]]
        clock = {"kind": 1, "ticks_per_ns": 1.0, "anchors": anchors}
        sizes = {"records": n, "attributes": 0, "text_bytes": len(texts), "codec": codec}
        yield {"bank": bank, "origin": origin, "clock": clock, "counters": {}, "heartbeat_ns": origin, **sizes}, payload


def _texts() -> bytes:
    """Side table, read downwards: each name is a site and a stage of the same number."""
    from mstxkit.store import livefile

    entries = [
        livefile.pack_text(livefile.TRACK, track, livefile.track_payload(1000 + track, False), 0) for track in range(4)
    ]
    for number, name in enumerate(NAMES, 1):
        entries.append(livefile.pack_text(livefile.STAGE, number, name.encode(), 0))
        payload = livefile.site_payload(name.encode(), b"default", number)
        entries.append(livefile.pack_text(livefile.SITE, number, payload, 0))
    return b"".join(reversed(entries))


def _planes(seed: int, n: int) -> bytes:
    """Irregular ranges as byte planes: gaps and lengths that vary by orders of magnitude, as real ones do."""
    import numpy as np

    draw = np.random.default_rng(seed)
    site = draw.integers(1, len(NAMES) + 1, n, dtype=np.uint64)
    end = np.cumsum(draw.exponential(20_000, n).astype(np.uint64) + 1)
    words = np.empty((n, 3), dtype="<u8")
    words[:, 0] = np.diff(end | site << 48, prepend=np.uint64(0))
    step = np.uint64(seed % 1000) + np.arange(n, dtype=np.uint64) // np.uint64(10_000)
    words[:, 1] = site | draw.integers(0, 4, n, dtype=np.uint64) << 16 | step << 32
    words[:, 2] = draw.lognormal(9, 2, n).astype(np.uint64) | draw.integers(0, 4, n, dtype=np.uint64) << 40
    return words.view(np.uint8).reshape(n, 24).T.tobytes()
