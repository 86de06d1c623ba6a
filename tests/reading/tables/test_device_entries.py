"""Lateness by device ranges: of profiled steps that were parsed, who stays least came last, within a stated bound."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
from builders.profiled_steps import MS, RUN_ID, ProfiledStep

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.report import devices  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.tables import device_entries, lateness  # noqa: E402

# Rank 2 comes last to both collectives of the step, by 20 ms at most.
LATE = {0: (0, 1), 1: (3, 0), 2: (9, 20), 3: (1, 2)}


@pytest.mark.parametrize("as_operations", [False, True])
def test_a_parsed_step_says_who_came_last_and_when_that_is_known_to(tmp_path: Path, as_operations: bool) -> None:
    ProfiledStep(tmp_path / "run", LATE).write(as_operations=as_operations)

    table = open_run(tmp_path / "run").lateness()
    assert table.to_dicts() == [
        {
            "step": 5, "group": "0-3", "rank": rank, "stage": "actor_update", "late_ns": round(late * MS),
            "error_ns": 2 * MS, "source": "device",
        }
        for rank, late in ((0, 1), (1, 3), (2, 20), (3, 2))
    ]  # fmt: skip


@pytest.mark.parametrize("takes_ms", [0.1, 2.0, 40.0])
@pytest.mark.parametrize("share", [-0.5, -0.2, 0.4, 0.9])
def test_the_bound_holds_where_ends_lie_no_farther_apart_than_a_collective_takes(
    tmp_path: Path, takes_ms: float, share: float
) -> None:
    """Rank 3 leaves so much later, or earlier, than rank 0, as a share of what the transfer takes."""
    skew_ns = {rank: round(share * rank / 3 * takes_ms * MS) for rank in LATE}
    ProfiledStep(tmp_path / "run", LATE).write(takes_ms=takes_ms, skew_ns=skew_ns)

    (window,) = device_entries.find_windows(tmp_path / "run", RUN_ID)
    rows = lateness.of_device(window)
    assert [min(abs(row.late_ns - late * MS) for late in LATE[row.rank]) <= row.error_ns for row in rows] == [True] * 4


def test_filters_of_a_run_hold_for_these_rows_too(tmp_path: Path) -> None:
    ProfiledStep(tmp_path / "run", LATE).write(step=5)
    ProfiledStep(tmp_path / "run", LATE).write(step=9)

    assert open_run(tmp_path / "run", ranks=[2], steps=[9]).lateness().select("step", "rank").rows() == [(9, 2)]


def test_what_is_not_parsed_or_was_recorded_by_one_alone_says_nothing(tmp_path: Path) -> None:
    ProfiledStep(tmp_path / "run", LATE).write(step=5, parsed=False)
    ProfiledStep(tmp_path / "run", {3: (0, 9)}).write(step=6)
    ProfiledStep(tmp_path / "run", LATE).write(step=7, state="failed")

    assert open_run(tmp_path / "run").lateness().height == 0


def test_a_database_behind_a_link_or_outside_the_run_is_not_read(tmp_path: Path) -> None:
    ProfiledStep(tmp_path / "elsewhere", LATE).write()
    ProfiledStep(tmp_path / "run", LATE).write(parsed=False)
    for rank in LATE:
        way = f"profiles/actor_update/step5/rank{rank}/{1000 + rank}-77/host_77_20261122000000000_ascend_pt"
        os.symlink(
            tmp_path / "elsewhere" / way / "ASCEND_PROFILER_OUTPUT", tmp_path / "run" / way / "ASCEND_PROFILER_OUTPUT"
        )
    ProfiledStep(tmp_path / "run", LATE).write(step=6, output="../../../../../../elsewhere/profiles")

    assert open_run(tmp_path / "run").lateness().height == 0


@pytest.mark.parametrize("rank", [0, 2])
def test_where_one_database_is_damaged_the_others_are_compared(tmp_path: Path, rank: int) -> None:
    ProfiledStep(tmp_path / "run", LATE).write()
    (database,) = (tmp_path / "run").rglob(f"ascend_pytorch_profiler_{rank}.db")
    database.write_bytes(b"SQLite format 3\0" + bytes(500))

    assert set(open_run(tmp_path / "run").lateness()["rank"]) == set(LATE) - {rank}


def test_texts_and_numbers_that_are_none_of_a_profiler_are_left_out(tmp_path: Path) -> None:
    ProfiledStep(tmp_path / "run", LATE, group="\x1b[2J<b>").write()
    for database in (tmp_path / "run").rglob("*.db"):
        with sqlite3.connect(database) as base:
            base.execute("update TASK set startNs = 'nan', endNs = 1e300 where rowid = 2")
            base.execute("update STRING_IDS set value = ? where id = 910", (json.dumps(["x"] * 9),))
        base.close()

    assert open_run(tmp_path / "run").lateness().height == 0


def test_of_a_repeated_step_the_newest_profile_of_each_rank_counts(tmp_path: Path) -> None:
    ProfiledStep(tmp_path / "run", LATE).write()
    for rank in LATE:
        folder = tmp_path / "run" / "profiles" / "actor_update" / "step5" / f"rank{rank}"
        (older,) = folder.iterdir()
        about = json.loads((older / "session.json").read_text())
        (folder / "0999-77").mkdir()
        (folder / "0999-77" / "session.json").write_text(json.dumps({**about, "start_ns": 1}))

    assert open_run(tmp_path / "run").lateness().height == 4


def test_words_name_the_last_rank_or_say_that_a_parse_is_missing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ProfiledStep(run, {0: (0,), 1: (0.5,)}).write(step=4)
    ProfiledStep(run, LATE).write(step=5, stage="actor_update")
    ProfiledStep(run, LATE).write(step=6, parsed=False)

    lines = [devices.tell_last(said, "R") for said in devices.find_last(run, RUN_ID)]
    assert lines == [
        "by device ranges of step 4 in actor_update: no rank came later than the others by more than the bound",
        "by device ranges of step 5 in actor_update: rank 2 came last of ranks 0-3, 20.0 ms after the first "
        "(to 2.0 ms)",
        "by device ranges of step 6 in actor_update: not known yet; `mstxkit profiles R --analyse` parses that profile",
    ]


def test_a_profile_of_a_cpu_is_not_asked_to_be_parsed(tmp_path: Path) -> None:
    ProfiledStep(tmp_path / "run", LATE).write(parsed=False, backend="torch")

    assert devices.find_last(tmp_path / "run", RUN_ID) == []
