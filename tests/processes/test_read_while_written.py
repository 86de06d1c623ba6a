"""One process records as fast as it can while another reads: every snapshot is what was recorded up to a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import lives, soak

import mstxkit

pl = pytest.importorskip("polars")

WRITES = """
    import sys, time, mstxkit
    from mstxkit.engine.choose import engine
    mstxkit.capture(sys.argv[1], bank_bytes=64 << 10, banks=16, slots=64, seal_every_s=0.2)
    print("ready", flush=True)
    number = 0
    while number < int(sys.argv[2]):
        with mstxkit.stage("outer", n=number):
            with mstxkit.mstx_range("inner", n=number, text=f"text {number}"):
                number += 1
        # The sealer keeps up, also where it gets no core: what is dropped is another test's matter.
        while number % 100 == 0 and (time.sleep(0.005) or engine.full_bank() >= 0):
            pass
    mstxkit.capturing.stop_recording()
    print(number)
"""


def numbers(rows: pl.DataFrame, name: str) -> list[int]:
    """What the ranges of this name carry, in order."""
    return sorted(rows.filter(pl.col("name") == name)["n"].to_list())


def test_no_snapshot_lacks_alters_or_repeats_a_range(run: Path) -> None:
    count = soak.rounds(100_000, 20_000)
    writer = lives.start(WRITES, run, count)
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    seen = snapshots = 0
    while seen < count:
        opened = mstxkit.open_run(run)
        n, text = (pl.col("attributes").str.json_path_match(path) for path in ("$.n", "$.text"))
        rows = opened.ranges().filter(~pl.col("open")).with_columns(n=n.cast(pl.Int64), text=text)
        inner, outer = numbers(rows, "inner"), numbers(rows, "outer")

        assert inner == list(range(len(inner))), "none is missing, and none is there twice"
        assert outer == list(range(len(outer)))
        assert len(inner) - len(outer) in (0, 1)
        texts = rows.filter(pl.col("name") == "inner")
        assert (texts["text"] == pl.format("text {}", "n").pipe(texts.select).to_series()).all()
        assert (rows["stage"] == "outer").all() and (rows["duration_ns"] >= 0).all()
        assert len(inner) >= seen
        assert not opened.damage
        seen, snapshots = len(inner), snapshots + 1
    status, out, err = lives.finished(writer)

    assert (status, int(out)) == (0, count), err
    assert snapshots > 3
    assert lives.ended(run) == {"inner": count, "outer": count}
