"""Suspects: whom a verdict blames, and a healthy peer; else the slowest rank of the last steps, and the middle one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.judged_runs import BEHIND, INPUT, recorded, say, stage_times, verdict
from builders.run_files import BankFiles, ProcessFiles, new_run

pl = pytest.importorskip("polars")

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.reading.suspects import Suspicion, find_slowest, in_words, suspected_in  # noqa: E402


def table(*rows: tuple[int | None, str, int | None, int]) -> pl.DataFrame:
    """step, stage, rank, total_ns; as `Run.stages()` has them."""
    schema = {"step": pl.Int64, "stage": pl.Categorical, "rank": pl.Int32, "total_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_the_slowest_rank_is_suspected_and_the_middle_one_its_peer() -> None:
    found = find_slowest(
        table(*((step, "reward", rank, 100 + 10 * rank) for step in range(3) for rank in range(5))), ["reward"]
    )

    assert (found.suspect, found.peer, found.suspect_ns, found.peer_ns) == (4, 2, 140, 120)
    assert (found.steps, found.ranks) == (3, 5)


def test_only_the_last_steps_count() -> None:
    rows = [(step, "reward", rank, 900 if (rank == 0) == (step < 50) else 100) for step in range(60) for rank in (0, 1)]

    assert find_slowest(table(*rows), ["reward"]).suspect == 1


def test_several_occurrences_of_a_step_count_together() -> None:
    """Processes of one rank each have a row of their own."""
    rows = [(0, "reward", 0, 60), (0, "reward", 0, 60), (0, "reward", 1, 100)]

    assert find_slowest(table(*rows), ["reward"]).suspect == 0


def test_of_several_stages_that_one_counts_in_which_somebody_stands_out_most() -> None:
    rows = [(0, "reward", 0, 100), (0, "reward", 1, 110), (0, "actor_update", 0, 1000), (0, "actor_update", 1, 500)]

    found = find_slowest(table(*rows), ["reward", "actor_update"])

    assert (found.stage, found.suspect, found.peer) == ("actor_update", 0, 1)


def test_a_stage_recorded_under_another_name_is_found() -> None:
    assert find_slowest(table((0, "update_actor", 0, 1), (0, "actor_update", 1, 2)), ["actor_update"]).suspect == 1


def test_what_is_in_no_step_does_not_count_where_steps_are_counted() -> None:
    rows = [(None, "reward", 0, 10_000), (0, "reward", 0, 5), (0, "reward", 1, 9)]

    found = find_slowest(table(*rows), ["reward"])

    assert (found.suspect, found.suspect_ns) == (1, 9)


def test_without_steps_all_occurrences_count() -> None:
    assert find_slowest(table((None, "reward", 0, 5), (None, "reward", 1, 2)), ["reward"]).suspect == 0


def test_where_nobody_is_suspected_it_names_stages_to_ask_for_instead() -> None:
    rows = table((0, "reward", 0, 1), (0, "actor_update", 0, 1), (0, "actor_update", 1, 1))

    with pytest.raises(ReadError, match="name ranks, or ask for actor_update, which several have ended"):
        find_slowest(rows, ["reward"])


@pytest.mark.parametrize("rows", [[], [(0, "reward", 0, 1)], [(0, "reward", None, 1), (0, "reward", 1, 1)]])
def test_with_fewer_than_two_ranks_nobody_is_suspected(rows: list[tuple[int | None, str, int | None, int]]) -> None:
    with pytest.raises(ReadError, match="nobody can be suspected"):
        find_slowest(table(*rows), ["reward"])


def who(suspect: Suspicion) -> tuple[str, int, int]:
    return suspect.stage, suspect.suspect, suspect.peer


def test_a_verdict_says_who_is_suspected_though_another_one_takes_longer(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, ranks=4, steps=20))
    say(run, verdict(kind="compute", rank=2, stage="actor_update", group=(0, 1, 2, 3), role="critic"))

    suspect = suspected_in(run, ["update_actor"])

    assert (suspect.stage, suspect.suspect, suspect.is_upstream) == ("actor_update", 2, False)
    assert suspect.peer != 2
    assert suspect.role == "critic"
    assert in_words(suspect) == (
        f"verdict: rank 2 critic takes longer than the others in actor_update; rank {suspect.peer} is a healthy peer"
    )


def test_in_the_stage_where_others_wait_the_cause_upstream_is_suspected_and_it_says_so(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, steps=20))
    say(run, verdict())

    suspect = suspected_in(run, ["actor_update"])

    assert who(suspect) == ("actor_update", 1, 0)
    assert suspect.is_upstream
    assert "in reference, for which others wait in actor_update" in in_words(suspect)


def test_the_peer_is_of_the_verdicts_group_and_blamed_by_no_verdict(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, ranks=6, steps=20))
    say(run, verdict(rank=2, stage="actor_update", group=(2, 3, 4)), verdict(id="b", rank=3, stage="reference"))

    assert who(suspected_in(run, ["actor_update"])) == ("actor_update", 2, 4)


@pytest.mark.parametrize(
    "said",
    [
        {"withdrawn": "it recovered"}, {"rank": None}, {"rank": 9},
        {"stage": "reward", "waits_for": ""}, {"group": (1,)},
    ],
    ids=str,
)  # fmt: skip
def test_where_no_verdict_helps_the_longest_is_suspected_and_it_says_that_times_decided(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, steps=20))
    say(run, verdict(**{"stage": "actor_update", **said}))

    suspect = suspected_in(run, ["actor_update"])

    assert (suspect.verdict, suspect.role) == (None, "")
    assert in_words(suspect).endswith("over rank 1; by its time alone: no verdict blames a rank there")


def test_what_nobody_judged_is_suspected_by_its_time_and_it_says_why(tmp_path: Path) -> None:
    """One rank of each role: there is nobody with whom a step could be compared."""
    run = new_run(tmp_path / "run")
    for rank in (0, 1):
        bank = BankFiles().range("reward", 0, 10 + rank, stage="reward", own=True, step=0)
        ProcessFiles(run, 100 + rank, rank=rank, role=f"role {rank}").seal(bank)

    suspect = suspected_in(run, ["reward"])

    assert suspect.suspect == 1
    assert "by its time alone: it was not judged, as no two ranks have finished a step together" in in_words(suspect)
