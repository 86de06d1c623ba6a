"""What Perfetto's own trace processor makes of an export: each slice in its process, under its parent, at its time."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import async_rank, lives, trace_processor
from builders.run_files import BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading.exporters import load_exporter  # noqa: E402
from mstxkit.reading.run import Run, open_run  # noqa: E402

pytestmark = [
    pytest.mark.days("odd"),
    pytest.mark.skipif(not trace_processor.CAN_BE_HERE, reason="no wheels of the trace processor's for this"),
]

ENDS_WITHIN_S = 100

# What an argument of a slice is called in a format.
ARGUMENTS = {"chrome": "args", "perfetto": "debug"}
SLICES = """
    select s.name, s.ts, s.dur, around.name as around, extract_arg(s.arg_set_id, '{args}.attributes.who') as who,
           extract_arg(around.arg_set_id, '{args}.attributes.who') as inside, s.category,
           extract_arg(s.arg_set_id, '{args}.domain') as own_domain, extract_arg(s.arg_set_id, '{args}.step') as step,
           coalesce(of_thread.name, of_track.name) as process, coalesce(of_thread.pid, of_track.pid) as pid,
           thread.name as thread
    from slice s left join slice around on s.parent_id = around.id
    left join thread_track on thread_track.id = s.track_id left join thread using (utid)
    left join process of_thread on of_thread.upid = thread.upid
    left join process_track on process_track.id = s.track_id
    left join process of_track on of_track.upid = process_track.upid
"""
THREADS = "select process.name as process, thread.name as thread from thread join process using (upid) where pid > 0"
PROBLEMS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def loaded(run: Run, to: str, *more: str) -> list[list[dict[str, Any]]]:
    """The slices, with times as the run has them, and the rows of more queries; nothing was amiss."""
    trace, base_ns = exported(run, to)
    slices, problems, *rest = trace_processor.query(trace, SLICES.format(args=ARGUMENTS[to]), PROBLEMS, *more)
    assert problems == []
    return [[{**one, "ts": one["ts"] + base_ns} for one in slices], *rest]


def exported(run: Run, to: str) -> tuple[bytes, int]:
    """A trace, and when its zero was."""
    if to == "chrome":
        text = io.StringIO()
        load_exporter(to).write(run, text)
        return text.getvalue().encode(), int(json.loads(text.getvalue())["otherData"]["base_ns"])
    out = io.BytesIO()
    load_exporter(to).write(run, out)
    return out.getvalue(), run.ranges()["start_ns"].min() or 0


@pytest.fixture(scope="module", params=["chrome", "perfetto"])
def to(request: pytest.FixtureRequest) -> str:
    """Both formats that the trace processor reads."""
    return str(request.param)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One on the engine of the suite, one on the twin, at the same time."""
    folder = tmp_path_factory.mktemp("two ranks") / "run"
    ranks = [
        subprocess.Popen(
            [sys.executable, async_rank.__file__, folder],
            env=lives.environment(RANK=rank, WORLD_SIZE="2", **engine),
        )
        for rank, engine in (("0", {}), ("1", {"MSTXKIT_NATIVE": "0"}))
    ]
    assert [rank.wait(ENDS_WITHIN_S) for rank in ranks] == [0, 0]
    return open_run(folder)


@pytest.fixture(scope="module")
def shown(two_ranks: Run, to: str) -> list[list[dict[str, Any]]]:
    return loaded(two_ranks, to, THREADS)


def test_every_slice_has_the_process_parent_start_and_duration_of_its_range(
    two_ranks: Run, shown: list[list[dict[str, Any]]]
) -> None:
    expected = sorted(
        (
            row["pid"],
            f"rank {row['rank']}",
            row["name"],
            said["who"],
            said["inside"],
            row["start_ns"],
            row["duration_ns"],
        )
        for row in two_ranks.ranges().to_dicts()
        for said in [json.loads(row["attributes"])]
    )
    found = sorted(
        (one["pid"], one["process"], one["name"], one["who"], one["inside"] or "", one["ts"], one["dur"])
        for one in shown[0]
        if one["name"] != "tokens"
    )
    per_rank = len(expected) // 2
    assert per_rank > async_rank.STEPS * async_rank.SAMPLES * 20
    assert [one[0] for one in expected].count(expected[0][0]) == per_rank
    assert found == expected
    assert len(shown[0]) == len(expected) + two_ranks.marks().height


def test_domains_steps_and_marks_are_kept(two_ranks: Run, shown: list[list[dict[str, Any]]], to: str) -> None:
    def domains(name: str) -> set[tuple[str, str | None]]:
        return {(one["category"], one["own_domain"]) for one in shown[0] if one["name"] == name}

    marks = [
        (one["pid"], one["who"], one["inside"], one["ts"], one["step"]) for one in shown[0] if one["name"] == "tokens"
    ]

    assert domains("sample") == {("rollout", None)}
    assert domains("tokenize") == {("rollout", "tokens") if to == "chrome" else ("tokens", None)}
    assert domains("update") == {("default", None)}
    assert sorted(marks) == sorted(
        (row["pid"], said["who"], said["inside"], row["time_ns"], row["step"])
        for row in two_ranks.marks().to_dicts()
        for said in [json.loads(row["attributes"])]
    )


def test_threads_have_the_names_that_python_gave_them(shown: list[list[dict[str, Any]]]) -> None:
    names = {(one["process"], one["thread"]) for one in shown[1]}

    for rank in ("rank 0", "rank 1"):
        assert {(rank, "MainThread"), (rank, "uploader a"), (rank, "uploader b")} <= names
    assert {one["thread"] for one in shown[0] if one["name"] == "upload"} == {"uploader a", "uploader b"}


def inside_each_other(bank: BankFiles, folder: Path, to: str) -> dict[str, tuple[str | None, int]]:
    ProcessFiles(new_run(folder), 2).seal(bank)
    (slices,) = loaded(open_run(folder), to)
    return {one["name"]: (one["around"], one["dur"]) for one in slices}


def test_what_begins_or_ends_at_one_instant_nests_as_it_did(tmp_path: Path, to: str) -> None:
    """Clocks are coarse. Ranges lie in the order of their ends."""
    bank = BankFiles()
    bank.range("first", 100, 200, depth=1).range("at the seam", 200, 200, depth=2).range("second", 200, 300, depth=1)
    bank.range("nothing", 300, 300, depth=2).range("third", 300, 400, depth=1).range("body", 100, 400, busy=10)

    assert inside_each_other(bank, tmp_path / "run", to) == {
        "body": (None, 300), "first": ("body", 100), "second": ("body", 100), "third": ("body", 100),
        "at the seam": ("second", 0), "nothing": ("third", 0),
    }  # fmt: skip


def test_tracks_with_the_number_of_the_process_or_of_none_stay_apart(tmp_path: Path, to: str) -> None:
    bank = BankFiles()
    for track in (0, 1, 2, 3):
        bank.track(track, 50 + track).range(f"on {track}", 100, 900, track=track)

    assert inside_each_other(bank, tmp_path / "run", to) == {f"on {track}": (None, 800) for track in range(4)}


def test_ranges_of_a_suspended_body_that_was_killed_are_under_it(tmp_path: Path, to: str) -> None:
    """The generator is open, and so is a step; others ended on its track meanwhile, which were not inside of it."""
    inside = [
        {"name": "loader", "domain": "d", "start": 50, "depth": 0},
        {"name": "step", "domain": "d", "start": 800, "depth": 0},
    ]
    bank = BankFiles().range("load", 60, 100, depth=1).range("first step", 200, 500).range("update", 810, 900, depth=1)
    ProcessFiles(new_run(tmp_path / "run"), 2).seal(bank, inside=inside, ended="killed")

    (slices,) = loaded(open_run(tmp_path / "run"), to)

    assert {one["name"]: (one["around"], one["dur"]) for one in slices} == {
        "loader": (None, -1), "load": ("loader", 40), "first step": (None, 300), "step": (None, -1),
        "update": ("step", 90),
    }  # fmt: skip


@pytest.mark.parametrize("to", ["chrome", "perfetto"])
def test_names_of_any_script_are_shown_as_they_are(tmp_path: Path, to: str) -> None:
    run, names = new_run(tmp_path / "run"), ["前向", "更新 🚀", 'naïve "q"', "прямой"]
    bank = BankFiles()
    for place, name in enumerate(names):
        bank.range(name, place * 10, place * 10 + 5, step=place)
    ProcessFiles(run, 42, role="演员").seal(bank)

    (slices,) = loaded(open_run(run), to)

    assert [one["name"] for one in sorted(slices, key=lambda one: one["ts"])] == names
    assert {one["process"] for one in slices} == {"rank 0 演员"}
