"""What-if: within 5 % of what the same job takes without its fault, on seeds that nothing was chosen by."""

from __future__ import annotations

import functools
from itertools import product

import pytest

pl = pytest.importorskip("polars")

import numpy as np  # noqa: E402
from builders import soak  # noqa: E402
from builders.buffered_job import buffered_runs  # noqa: E402
from builders.handed_on import Row  # noqa: E402
from builders.simulated_job import SimulatedJob  # noqa: E402
from builders.simulated_steps import role_of, runs_of, saved_s, step_s, stragglers_of, what_if_of  # noqa: E402

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.reading import role_runs  # noqa: E402
from mstxkit.reading.role_runs import RoleRun  # noqa: E402
from mstxkit.reading.tables import split  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape  # noqa: E402
from mstxkit.testing.simulator.shape import ALWAYS  # noqa: E402

pytestmark = pytest.mark.days("even")

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


@functools.cache
def healthy(name: str, seed: int, role: str) -> RoleRun:
    """The job without a fault: what its steps take is the truth of every fault in it."""
    return role_of(SHAPES[name], (), seed, STEPS, role)


@pytest.mark.parametrize(("name", "kind"), soak.sample([*product(SHAPES, FAULTS)], 2))
def test_a_step_without_its_straggler_is_as_long_as_in_a_job_without_the_fault(name: str, kind: str) -> None:
    shape = SHAPES[name]
    for seed, factor in product(range(1000, soak.rounds(1020, 1001)), soak.rounds((1.1, 1.25, 2.0), (1.5,))):
        is_rollout = shape.is_async and FAULTS[kind] == "actor_generate"
        role, rank = ("rollout", shape.ranks + 3) if is_rollout else ("actor", 3)
        runs = runs_of(shape, [InjectedFault(kind, FAULTS[kind], rank=rank, factor=factor)], seed, STEPS)
        slow = next(run for run in runs if run.role == role)

        rows = what_if_of(runs).filter(
            (pl.col("kind") == "straggler") & (pl.col("rank") == rank) & (pl.col("stage") == FAULTS[kind])
        )

        # All of the same steps: those that the row is of.
        since, saved_ns = rows.select("first_step", "saved_ns").row(0) if rows.height else (SINCE, 0)
        without = step_s(slow, since) - saved_ns / 1e9
        assert without == pytest.approx(step_s(healthy(name, seed, role), since), rel=0.05), (seed, factor)


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("shape", [JobShape(rings=ALWAYS), JobShape(has_rings=False)], ids=["entries", "blind"])
def test_a_slow_part_of_a_row_costs_the_step_what_it_takes_longer(shape: JobShape, rank: int) -> None:
    healthy, slow = (
        role_runs.of_steps(list(Row(shape, 3, faults).steps(STEPS)))
        for faults in ((), [InjectedFault("inside", "forward", rank=rank, factor=1.5)])
    )
    lost_s = step_s(slow[0], SINCE) - step_s(healthy[0], SINCE)
    piece = [kind.stage for kind in slow[0].kinds].index("forward") + 1
    own = slow[0].own_s.copy()
    own[:, rank, piece] = healthy[0].own_s[:, rank, piece]

    assert lost_s == pytest.approx(1.0, rel=0.1)
    assert saved_s(slow, slow[0], own, SINCE) == pytest.approx(lost_s, rel=0.1)


def test_trainers_that_wait_for_batches_would_win_nothing_by_being_faster() -> None:
    """Rollouts wait for them next to never, as they may be three batches ahead."""
    actor, rollout = runs = buffered_runs(12, 4, 5000, ahead=3)
    trains = np.array([owner == "actor_update" for owner in actor.owners])
    faster_s = np.where(trains, 0.5, 1.0) * actor.own_s

    assert np.nansum(actor.own_s - faster_s, axis=2).mean() > 2.0
    assert abs(saved_s(runs, actor, faster_s, 1)) < 0.2
    assert saved_s(runs, rollout, 0.8 * rollout.own_s, 1) > 1.0


def test_a_straggler_that_costs_much_is_told_to_the_share_of_it() -> None:
    """Not only the step: what is saved itself is near to what was lost."""
    fault = InjectedFault("behind", "actor_update", rank=3, factor=1.5)
    lost = step_s(role_of(JobShape(), [fault]), SINCE) - step_s(role_of(JobShape()), SINCE)

    best = what_if_of(runs_of(JobShape(), [fault])).filter(pl.col("kind") == "straggler").row(0, named=True)

    assert (best["rank"], best["stage"]) == (3, "actor_update")
    assert abs(best["first_step"] - SINCE) <= 2
    assert best["saved_ns"] / 1e9 == pytest.approx(lost, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "ranks", "shape"),
    [
        ("before", (17,), JobShape(is_async=True, mismatch=0.3)), ("before", (1,), JobShape(mismatch=0.3)),
        ("inside", (1,), JobShape()), ("before", tuple(range(8, 16)), JobShape(ranks=24)),
    ],
    ids=["async", "together", "between collectives", "a host"],
)  # fmt: skip
def test_verdict_straggler_and_what_if_say_the_same_of_what_is_lost(
    kind: str, ranks: tuple[int, ...], shape: JobShape
) -> None:
    """What the job takes without the fault says what that is."""
    role = "rollout" if shape.is_async else "actor"
    fault = InjectedFault(kind, "actor_update" if kind == "inside" else "actor_generate", factor=2.0, ranks=ranks)
    runs, judge = runs_of(shape, [fault], 7, STEPS), JobJudge()
    for step in SimulatedJob(shape, 7, [fault]).steps(STEPS):
        judge.close(step)
    slow_s = step_s(next(run for run in runs if run.role == role), SINCE)
    lost = 1 - step_s(role_of(shape, (), 7, STEPS, role), SINCE) / slow_s

    (verdict,) = [verdict for verdict in judge.standing() if verdict.kind == "compute"]
    is_it = (pl.col("kind") == "straggler") & (pl.col("stage") == fault.stage)
    rows, saved = stragglers_of(runs).filter(stage=fault.stage), what_if_of(runs).filter(is_it)
    assert set(rows["rank"]) == set(saved["rank"]) == set(ranks) == {verdict.rank, *verdict.group} & {*ranks}
    assert rows["step_ratio"].to_list() == pytest.approx(saved["saved_ratio"].to_list(), abs=1e-9)
    assert lost > 0.05
    assert saved["saved_ratio"].to_list() == pytest.approx([lost] * len(ranks), abs=0.02)
    assert verdict.impact_ratio == pytest.approx(lost, abs=0.02)


def test_whoever_waits_is_never_the_one_without_whom_it_is_faster() -> None:
    fault = InjectedFault("before", "actor_generate", rank=3, factor=2.0)

    rows = what_if_of(runs_of(JobShape(mismatch=0.3), [fault]))

    costly = rows.filter((pl.col("kind") == "straggler") & (pl.col("saved_ratio") > 0.01))
    assert set(costly["rank"]) == {3}


def test_a_link_that_is_slow_is_compared_with_other_groups() -> None:
    shape, fault = JobShape(group_ranks=4), InjectedFault("link", "actor_update", rank=5, factor=4.0)
    truth = step_s(role_of(shape), SINCE)

    (row,) = what_if_of(runs_of(shape, [fault])).filter(pl.col("kind") == "link").to_dicts()

    assert (row["group"], row["stage"]) == ("4-7", "actor_update")
    assert step_s(role_of(shape, [fault]), SINCE) - row["saved_ns"] / 1e9 == pytest.approx(truth, rel=0.05)


def test_what_is_slower_for_all_is_compared_with_before() -> None:
    fault = InjectedFault("all", "reward", factor=2.0)
    truth = step_s(role_of(JobShape()), SINCE)

    (row,) = what_if_of(runs_of(JobShape(), [fault])).filter(pl.col("kind") == "change").to_dicts()

    assert row["without_ns"] / 1e9 == pytest.approx(truth, rel=0.05)
    assert row["saved_ratio"] > 0.02


def test_a_tail_and_waiting_are_told_for_each_stage() -> None:
    rows = what_if_of(runs_of(JobShape(is_dispatched=True)))

    (tail,) = rows.filter(pl.col("kind") == "tail").to_dicts()
    assert tail["stage"] == "actor_generate"
    assert 0.05 < tail["saved_ratio"] < 0.6
    assert ("reward", "before") in rows.filter(pl.col("kind") == "bubble").select("stage", "where").rows()


def test_the_pace_of_an_async_job_is_that_of_its_slower_side_and_what_they_cannot_do_at_once_is_added() -> None:
    uses, makes = np.full(6, 3.0), np.full((6, 2), 2.0)

    assert split.find_pace(uses, makes, ahead=1) == 3.0
    assert split.find_pace(uses, makes * 2, ahead=1) == 4.0
    assert split.find_pace(uses, makes, ahead=0) == 5.0


# Numbers of which the job is recorded, batches that are begun ahead, and numbers that are asked for.
NUMBERS = [(8, 8), (8, 6), (12, 4), (6, 10)]
SPLITS = {
    "more trainers": (2, 1), "more rollouts": (1, 2), "fewer trainers": (0.5, 1), "fewer rollouts": (1, 0.5),
    "twice all": (2, 2),
}  # fmt: skip


@pytest.mark.parametrize(("numbers", "ahead", "name"), soak.sample([*product(NUMBERS, (1, 3), SPLITS)], 2))
def test_a_step_with_other_numbers_is_as_long_as_in_the_same_job_with_these(
    numbers: tuple[int, int], ahead: int, name: str
) -> None:
    """Up to twice and half as many; costs of which nothing tells, as how many responses run at once, are not known."""
    n, m = (round(number * times) for number, times in zip(numbers, SPLITS[name]))
    errors = []
    for seed in range(5000, soak.rounds(5004, 5001)):
        before, after = (buffered_runs(*both, seed, ahead=ahead, mismatch=0.1) for both in (numbers, (n, m)))
        truth = next(run for run in after if run.role == "actor").step_s()

        rows = what_if_of(before, asked=split.asked_for(n, m))

        (row,) = rows.filter((pl.col("trainers") == n) & (pl.col("rollouts") == m)).to_dicts()
        errors.append(abs(row["without_ns"] / 1e9 / truth - 1))
    assert np.mean(errors) <= 0.05 and max(errors) <= 0.1, errors


@pytest.mark.parametrize(("numbers", "ahead", "name"), soak.sample([*product(NUMBERS, (1, 3), SPLITS)], 2))
def test_how_far_off_it_may_be_holds_also_with_costs_that_nothing_tells_of(
    numbers: tuple[int, int], ahead: int, name: str
) -> None:
    n, m = (round(number * times) for number, times in zip(numbers, SPLITS[name]))
    for seed in range(3000, soak.rounds(3003, 3001)):
        before, after = (buffered_runs(*both, seed, ahead=ahead, mismatch=0.3) for both in (numbers, (n, m)))
        truth = next(run for run in after if run.role == "actor").step_s()

        rows = what_if_of(before, asked=split.asked_for(n, m)).filter(pl.col("kind") == "split")

        (row,) = rows.filter((pl.col("trainers") == n) & (pl.col("rollouts") == m)).to_dicts()
        assert abs(row["without_ns"] / 1e9 - truth) / (row["step_ns"] / 1e9) <= row["error_ratio"] <= 0.3, seed
        assert rows["error_ratio"].is_not_null().all()


def test_a_job_of_one_rank_has_no_straggler() -> None:
    rows = what_if_of(runs_of(JobShape(ranks=1), steps=5))

    assert "straggler" not in rows["kind"].to_list()


@pytest.mark.parametrize(("trainers", "rollouts"), [(11, 5), (12, 16), (None, 3)])
def test_a_split_that_is_asked_for_is_told_whatever_it_saves(trainers: int | None, rollouts: int | None) -> None:
    runs = buffered_runs(8, 8, seed=7, steps=20)
    without = what_if_of(runs)

    rows = what_if_of(runs, asked=split.asked_for(trainers, rollouts))

    is_it = ((pl.col("trainers") == (trainers or 8)) & (pl.col("rollouts") == (rollouts or 8))).fill_null(False)
    assert rows.filter(is_it).height == 1
    assert rows.filter(~is_it).equals(without)


def test_a_split_is_told_once_also_where_it_would_be_told_anyway() -> None:
    runs = runs_of(JobShape(ranks=8, rollouts=8, is_async=True))

    assert what_if_of(runs, asked=split.asked_for(10, 6)).equals(what_if_of(runs))


def test_a_split_that_nothing_tells_of_is_an_error() -> None:
    with pytest.raises(ReadError, match="one role generates and another one trains"):
        what_if_of(runs_of(JobShape(ranks=2), steps=5), asked=split.asked_for(2, 2))
    with pytest.raises(ReadError, match="trainers=0, rollouts=2: give whole numbers from 1 on"):
        split.asked_for(0, 2)
