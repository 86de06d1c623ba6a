"""Steps of a role as arrays: who waits where, own time apart from waiting, and a replay that gives the steps again."""

from __future__ import annotations

import pytest

pytest.importorskip("polars")

import numpy as np
from builders.buffered_job import buffered_runs
from builders.handed_on import PART_S, PARTS, Nested, Row
from builders.judged import role_step
from builders.simulated_steps import role_of, saved_s, stragglers_of

from mstxkit.judging.cutting import Piece
from mstxkit.reading import replay, role_runs
from mstxkit.reading.tables import bubbles, critical_path, throughput
from mstxkit.reading.tables import steps as step_tables
from mstxkit.testing import judge
from mstxkit.testing.simulator import InjectedFault, JobShape
from mstxkit.testing.simulator.shape import ALWAYS


def waiting(run: role_runs.RoleRun) -> set[tuple[str, str]]:
    return {tuple(kind) for kind, waits in zip(run.kinds, run.waits) if waits}


def test_members_wait_in_the_stages_that_they_leave_together() -> None:
    run = role_of(JobShape(reshards=False))

    assert waiting(run) == {("in", "actor_compute_log_prob"), ("in", "actor_update")}


def test_members_that_a_controller_dispatches_wait_in_the_gaps() -> None:
    run = role_of(JobShape(is_dispatched=True, has_rings=False))

    assert {("before", stage) for stage in ("actor_generate", "reward", "actor_update")} <= waiting(run)


def test_rollouts_of_an_async_job_wait_for_nobody() -> None:
    run = role_of(JobShape(is_async=True), role="rollout")

    assert run.is_free


@pytest.mark.parametrize("shape", [JobShape(rings=ALWAYS), JobShape(has_rings=False)], ids=["entries", "blind"])
def test_who_is_handed_something_waits_for_it_and_works_for_as_long_as_the_others(shape: JobShape) -> None:
    (run,) = role_runs.of_steps(list(Row(shape, 3).steps(60)))
    forward = run.kinds.index(Piece("in", "forward"))

    own, wait = (np.nanmean(values[20:, :, forward], axis=0) for values in (run.own_s, run.wait_s))

    np.testing.assert_allclose(own[1:], PART_S, rtol=0.15)
    np.testing.assert_allclose(wait, PART_S * np.arange(PARTS), rtol=0.15, atol=0.3)
    assert stragglers_of((run,)).filter(stage="forward").is_empty()
    rows = bubbles.table((run,)).filter(stage="forward", where="in")
    assert rows["wait_ns"].sum() / 1e9 == pytest.approx(float(np.nansum(run.wait_s[:, :, forward])), rel=1e-6)
    gates = rows.drop_nulls("gate_rank")
    assert (gates["gate_rank"] == gates["rank"] - 1).all()
    assert gates.is_empty() == bool((run.rows[:, forward] < 0).all())


def test_what_a_role_waits_for_another_one_is_no_time_of_its_own() -> None:
    actor, rollout = buffered_runs(12, 4, 5000)
    before = actor.kinds.index(Piece("before", "load_batch"))
    free_s = actor.came_s[1:, :, before + 1] - actor.done_s[:-1, :, -1]

    assert np.nansum(actor.wait_s[1:, :, before]) == pytest.approx(float(np.nansum(free_s)), rel=0.01)
    assert rollout.is_free and not actor.is_free
    assert step_tables.rank_table((actor,))["wait_ratio"].min() > 0.3
    rows = bubbles.table((actor,)).filter(stage="load_batch", where="before")
    assert rows["gate_rank"].null_count() == len(rows) > 0


def test_who_waited_for_the_slow_producer_is_not_fed_by_a_quick_one_that_ended_its_next_step_just_before() -> None:
    """As happens now and then on a busy machine: here in every tenth step, half a millisecond before it goes on."""
    rows, ended, updated = list[dict[str, object]](), [0, 0], [0, 0]
    for step in range(50):
        for rank, took_us in enumerate((119_600 if step % 10 == 1 else 118_600, 150_000)):
            who, began = {"rank": rank, "role": "rollout", "step": step}, max(ended[rank], updated[-2])
            waits = {"entered_ns": ended[rank], "left_ns": began, "stage": "wait_for_room", "waits_for": "actor"}
            ended[rank] = began + took_us * 1000
            does = {"entered_ns": began, "left_ns": ended[rank], "stage": "actor_generate"}
            rows += [{**who, **waits}, {**who, **does}]
        who, given = {"rank": 0, "role": "actor", "step": step}, max(ended) + 10**6
        waits = {"entered_ns": updated[-1], "left_ns": given, "stage": "wait_for_samples", "waits_for": "rollout"}
        updated.append(given + 30 * 10**6)
        rows += [{**who, **waits}, {**who, "stage": "actor_update", "entered_ns": given, "left_ns": updated[-1]}]
    runs = role_runs.of_steps([judged.step for judged in judge(rows).steps])
    actor = next(run for run in runs if run.role == "actor")
    feeds = [feed for course in actor.courses[30:] for feed in course.feeds if feed is not None]

    assert [feed.courses for feed in feeds] == [(("rollout", step),) for step in range(30, 50)]


def test_a_stage_around_another_one_has_the_time_before_and_behind_it() -> None:
    (run,) = runs = role_runs.of_steps(list(Nested(JobShape(has_rings=False), 3).steps(30)))
    pieces = run.stages()["actor_generate"]

    assert np.nanmean(run.own_of(pieces)) == pytest.approx(4.0, rel=0.05)
    assert np.nanmean(run.own_of(run.stages()["reward"])) == pytest.approx(2.0, rel=0.05)
    path = critical_path.table(runs)
    spent = {key: part["duration_ns"].sum() / 30e9 for (key,), part in path.group_by("stage")}
    assert spent["actor_generate"] == pytest.approx(4.0, rel=0.15)
    rows = throughput.table(runs).filter(stage="actor_generate")
    assert rows["stage_ns"].mean() / 1e9 == pytest.approx(6.0, rel=0.15)
    assert set(bubbles.table(runs)["gate_stage"].drop_nulls()) <= {"actor_generate", "reward", "actor_update"}


def test_own_time_and_waiting_are_what_a_member_was_in_a_stage() -> None:
    run = role_of(JobShape(), [InjectedFault("before", "actor_generate", rank=3, factor=1.5)])
    piece = run.kinds.index(Piece("in", "actor_compute_log_prob"))

    took = run.done_s[:, :, piece] - run.came_s[:, :, piece]

    np.testing.assert_allclose(run.own_s[:, :, piece] + run.wait_s[:, :, piece], took, atol=1e-9)
    assert run.wait_s[30:, 3, piece].mean() < 0.5 * run.wait_s[30:, :, piece].mean()


def test_a_replay_goes_on_with_a_member_that_does_nothing_in_most_steps() -> None:
    """Rank 2 acts in every third step only, and takes two seconds more than the others then."""
    random, ended, steps = np.random.default_rng(1), np.zeros(3), []
    for number in range(30):
        took = np.array([1.0, 1.0, np.nan if number % 3 else 3.0]) + random.normal(0, 0.01, 3)
        left = np.where(np.isnan(took), np.nan, np.nanmax(ended + took) + 0.5)
        entered, done = np.where(np.isnan(took), np.nan, ended), ended + took
        stages = ("actor_generate", "actor_update")
        steps.append(role_step(number, stages, np.stack([entered, done], 1), np.stack([done, left], 1)))
        ended = np.full(3, np.nanmax(left))
    (run,) = role_runs.of_steps(steps)
    own = run.own_s.copy()
    own[:, 2, run.kinds.index(Piece("in", "actor_generate"))] -= 2.0

    assert saved_s([run], run, own) == pytest.approx(2.0 / 3, rel=0.03)


def test_a_step_without_stages_is_none() -> None:
    steps = [role_step(0, (), np.zeros((2, 0)), np.zeros((2, 0))), role_step(1, ("reward",), [[0], [0]], [[1], [1]])]

    assert [run.steps.tolist() for run in role_runs.of_steps(steps)] == [[1]]


def test_groups_that_never_meet_are_not_waited_for() -> None:
    run = role_of(JobShape(group_ranks=4), steps=30)
    piece = run.kinds.index(Piece("in", "actor_update"))

    assert [len(set(run.labels[first : first + 4, piece])) for first in range(0, 16, 4)] == [1] * 4
    assert len(set(run.labels[:, piece].tolist())) == 4


def test_a_member_that_leaves_and_comes_back_has_no_time_while_it_is_away() -> None:
    run = role_of(JobShape(leaves_at=10), steps=40)

    assert np.isnan(run.own_s[10:30, -1]).all()
    assert np.isfinite(run.own_s[30:, -1]).any()
    assert np.isfinite(replay.lengths_s(run, 0.9 * run.own_s)).all()


def test_of_a_long_run_the_last_steps_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_runs, "CELLS_AT_MOST", 10 * 16 * 12)

    run = role_of(JobShape(), steps=40)

    assert run.steps.tolist() == list(range(30, 40))


def test_what_the_work_explains_is_no_excess() -> None:
    run = role_of(JobShape(), [InjectedFault("more_work", "actor_generate", rank=5, factor=2.0, since=0)])
    piece = run.kinds.index(Piece("in", "actor_generate"))
    raw = run.own_s[:, 5, piece] / np.median(run.own_s[:, :, piece], axis=1)

    off = run.longer()[:, 5, piece]

    assert np.median(raw) > 1.5
    assert abs(np.median(off)) < 0.05


def test_of_two_members_the_slower_one_is_compared_with_the_other() -> None:
    run = role_of(JobShape(ranks=2), [InjectedFault("before", "reward", rank=1, factor=1.5, since=0)])
    piece = run.kinds.index(Piece("in", "reward"))

    assert np.median(np.log1p(run.longer()[:, 1, piece])) == pytest.approx(np.log(1.5), abs=0.06)
