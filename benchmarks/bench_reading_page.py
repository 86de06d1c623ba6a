"""Where a step's time goes, of 1,024 ranks with 10,000 ranges each: all tables, and the page.

A simulated job with a slow rank in it, in which ranks wait for each other in every step: written block by block with
the package's own encoder, then read by a fresh process. Times are CPU time; the page's size is of one file.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"tables": {}, "page": {}, "page_64": {}, "page_roles": {}, "page_opened": {}}
STEPS, A_STAGE, STEPS_A_BLOCK = 100, 20, 25
ROLES, RANKS_OF_A_ROLE, STAGES_OF_A_ROLE = ("actor", "critic", "reference", "reward"), 96, 12
TABLES = (
    "stages", "steps", "ranks", "stragglers", "bubbles", "critical_path", "tails", "samples", "links", "resharding",
    "what_if", "throughput", "overhead", "drops", "lateness", "waits", "verdicts", "escalations", "profiles",
)  # fmt: skip
OPENINGS = 3
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
PEAK = """
import json, sys, time
def peak_mb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024 / 1e6
"""
TABLES_READ = (
    PEAK
    + """
from mstxkit import open_run
began, cpu = time.perf_counter(), time.process_time()
run = open_run(sys.argv[1])
heights = {name: getattr(run, name)().height for name in sys.argv[2].split(",")}
print(json.dumps([time.process_time() - cpu, time.perf_counter() - began, peak_mb(), heights]))
"""
)
PAGE_MADE = (
    PEAK
    + """
from pathlib import Path
from mstxkit import open_run
from mstxkit.reading.page import writing
from mstxkit.reading.report import summary
began, cpu = time.perf_counter(), time.process_time()
run = open_run(sys.argv[1])
document = summary.summarise_run(run)
size = writing.write_page(run, document, Path(sys.argv[2]))
print(json.dumps([time.process_time() - cpu, time.perf_counter() - began, peak_mb(), size,
                  document["headline"]["verdict"]]))
"""
)


def measure(variant: str) -> list[Row]:
    """One reading, by a fresh process."""
    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        run, page = Path(folder, "run"), Path(folder, "page.html")
        run.mkdir()
        write_roles(run) if variant == "page_roles" else write_job(run, 64 if variant == "page_64" else 1024)
        if variant == "tables":
            cpu_s, taken_s, peak_mb, heights = _python(TABLES_READ, str(run), ",".join(TABLES))
            assert heights["bubbles"] > 100_000, heights
            return [
                Row("reading_page.tables_cpu_s", cpu_s, "s", note=f"{taken_s:.1f} s by the clock"),
                Row("reading_page.tables_mb", peak_mb, "MB"),
            ]
        cpu_s, taken_s, peak_mb, size, verdict = _python(PAGE_MADE, str(run), str(page))
        assert variant == "page_roles" or verdict.startswith("Rank 7 "), verdict
        if variant == "page_opened":
            return _opened(page)
        return [
            Row(f"reading_page.{variant}_cpu_s", cpu_s, "s", note=f"{taken_s:.1f} s by the clock, {peak_mb:.0f} MB"),
            Row(f"reading_page.{variant}_mb", size / 1e6, "MB"),
        ]


def _python(code: str, *words: str) -> list[Any]:
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read: list[Any] = json.loads(done.stdout)
    return read


def write_job(folder: Path, ranks: int) -> None:
    """A finished run: five stages a step, one after the other, of each 19 ranges inside; rank 7 generates slowly."""
    import numpy as np
    from builders.simulated_job import SimulatedJob

    from mstxkit.testing.simulator import InjectedFault, JobShape

    fault = InjectedFault("before", "actor_generate", rank=7, factor=2.0)
    shape = JobShape(ranks=ranks, reshards=False, has_rings=False)
    steps = list(SimulatedJob(shape, 7, [fault]).steps(STEPS))
    entered, left, tokens = (
        np.stack([values(step) for step in steps])
        for values in (lambda s: s.entered_s, lambda s: s.left_s, lambda s: s.work.tokens)
    )
    _begin(folder)
    _write_role(folder, "actor", 0, steps[0].stages, entered, left, tokens)


def write_roles(folder: Path) -> None:
    """Roles of many stages each, whose charts take more room than a page has; in every other stage ranks wait."""
    import numpy as np

    _begin(folder)
    chance, shape = np.random.default_rng(7), (STEPS, RANKS_OF_A_ROLE, STAGES_OF_A_ROLE)
    for number, role in enumerate(ROLES):
        entered, left, now = np.empty(shape), np.empty(shape), np.zeros(RANKS_OF_A_ROLE)
        for step, stage in np.ndindex(STEPS, STAGES_OF_A_ROLE):
            entered[step, :, stage] = now
            begun = np.full(RANKS_OF_A_ROLE, now.max()) if stage % 2 else now
            left[step, :, stage] = begun + chance.lognormal(0, 0.02 if stage % 2 else 0.3, RANKS_OF_A_ROLE)
            now = left[step, :, stage] + chance.uniform(0.05, 0.2, RANKS_OF_A_ROLE)
        stages = tuple(f"{role}_stage_{stage}" for stage in range(STAGES_OF_A_ROLE))
        tokens = chance.uniform(100, 1000, shape)
        _write_role(folder, role, number * RANKS_OF_A_ROLE, stages, entered, left, tokens)


def _begin(folder: Path) -> None:
    (folder / "sealed").mkdir()
    (folder / "run.json").write_text(json.dumps({"format": 1, "run": "0" * 32, "created_ns": 1}))


def _write_role(
    folder: Path, role: str, first_rank: int, stages: tuple[str, ...], entered: Any, left: Any, tokens: Any
) -> None:
    """Its ranks: (steps, ranks, stages) seconds, and tokens."""
    from mstxkit.recorder.sealed import SealedFiles
    from mstxkit.store import block_index, segment

    texts = _texts(stages)
    for at in range(entered.shape[1]):
        rank, host = first_rank + at, f"host{(first_rank + at) // 8}"
        identity = {
            "host": host,
            "pid": 100 + rank,
            "start": "a",
            "rank": rank,
            "world_size": entered.shape[1],
            "role": role,
        }
        files = SealedFiles(folder / "sealed", f"{host}-{100 + rank}-a", 64 << 20, 1 << 40, lambda count: None)
        for bank, first in enumerate(range(0, STEPS, STEPS_A_BLOCK)):
            part = slice(first, first + STEPS_A_BLOCK)
            meta, payload = _block(texts, first, entered[part, at], left[part, at], tokens[part, at])
            meta.update(bank=bank + 1, identity=identity, stages=list(stages))
            files.append(block_index.make_block(segment.RECORDS, meta, payload, meta["records"]))
        files.append(block_index.make_block(segment.END, {"identity": identity, "ended": "exit"}), is_last=True)


def _texts(stages: tuple[str, ...]) -> bytes:
    from mstxkit.store import livefile

    entries = [livefile.pack_text(livefile.TRACK, 0, livefile.track_payload(1000, False), 0)]
    for number, name in enumerate(stages, 1):
        entries.append(livefile.pack_text(livefile.STAGE, number, name.encode(), 0))
        site = livefile.site_payload(name.encode(), b"default", number)
        entries.append(livefile.pack_text(livefile.SITE, number, site, 0))
    for number in range(A_STAGE - 1):
        site = livefile.site_payload(f"layer_{number}.forward".encode(), b"default", 0)
        entries.append(livefile.pack_text(livefile.SITE, len(stages) + 1 + number, site, 0))
    entries.append(livefile.pack_text(livefile.TEXT, 1, b"tokens", 0))
    return b"".join(reversed(entries))


def _block(texts: bytes, first: int, entered_s: Any, left_s: Any, tokens: Any) -> tuple[dict[str, Any], bytes]:
    """Some steps of one rank: (steps, stages) seconds, and tokens."""
    import numpy as np

    from mstxkit.store import segment

    count, stages = entered_s.shape
    begin, end = (np.round(values * 1e9).astype(np.int64).reshape(-1, 1) for values in (entered_s, left_s))
    inner = np.arange(1, A_STAGE) / A_STAGE
    ends = np.concatenate([begin + ((end - begin) * inner).astype(np.int64), end], axis=1).reshape(-1)
    lasted = np.concatenate([np.repeat((end - begin) // A_STAGE, A_STAGE - 1, axis=1), end - begin], axis=1).reshape(-1)
    stage = np.repeat(np.tile(np.arange(1, stages + 1), count), A_STAGE)
    inside = np.append(stages + 1 + np.arange(A_STAGE - 1), 0)
    site = np.where(np.tile(inside, count * stages) == 0, stage, np.tile(inside, count * stages))
    step = np.repeat(np.arange(first, first + count), stages * A_STAGE)
    origin, n = int(begin.min()), len(ends)
    words = np.empty((n, 3), dtype="<u8")
    words[:, 0] = np.diff((ends - origin | stage << 48).astype(np.uint64), prepend=np.uint64(0))
    words[:, 1] = (site | step << 32).astype(np.uint64)
    words[:, 2] = (lasted | np.where(site <= stages, 0, 1) << 40).astype(np.uint64)
    owner = np.flatnonzero(site <= stages)[np.isfinite(tokens).reshape(-1)].astype(np.uint64)
    said = np.empty((len(owner), 3), dtype="<u8")
    said[:, 0] = np.round(tokens[np.isfinite(tokens)]).astype(np.uint64)
    said[:, 1], said[:, 2] = 1 | 1 << 32, owner
    planes, attributes = (part.view(np.uint8).reshape(len(part), 24).T.tobytes() for part in (words, said))
    codec, payload = segment.compress_stream(texts + planes + attributes)
    offset = 10**18
    anchors = [[at, at, at + offset, 50] for at in (origin, int(end.max()))]
    clock = {"kind": 1, "ticks_per_ns": 1.0, "anchors": anchors}
    about = {"origin": origin, "clock": clock, "counters": {}, "heartbeat_ns": int(end.max())}
    extent = [origin, int(end.max()), first, first + count - 1]
    sizes = {"records": n, "attributes": len(owner), "text_bytes": len(texts), "codec": codec}
    return {**about, **sizes, "extent": extent}, payload


def _opened(page: Path) -> list[Row]:
    """In a real browser: until the text is there, and until all of it can be used; none where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return []
    ready = statistics.median(_ready_ms(chromium, page) for _ in range(OPENINGS))
    row = Row("reading_page.ready_s", ready / 1e3, "s", note="by the clock, of a machine that may be busy")
    return [*_first_paint(chromium, page), row]


def _ready_ms(chromium: str, page: Path) -> int:
    """As the page itself says. No debugger looks on, as it does for playwright: for one, V8 finds out where each
    exception of plotly's beginning was thrown, by parsing all of plotly once more, which takes half of the time.
    """
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, "--headless", "--dump-dom", f"--user-data-dir={profile}", *OPTIONS, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = re.search(r'<html[^>]* data-ready="(\d+)"', done.stdout)
    assert said is not None, done.stderr[-2000:]
    return int(said[1])


def _first_paint(chromium: str, page: Path) -> list[Row]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=chromium, headless=True, args=OPTIONS
        )
        tab = context.new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector("#plot-steps .main-svg", state="attached")
        paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        context.close()
    return [Row("reading_page.first_paint_s", paint / 1e3, "s", note="the verdict can be read; by the clock")]
