"""No two processes of a run, and no two tracks of a process, are called the same; and no longer than needed."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit.reading import labels  # noqa: E402
from mstxkit.reading.exporters import load_exporter  # noqa: E402
from mstxkit.reading.report.escape import for_terminal  # noqa: E402
from mstxkit.reading.report.summary import summarise_run  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402

KEY = ("host", "role", "part", "rank", "process")
OF_RANK_0 = {"rank": 0, "role": None}
PARTS = [None, "trainer", "dataloader 0", "dataloader 1", "pool 1", "replica 2", "child", "rank 0", "\x1b", "\\x1b"]
UNDER = [None, "ray", "ray driver", "pool", "dataloader", "process", "fork"]


def labelled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "label": label} for row, label in zip(rows, labels.of_processes(rows))]


def row(pid: int = 1, **fields: Any) -> dict[str, Any]:
    return {"rank": None, "host": "h", "pid": pid, "role": None, "part": None, "under": None, **fields}


def called(*rows: dict[str, Any]) -> list[str]:
    return labels.of_processes(rows)


def test_a_trainer_is_its_rank_and_who_works_beside_it_has_its_part() -> None:
    assert called(
        row(**OF_RANK_0, part="trainer"), row(**OF_RANK_0, part="dataloader 3"), row(rank=1, role="actor"),
        row(rank=1, role="actor", part="process 1"), row(part="driver"), row(7), row(role="Dock", part="Dock"),
    ) == [
        "rank 0", "rank 0 dataloader 3", "rank 1 actor", "rank 1 actor process 1", "driver", "process (pid 7)", "Dock",
    ]  # fmt: skip


@pytest.mark.parametrize(("rank", "text"), [(3, "rank 3 actor"), (None, "actor")])
def test_an_actor_of_ray_with_a_role_needs_its_name_only_beside_another_one(rank: int | None, text: str) -> None:
    first, second = (row(rank=rank, role="actor", part=name, under="ray") for name in ("gen_0", "gen_1"))

    assert called(first) == [text]
    assert called(first, second) == [f"{text} gen_0", f"{text} gen_1"]
    assert called(first, {**first, "pid": 2}) == [f"{text} (pid 1)", f"{text} (pid 2)"]


def test_a_replica_is_called_that_also_alone() -> None:
    assert called(row(role="rollout", part="replica 2", under="ray")) == ["rollout replica 2"]


def test_an_actor_of_ray_without_a_role_has_its_name() -> None:
    assert called(row(rank=3, part="gen_0", under="ray"), row(part="ray worker", under="ray")) == [
        "rank 3 gen_0", "ray worker",
    ]  # fmt: skip


def test_what_is_alike_gets_as_little_more_as_will_do() -> None:
    assert called(row(1, rank=0, part="trainer"), row(2, rank=0)) == ["rank 0 trainer", "rank 0"]
    assert called(row(1, part="pool 1"), row(2, part="pool 1")) == ["pool 1 (pid 1)", "pool 1 (pid 2)"]
    assert called(row(1, rank=0), row(1, rank=0, host="g"), row(2, rank=0)) == [
        "rank 0 (pid 1 on h)", "rank 0 (pid 1 on g)", "rank 0 (pid 2)",
    ]  # fmt: skip
    assert called(row(), row()) == ["process (pid 1 on h) #1", "process (pid 1 on h) #2"]
    assert called(row(), row(host="g")) == ["process (pid 1 on h)", "process (pid 1 on g)"]


def test_a_process_without_a_rank_is_called_by_its_number_and_its_pid() -> None:
    children = [row(pid, part=f"process {pid - 6}", under="process") for pid in (7, 8)]

    assert called(*children, row(9, part="child", under="fork"), row(10, part="scorer", under="process")) == [
        "process 1 (pid 7)", "process 2 (pid 8)", "process (pid 9)", "scorer (pid 10)",
    ]  # fmt: skip


def test_attempts_of_a_job_are_told_apart_by_their_number() -> None:
    first, second = (row(pid, rank=0, attempt=attempt) for pid, attempt in ((1, 0), (2, 1)))

    assert called(first, second) == ["rank 0 (attempt 0)", "rank 0 (attempt 1)"]
    assert called(first, {**first, "pid": 3}) == ["rank 0 (pid 1)", "rank 0 (pid 3)"]
    assert called(row(1, rank=0, attempt=None), first, second)[0] == "rank 0"


def test_a_label_with_its_place_is_still_its_own() -> None:
    rows = labelled([row(rank=0), row(rank=0), row(2), row(3, rank=1, part="dataloader 0")])

    assert [labels.label_with_place(one) for one in rows] == [
        "rank 0 (pid 1 on h) #1", "rank 0 (pid 1 on h) #2", "process (pid 2 on h)", "rank 1 dataloader 0 (pid 3 on h)",
    ]  # fmt: skip


def test_what_is_cut_or_escaped_to_the_same_text_is_told_apart() -> None:
    assert called(row(1, role="r" * 60), row(2, role="r" * 60 + "x")) == [
        f"{'r' * 47}… (pid 1)", f"{'r' * 47}… (pid 2)",
    ]  # fmt: skip
    assert called(row(1, role="\x1b"), row(2, role="\\x1b")) == ["\\x1b (pid 1)", "\\x1b (pid 2)"]


def test_a_role_that_looks_like_another_ones_label_takes_nobody_in() -> None:
    rows = [row(), row(), row(2, role="process (pid 1 on h) #1"), row(3, role="process (pid 1 on h) #2")]

    assert len(set(called(*rows))) == 4


ANY_ROW = st.fixed_dictionaries(
    {
        "rank": st.sampled_from([None, 0, 1]), "host": st.sampled_from(["h", "g"]), "pid": st.integers(1, 3),
        "role": st.sampled_from([None, "actor", "pid 1", "rank 0", "(pid 1)", "dataloader 0"]) | st.text(max_size=3),
        "part": st.sampled_from(PARTS), "under": st.sampled_from(UNDER), "attempt": st.sampled_from([None, 0, 1]),
    }
)  # fmt: skip


@given(st.lists(ANY_ROW, max_size=20))
@settings(max_examples=500)
def test_no_two_processes_are_called_the_same(rows: list[dict[str, Any]]) -> None:
    found = called(*rows)

    assert len(found) == len(rows) == len(set(found))
    assert all(label.strip() and for_terminal(label) == label for label in found)
    placed = [labels.label_with_place(one) for one in labelled(rows)]
    assert all(f"pid {one['pid']} on {one['host']}" in text for one, text in zip(rows, placed))


def test_tracks_have_the_names_of_their_threads_and_as_little_more_as_will_do() -> None:
    rows = [
        {"process": 0, "track": track, "thread": thread, "is_task": is_task, "name": name, "is_shared": is_shared}
        for track, (thread, is_task, name, is_shared) in enumerate(
            [
                (1, False, "MainThread", False), (1, True, "MainThread", False), (2, False, "loader", False),
                (3, False, "loader", False), (4, False, "pool_0", True), (5, False, None, True), (6, True, None, False),
            ]
        )
    ]  # fmt: skip

    assert labels.of_tracks(rows) == [
        "MainThread", "task on MainThread", "loader (thread 2)", "loader (thread 3)", "pool_0 and others", "thread 5",
        "task on thread 6",
    ]  # fmt: skip


ANY_TRACK = st.fixed_dictionaries(
    {
        "process": st.integers(0, 2), "thread": st.integers(0, 3), "is_task": st.booleans(),
        "is_shared": st.booleans(), "name": st.sampled_from([None, "", "a", "thread 1", "a (thread 1)", "\x1b"]),
    }
)  # fmt: skip


@given(st.lists(ANY_TRACK, max_size=20))
def test_no_two_tracks_of_a_process_are_called_the_same(tracks: list[dict[str, Any]]) -> None:
    rows = [{**track, "track": number} for number, track in enumerate(tracks)]

    named = {(one["process"], label) for one, label in zip(rows, labels.of_tracks(rows))}

    assert len(named) == len(rows)


A_PROCESS = st.fixed_dictionaries(
    {"rank": st.sampled_from([None, 0, 1]), "host": st.sampled_from(["h", "g"]), "pid": st.integers(1, 3)},
    optional={
        "role": st.sampled_from([None, "actor"]), "part": st.sampled_from(PARTS), "under": st.sampled_from(UNDER),
    },
)  # fmt: skip


@given(st.lists(A_PROCESS, min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_key_label_row_and_track_of_each_process_of_a_run_are_its_own(processes: list[dict[str, Any]]) -> None:
    """Also of runs from before processes said what they are to their rank."""
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(Path(folder) / "run")
        for number, fields in enumerate(processes):
            bank = BankFiles().range("s", 0, 9, stage="s", own=True).track(0, 5).track(1, 5, is_task=True).track(2, 5)
            ProcessFiles(run, start=f"{number:x}", **fields).seal(bank)
        opened = open_run(run)
        table, (stage,), trace = opened.processes(), summarise_run(opened)["stages"], io.StringIO()
        load_exporter("chrome").write(opened, trace)

    assert table.height == len(processes)
    assert table.select(KEY).is_unique().all()
    assert table["label"].is_unique().all()
    assert sorted(entry["label"] for entry in stage["ranks"]) == sorted(table["label"])
    named = [event for event in json.loads(trace.getvalue())["traceEvents"] if event["name"] == "process_name"]
    tracks = [event for event in json.loads(trace.getvalue())["traceEvents"] if event["name"] == "thread_name"]
    assert [event["args"]["name"] for event in named] == table["label"].to_list()
    assert len({event["pid"] for event in named}) == len(processes)
    assert len({(event["pid"], event["args"]["name"]) for event in tracks}) == len(tracks) == 3 * len(processes)


def test_a_ranks_own_process_comes_before_those_beside_it(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for pid, rank, under in (
        (1, 1, "dataloader"),
        (2, 0, "fork"),
        (3, 0, None),
        (4, 1, "ray"),
        (5, None, "ray driver"),
    ):
        ProcessFiles(run, pid, rank=rank, under=under).seal()

    assert open_run(run).processes()["pid"].to_list() == [3, 2, 4, 1, 5]


def test_a_run_from_before_parts_has_none_and_is_shown_as_ever(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    for pid, rank in ((1, 0), (2, 1)):
        ProcessFiles(run, pid, rank=rank, role="actor").seal()

    assert open_run(run).processes().select("part", "under", "label").rows() == [
        (None, None, "rank 0 actor"), (None, None, "rank 1 actor"),
    ]  # fmt: skip
