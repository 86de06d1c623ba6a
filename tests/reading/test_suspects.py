"""Suspects: the slowest rank of the last steps and the one in the middle, from a table of stages alone."""

from __future__ import annotations

import pytest

pl = pytest.importorskip("polars")

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.reading.suspects import suspicion  # noqa: E402


def table(*rows: tuple[int | None, str, int | None, int]) -> pl.DataFrame:
    """step, stage, rank, total_ns; as `Run.stages()` has them."""
    schema = {"step": pl.Int64, "stage": pl.Categorical, "rank": pl.Int32, "total_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_the_slowest_rank_is_suspected_and_the_middle_one_its_peer() -> None:
    found = suspicion(
        table(*((step, "reward", rank, 100 + 10 * rank) for step in range(3) for rank in range(5))), ["reward"]
    )

    assert (found.suspect, found.peer, found.suspect_ns, found.peer_ns) == (4, 2, 140, 120)
    assert (found.steps, found.ranks) == (3, 5)


def test_only_the_last_steps_count() -> None:
    rows = [(step, "reward", rank, 900 if (rank == 0) == (step < 50) else 100) for step in range(60) for rank in (0, 1)]

    assert suspicion(table(*rows), ["reward"]).suspect == 1


def test_several_occurrences_of_a_step_count_together() -> None:
    """Processes of one rank each have a row of their own."""
    rows = [(0, "reward", 0, 60), (0, "reward", 0, 60), (0, "reward", 1, 100)]

    assert suspicion(table(*rows), ["reward"]).suspect == 0


def test_of_several_stages_that_one_counts_in_which_somebody_stands_out_most() -> None:
    rows = [(0, "reward", 0, 100), (0, "reward", 1, 110), (0, "actor_update", 0, 1000), (0, "actor_update", 1, 500)]

    found = suspicion(table(*rows), ["reward", "actor_update"])

    assert (found.stage, found.suspect, found.peer) == ("actor_update", 0, 1)


def test_a_stage_recorded_under_another_name_is_found() -> None:
    assert suspicion(table((0, "update_actor", 0, 1), (0, "actor_update", 1, 2)), ["actor_update"]).suspect == 1


def test_what_is_in_no_step_does_not_count_where_steps_are_counted() -> None:
    rows = [(None, "reward", 0, 10_000), (0, "reward", 0, 5), (0, "reward", 1, 9)]

    found = suspicion(table(*rows), ["reward"])

    assert (found.suspect, found.suspect_ns) == (1, 9)


def test_without_steps_all_occurrences_count() -> None:
    assert suspicion(table((None, "reward", 0, 5), (None, "reward", 1, 2)), ["reward"]).suspect == 0


def test_where_nobody_is_suspected_it_names_stages_to_ask_for_instead() -> None:
    rows = table((0, "reward", 0, 1), (0, "actor_update", 0, 1), (0, "actor_update", 1, 1))

    with pytest.raises(ReadError, match="name ranks, or ask for actor_update, which several have ended"):
        suspicion(rows, ["reward"])


@pytest.mark.parametrize("rows", [[], [(0, "reward", 0, 1)], [(0, "reward", None, 1), (0, "reward", 1, 1)]])
def test_with_fewer_than_two_ranks_nobody_is_suspected(rows: list[tuple[int | None, str, int | None, int]]) -> None:
    with pytest.raises(ReadError, match="nobody can be suspected"):
        suspicion(table(*rows), ["reward"])
