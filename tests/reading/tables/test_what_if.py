"""What-if: within 5 % of what the same job takes without its fault, on seeds that nothing was chosen by."""

from __future__ import annotations

from itertools import product

import pytest

pl = pytest.importorskip("polars")

from builders import soak  # noqa: E402
from builders.simulated_steps import role_of, runs_of, step_s  # noqa: E402

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.reading.tables import split, what_if  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape, SimulatedJob  # noqa: E402

SINCE, STEPS = 20, 60
SHAPES = {
    "together": JobShape(mismatch=0.3),
    "dispatched": JobShape(mismatch=0.6, is_dispatched=True),
    "groups": JobShape(mismatch=0.4, group_ranks=4),
    "async": JobShape(mismatch=0.4, is_async=True),
}
FAULTS = {
    "before": "actor_generate", "inside": "actor_update", "behind": "actor_update", "input": "load_batch",
    "gap": "load_batch", "drift": "actor_generate",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), soak.sample([*product(SHAPES, FAULTS)], 8))
def test_a_step_without_its_straggler_is_as_long_as_in_a_job_without_the_fault(name: str, kind: str) -> None:
    shape = SHAPES[name]
    for seed in range(1000, soak.rounds(1020, 1001)):
        for factor in soak.rounds((1.1, 1.25, 2.0), (1.5,)):
            is_rollout = shape.is_async and FAULTS[kind] == "actor_generate"
            role, rank = ("rollout", shape.ranks + 3) if is_rollout else ("actor", 3)
            fault = InjectedFault(kind, FAULTS[kind], rank=rank, factor=factor)
            truth = step_s(role_of(shape, (), seed, STEPS, role), SINCE)
            slow = step_s(role_of(shape, [fault], seed, STEPS, role), SINCE)

            rows = what_if.table(runs_of(shape, [fault], seed, STEPS)).filter(
                (pl.col("kind") == "straggler") & (pl.col("rank") == rank) & (pl.col("stage") == FAULTS[kind])
            )

            saved = rows["saved_ns"][0] / 1e9 if rows.height else 0.0
            assert slow - saved == pytest.approx(truth, rel=0.05), (seed, factor)


def test_a_straggler_that_costs_much_is_told_to_the_share_of_it() -> None:
    """Not only the step: what is saved itself is near to what was lost."""
    fault = InjectedFault("behind", "actor_update", rank=3, factor=1.5)
    lost = step_s(role_of(JobShape(), [fault]), SINCE) - step_s(role_of(JobShape()), SINCE)

    best = what_if.table(runs_of(JobShape(), [fault])).filter(pl.col("kind") == "straggler").row(0, named=True)

    assert (best["rank"], best["stage"]) == (3, "actor_update")
    assert abs(best["first_step"] - SINCE) <= 2
    assert best["saved_ns"] / 1e9 == pytest.approx(lost, rel=0.1)


@pytest.mark.parametrize("is_async", [True, False])
def test_what_it_saves_is_what_the_verdict_says_is_lost(is_async: bool) -> None:
    shape = JobShape(is_async=is_async, mismatch=0.3)
    fault = InjectedFault("before", "actor_generate", rank=shape.ranks + 1 if is_async else 1, factor=2.0, since=SINCE)
    judge = JobJudge()
    for step in SimulatedJob(shape, 7, [fault]).steps(STEPS):
        judge.close(step)

    (verdict,) = [verdict for verdict in judge.standing() if verdict.rank == fault.rank]
    rows = what_if.table(runs_of(shape, [fault], 7, STEPS)).filter(
        (pl.col("kind") == "straggler") & (pl.col("rank") == fault.rank)
    )
    assert verdict.impact_ratio == pytest.approx(rows["saved_ratio"][0], abs=0.02)


def test_whoever_waits_is_never_the_one_without_whom_it_is_faster() -> None:
    fault = InjectedFault("before", "actor_generate", rank=3, factor=2.0)

    rows = what_if.table(runs_of(JobShape(mismatch=0.3), [fault]))

    costly = rows.filter((pl.col("kind") == "straggler") & (pl.col("saved_ratio") > 0.01))
    assert set(costly["rank"]) == {3}


def test_a_link_that_is_slow_is_compared_with_other_groups() -> None:
    shape, fault = JobShape(group_ranks=4), InjectedFault("link", "actor_update", rank=5, factor=4.0)
    truth = step_s(role_of(shape), SINCE)

    (row,) = what_if.table(runs_of(shape, [fault])).filter(pl.col("kind") == "link").to_dicts()

    assert (row["group"], row["stage"]) == ("4-7", "actor_update")
    assert step_s(role_of(shape, [fault]), SINCE) - row["saved_ns"] / 1e9 == pytest.approx(truth, rel=0.05)


def test_what_is_slower_for_all_is_compared_with_before() -> None:
    fault = InjectedFault("all", "reward", factor=2.0)
    truth = step_s(role_of(JobShape()), SINCE)
    verdict = Verdict("v", 1, 50, "all_slow", "reward", role="actor", since_step=SINCE)

    (row,) = what_if.table(runs_of(JobShape(), [fault]), [verdict]).filter(pl.col("kind") == "change").to_dicts()

    assert row["without_ns"] / 1e9 == pytest.approx(truth, rel=0.05)
    assert row["saved_ratio"] > 0.02


def test_a_tail_and_waiting_are_told_for_each_stage() -> None:
    rows = what_if.table(runs_of(JobShape(is_dispatched=True)))

    (tail,) = rows.filter(pl.col("kind") == "tail").to_dicts()
    assert tail["stage"] == "actor_generate"
    assert 0.05 < tail["saved_ratio"] < 0.6
    assert ("reward", "before") in rows.filter(pl.col("kind") == "bubble").select("stage", "where").rows()


def test_the_pace_of_an_async_job_is_that_of_its_slower_side() -> None:
    assert split.pace(made=10, used=30, trainers=2, rollouts=4) == 40
    assert split.pace(made=10, used=30, trainers=1, rollouts=4) == 30


@pytest.mark.parametrize("moved", [-2, 2, 4])
def test_other_numbers_of_trainers_and_rollouts_are_told_as_a_job_of_that_split_shows(moved: int) -> None:
    """The pace of a job that really has that split, by the work that both sides did."""
    rows = {
        row["trainers"]: row
        for row in what_if.table(runs_of(JobShape(ranks=8, rollouts=8, is_async=True))).to_dicts()
        if row["kind"] == "split"
    }
    real = runs_of(JobShape(ranks=8 + moved, rollouts=8 - moved, is_async=True))
    made, used = (split._tokens_a_busy_second(run) for run in sorted(real, key=lambda run: run.role != "rollout"))

    (expected,) = {rows[8 + moved]["without_ns"]}
    a_step = split._tokens_a_step(role_of(JobShape(ranks=8, rollouts=8, is_async=True)))
    assert expected / 1e9 == pytest.approx(a_step / split.pace(made, used, 8 + moved, 8 - moved), rel=0.05)


def test_a_job_of_one_rank_has_no_straggler() -> None:
    rows = what_if.table(runs_of(JobShape(ranks=1), steps=5))

    assert "straggler" not in rows["kind"].to_list()


@pytest.mark.parametrize(("trainers", "rollouts"), [(11, 5), (12, 16), (None, 3)])
def test_a_split_that_is_asked_for_is_told_whatever_it_saves(trainers: int | None, rollouts: int | None) -> None:
    runs = runs_of(JobShape(ranks=8, rollouts=8, is_async=True))
    without = what_if.table(runs)

    rows = what_if.table(runs, asked=split.asked_for(trainers, rollouts))

    n, m = trainers or 8, rollouts or 8
    (row,) = rows.filter((pl.col("trainers") == n) & (pl.col("rollouts") == m)).to_dicts()
    made, used = (split._tokens_a_busy_second(run) for run in sorted(runs, key=lambda run: run.role != "rollout"))
    faster = split.pace(made, used, n, m) / split.pace(made, used, 8, 8)
    assert row["step_ns"] / row["without_ns"] == pytest.approx(faster)
    assert rows.filter(~((pl.col("trainers") == n) & (pl.col("rollouts") == m)).fill_null(False)).equals(without)


def test_a_split_is_told_once_also_where_it_would_be_told_anyway() -> None:
    runs = runs_of(JobShape(ranks=8, rollouts=8, is_async=True))

    assert what_if.table(runs, asked=split.asked_for(10, 6)).equals(what_if.table(runs))


def test_a_split_that_nothing_tells_of_is_an_error() -> None:
    with pytest.raises(ReadError, match="one role generates and another one trains"):
        what_if.table(runs_of(JobShape(ranks=2), steps=5), asked=split.asked_for(2, 2))
    with pytest.raises(ReadError, match="trainers=0, rollouts=2: give whole numbers from 1 on"):
        split.asked_for(0, 2)
