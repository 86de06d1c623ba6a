"""A run takes no more memory than its size accounts for, whatever its blocks claim; what is only regular is read."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from builders import lives
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading import sealed
from mstxkit.reading.run import open_run
from mstxkit.store import records, segment

READS = """
    import json, re, sys, mstxkit
    run = mstxkit.open_run(sys.argv[1])
    rows = len(run.ranges()), len(run.marks()), len(run.stages())
    # Of this program alone: ru_maxrss is also what its parent had when it forked.
    largest = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) >> 10
    print(json.dumps([rows[0], len(run.damage), run.damage[0].reason if run.damage else "", largest]))
"""


def with_bomb(run: Path, kind: int, blocks: int, claimed: int) -> None:
    """One process with a whole block, and after it blocks of zeros with checksums that hold."""
    path = ProcessFiles(run).seal(BankFiles(1).range("good", 1, 2), ended=None)
    last = list(segment.scan_blocks(path.read_bytes()))[-1]
    assert isinstance(last, segment.Block)
    rows = claimed // records.RECORD_BYTES
    packed = zlib.compress(b"\0" * (rows * records.RECORD_BYTES) if kind == segment.RECORDS else b" " * claimed, 9)
    for number in range(blocks):
        meta = {**last.meta, "bank": 100 + number, "records": rows, "attributes": 0, "text_bytes": 0, "codec": "zlib"}
        with path.open("ab") as stream:
            stream.write(segment.pack_block(kind, meta, packed))


@pytest.mark.parametrize("kind", [segment.RECORDS, segment.OPEN_RANGES])
def test_blocks_that_claim_more_than_the_run_accounts_for_are_not_unpacked(tmp_path: Path, kind: int) -> None:
    run = new_run(tmp_path / "run")
    with_bomb(run, kind, blocks=20, claimed=200 << 20)
    rows, damaged, reason, largest_mib = json.loads(lives.run(READS, run))

    assert rows == 1
    assert damaged == (20 if kind == segment.RECORDS else 1)
    assert "claim" in reason or "too large" in reason
    assert largest_mib < 1024


def test_blocks_share_what_goes_beyond_their_size(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    with_bomb(run, segment.RECORDS, blocks=20, claimed=10 << 20)
    opened = open_run(run)
    opened.ranges()

    assert 1 < len(opened.damage) < 20


def test_more_is_believed_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path / "run")
    with_bomb(run, segment.RECORDS, blocks=3, claimed=30 << 20)
    (refused,) = {part.reason for part in read_damage(run)}
    monkeypatch.setenv(sealed.VARIABLE, str(100 << 20))

    assert sealed.VARIABLE in refused
    assert not read_damage(run)


def read_damage(run: Path) -> list[object]:
    opened = open_run(run)
    opened.ranges(), opened.ranges()  # what was granted once is granted again
    return list(opened.damage)


def test_the_most_regular_ranges_that_there_are_are_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    lives.run(
        """
        import sys, mstxkit
        mstxkit.capture(sys.argv[1], banks=32)
        for _ in range(200_000):
            with mstxkit.mstx_range("a", n=1, role="actor"): pass
        """,
        run,
    )
    rows, damaged, reason, _ = json.loads(lives.run(READS, run))

    assert (rows, damaged) == (200_000, 0), reason


def test_a_live_file_with_holes_is_not_read_whole(tmp_path: Path) -> None:
    """A file of nothing that claims a gigabyte."""
    run = new_run(tmp_path / "run")
    path = ProcessFiles(run).live(BankFiles(1).range("a", 1, 2))
    with path.open("r+b") as stream:
        stream.truncate(1 << 30)
    opened = open_run(run)

    assert [part.reason for part in opened.damage] == ["a live file with holes: it claims more than there is"]
