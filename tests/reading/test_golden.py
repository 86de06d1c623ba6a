"""Files of every format version ever shipped read back to exactly the same tables, for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.host import identity
from mstxkit.reading.run import Run, open_run
from mstxkit.store import block_index, segment

GOLDEN = Path(__file__).parents[1] / "golden"
T0 = 1_700_000_000_000_001_000  # wall clock of the first anchor, which has 0 ticks; 3 ticks are 1 ns


@pytest.fixture(params=["v1", "v2"])
def shipped(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """The same run, as each version wrote it."""
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / request.param, run)
    (run / "live").mkdir()
    pointer = {"format": 1, "path": str(run / "second.live"), "boot": identity.boot_id(), "host": "node-a", "pid": 101}
    (run / "live" / "node-a-101-bb.json").write_text(json.dumps({**pointer, "start": "bb"}))
    return open_run(run)


def test_its_ranges(shipped: Run) -> None:
    first, second = (0, "node-a", 100, "actor"), (1, "node-a", 101, None)
    second_end, second_start = (1 << 41) * 4, 1 << 41

    assert shipped.ranges().rows() == [
        (*first, 0, 0, 0, "default", "actor_generate", "generate", T0 + 1_000, 2_000, None, False, False,
         '{"prompts":8,"temperature":0.5}', None),
        (*first, 1, 1, 0, "default", "actor_generate", "wait", T0 + 1_200, 200, 100, False, True, None, None),
        (*second, 0, 0, None, "default", "reward", "reward", T0 + round(second_start / 3),
         round(second_end / 3) - round(second_start / 3), None, False, False, None, None),
        (*first, 0, 1, 1, "comm", "actor_update", "all_reduce", T0 + 4_000, None, None, True, False, None, None),
        (*second, 0, 0, None, "default", None, "résumé", T0 + 200_000, None, None, True, False, None, None),
    ]  # fmt: skip


def test_its_marks(shipped: Run) -> None:
    assert shipped.marks().rows() == [
        (
            0,
            "node-a",
            100,
            0,
            0,
            "default",
            None,
            "weights ready",
            T0 + 3_100,
            '{"ok":true,"note":"done","value":"list"}',
        )
    ]


def test_its_stages(shipped: Run) -> None:
    assert shipped.stages().rows()[-1] == (
        0,
        "actor_generate",
        0,
        "actor",
        100,
        1,
        2_000,
        T0 + 1_000,
        T0 + 3_000,
        None,
        None,
    )


def test_its_processes_and_tracks(shipped: Run) -> None:
    assert shipped.damage == []
    assert shipped.processes().select("rank", "pid", "state", "clock", "clock_error_ns").rows() == [
        (0, 100, "killed", "tsc", 40),
        (1, 101, "lost", "tsc", 40),
    ]
    assert shipped.tracks().select("rank", "track", "thread", "is_task").rows() == [
        (0, 0, 4711, False),
        (0, 1, 4711, True),
        (1, 0, 99, False),
    ]


def test_a_version_is_what_it_says() -> None:
    """Both are still read as what they were written as: heads with a checksum for meta and payload, and for each."""
    found = {}
    for version in ("v1", "v2"):
        (path,) = (GOLDEN / version / "sealed").iterdir()
        data = path.read_bytes()
        head = segment.head_of(data[segment.FILE_HEADER_BYTES :], segment.FILE_HEADER_BYTES, len(data))
        assert isinstance(head, segment.Head)
        found[version] = head.version, block_index.size_by_trailer(data) > 0

    assert found == {"v1": (segment.JOINT, False), "v2": (segment.APART, True)}
