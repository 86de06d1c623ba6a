"""Bytes of a range: live, by what a bank really grows; sealed, on the demo's own trace, with zstd and with zlib; and
sealed with a name or a text of its own each, over what Parquet takes for the same table, also with zstd.
"""

from __future__ import annotations

import json
import random
import tempfile
import zlib
from pathlib import Path
from typing import Any, Callable

from .harness import NATIVE, Row
from .recording import recording

VARIANTS = {"live": NATIVE, "sealed": NATIVE, "texts": NATIVE}
LIVE_RANGES, TEXTS = 1_000, 20_000


def measure(variant: str) -> list[Row]:
    """Bytes per range."""
    return {"live": lambda: [_live()], "sealed": _sealed, "texts": _texts}[variant]()


def _live() -> Row:
    """Records of a bank before and after ranges without attributes, times the distance between two records."""
    from mstxkit import mstx_range
    from mstxkit.store.records import RECORD_BYTES

    with recording(native=True) as session:
        live = _live_file(session.run)
        before = _record_count(live)
        for _ in range(LIVE_RANGES):
            with mstx_range("x"):
                pass
        grown = _record_count(live) - before
        session.expect({"x": LIVE_RANGES})
    return Row("memory.live_bytes", grown * RECORD_BYTES / LIVE_RANGES, "bytes")


def _live_file(run: Path) -> Path:
    pointer = next((run / "live").glob("*.json"))
    paths = [Path(value) for value in json.loads(pointer.read_text()).values() if isinstance(value, str)]
    return next(path for path in paths if path.suffix == ".live")


def _record_count(live: Path) -> int:
    from mstxkit.store import livefile

    view = live.read_bytes()
    layout = livefile.read_header(view).layout
    banks = (livefile.read_bank(view, layout, index) for index in range(layout.bank_count))
    return sum(bank.record_count for bank in banks if bank)


def _sealed() -> list[Row]:
    """The whole size of the sealed files, over the ranges that read back."""
    from mstxkit import open_run
    from mstxkit.demo.launch import DemoPlan, run_ranks

    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        run = Path(folder) / "run"
        run_ranks(DemoPlan(run))
        ranges = open_run(run).ranges().height
        files = [path.read_bytes() for path in (run / "sealed").iterdir()]
    size, payload, with_zlib = (sum(part) for part in zip(*(_sizes(data) for data in files)))
    return [
        Row("memory.sealed_bytes", size / ranges, "bytes", note=f"{ranges:,} ranges of the demo, all of the files"),
        Row("memory.sealed_payload_bytes", payload / ranges, "bytes", note="records and texts alone"),
        Row("memory.sealed_zlib_bytes", (size - payload + with_zlib) / ranges, "bytes", note="the same with zlib"),
    ]


def _texts() -> list[Row]:
    """Of each kind of text: the whole of the sealed files over a Parquet file of the table that shows them."""
    from mstxkit import mstx_range

    numbers = random.Random(1)
    return [
        _over_parquet("names", lambda number: mstx_range(f"request {number}")),
        _over_parquet("texts", lambda number: mstx_range("request", text=f"request {number}")),
        _over_parquet("random_texts", lambda number: mstx_range("request", text=f"{numbers.getrandbits(128):032x}")),
    ]


def _over_parquet(what: str, made: Callable[[int], Any]) -> Row:
    from mstxkit import capture, open_run, stage, step

    with tempfile.TemporaryDirectory(prefix="mstxkit-bench-") as folder:
        with capture(Path(folder) / "run", budget_ratio=0):
            step(3)
            with stage("actor_update"):
                for number in range(TEXTS):
                    with made(number):
                        pass
        rows = open_run(Path(folder) / "run").ranges()
        # What two ranges of a run may differ in; who recorded them stands in a file's name.
        rows = rows.select("track", "depth", "step", "stage", "name", "start_ns", "duration_ns", "error", "attributes")
        rows.write_parquet(Path(folder) / "table", compression="zstd")
        sealed = sum(path.stat().st_size for path in (Path(folder) / "run/sealed").iterdir())
        parquet = (Path(folder) / "table").stat().st_size
    note = f"{sealed / TEXTS:.1f} bytes a range, {parquet / TEXTS:.1f} in Parquet"
    return Row(f"memory.{what}_over_parquet", sealed / parquet, "x Parquet", note=note)


def _sizes(data: bytes) -> tuple[int, int, int]:
    """(whole file, its payloads, those payloads with zlib) in bytes."""
    from mstxkit.store import segment

    payload = with_zlib = 0
    for block in segment.scan_blocks(data):
        if isinstance(block, segment.Block) and block.kind == segment.RECORDS:
            payload += len(block.payload)
            with_zlib += len(zlib.compress(segment.decompress_stream(block.meta["codec"], block.payload), 6))
    return len(data), payload, with_zlib
