"""The file of a host's keeper: what is read of it, how old that is, and by whose clock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from builders.escalated_run import empty_run
from builders.run_files import RUN_ID

from mstxkit.host import identity
from mstxkit.store import documents, whereabouts
from mstxkit.store.report import Acknowledgement
from mstxkit.store.whereabouts import Age

NS = 10**9
ONE = {"pid": 42, "rank": 3, "role": "actor", "part": "trainer", "step": 9, "stage": "actor_update", "in_stage_ns": NS}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return empty_run(tmp_path / "run")


def told(run: Path, *processes: Any) -> Path:
    whereabouts.write_whereabouts(run, RUN_ID, run, processes)
    (file,) = (run / "now").iterdir()
    return file


def changed(file: Path, **fields: Any) -> None:
    documents.write_file(file, json.dumps({**json.loads(file.read_text()), **fields}).encode())


def test_what_a_keeper_wrote_is_read_back(run: Path) -> None:
    told(run, ONE, {"pid": 43})
    first, second = whereabouts.read_seen(run, RUN_ID)

    assert first[1:8] == (42, 3, "actor", "trainer", 9, "actor_update", 1.0)
    assert first.host == identity.name_host()
    assert second[1:8] == (43, None, "", "", None, None, None)
    assert first.age.is_exact
    assert 0 <= first.age.seconds < 60


def test_whose_host_has_another_name_is_told_of_by_that(run: Path) -> None:
    """One watchman looks at all that share memory: a rank was there twice, once as it had been long ago."""
    told(run, {**ONE, "host": "container_2"}, {**ONE, "host": None})

    assert [where.host for where in whereabouts.read_seen(run, RUN_ID)] == ["container_2", identity.name_host()]


@pytest.mark.parametrize(
    ("what", "is_of_a_rank"),
    [
        ({}, True), ({"part": "WorkerDict_0:3", "under": "ray"}, True), ({"under": "ray driver"}, False),
        ({"part": "dataloader 3", "under": "dataloader"}, False), ({"rank": None}, False),
        ({"step": None, "stage": None}, False), ({"stage": None}, True),
    ],
)  # fmt: skip
def test_whose_it_is_is_known_by_what_it_works_under(run: Path, what: dict[str, Any], is_of_a_rank: bool) -> None:
    """A part has any name: an actor's of Ray is its rank's own, and was left out."""
    told(run, {**ONE, **what})

    (where,) = whereabouts.read_seen(run, RUN_ID)

    assert where.is_of_a_rank == is_of_a_rank


def test_on_one_host_the_age_does_not_depend_on_the_wall_clock(run: Path) -> None:
    changed(told(run, ONE), written_ns=1, mono_ns=time.monotonic_ns() - 5 * NS)

    (where,) = whereabouts.read_seen(run, RUN_ID)

    assert where.age.is_exact
    assert 5 <= where.age.seconds < 60


def test_of_another_host_the_age_is_by_two_clocks_and_says_so(run: Path) -> None:
    changed(told(run, ONE), host="node7", boot="other", written_ns=time.time_ns() - 30 * NS)

    (where,) = whereabouts.read_seen(run, RUN_ID)

    assert not where.age.is_exact
    assert where.age.words.startswith("~3")
    assert where.age.words.endswith("ago")


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (Age(0.42, True), "0.4 s ago"),
        (Age(12.4, True), "12 s ago"),
        (Age(3 * 60, True), "3 min ago"),
        (Age(5 * 3600 * 24, False), "~5 d ago"),
        (Age(-0.4, False), "~0.0 s ago"),
        (Age(-7.0, False), "its clock is 7.0 s ahead"),
    ],
)
def test_an_age_in_words(age: Age, words: str) -> None:
    assert age.words == words


def test_two_keepers_of_one_host_name_do_not_share_a_file(run: Path, tmp_path: Path) -> None:
    """Containers may have the name of their host, and a /dev/shm each."""
    (tmp_path / "elsewhere").mkdir()
    whereabouts.write_whereabouts(run, RUN_ID, run, [ONE])
    whereabouts.write_whereabouts(run, RUN_ID, tmp_path / "elsewhere", [{**ONE, "pid": 44}])

    assert [where.pid for where in whereabouts.read_seen(run, RUN_ID)] == [42, 44]


def test_a_run_that_somebody_has_removed_is_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        whereabouts.write_whereabouts(tmp_path / "gone", RUN_ID, tmp_path, [ONE])

    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"processes": "many"}, {"processes": [1, None, "x"]}, {"written_ns": "now"}, {"host": None}, {"mono_ns": -1},
        {"processes": [{"pid": "x", "rank": -1, "step": 1 << 80, "stage": ["x"], "in_stage_ns": True}]},
    ],
)  # fmt: skip
def test_what_is_no_value_is_left_out(run: Path, fields: Any) -> None:
    changed(told(run, ONE), **fields)

    for where in whereabouts.read_seen(run, RUN_ID):
        assert where.step in (None, 9)
        assert where.age.words


def test_a_file_of_another_run_or_half_written_is_named(run: Path) -> None:
    file = told(run, ONE)
    changed(file, run="other")
    file.with_name("half.json").write_text('{"format": 1')
    unusable: list[documents.Unusable] = []

    assert whereabouts.read_seen(run, RUN_ID, unusable) == []
    assert {bad.reason for bad in unusable} == {"belongs to another run", "is half written, or no JSON"}


def test_the_newer_of_two_words_counts(run: Path) -> None:
    told(run, ONE)
    known = whereabouts.by_process(whereabouts.read_seen(run, RUN_ID))
    later = time.time_ns() + NS
    said = [Acknowledgement(3, "actor", identity.name_host(), 42, written_ns, {}) for written_ns in (1, later)]

    found = [whereabouts.of_speaker(ack, 12, known) for ack in said]

    assert [(where.step, where.stage) for where in found] == [(9, "actor_update"), (12, "actor_update")]
    assert whereabouts.of_speaker(said[0]._replace(pid=1), 12, known).step == 12
