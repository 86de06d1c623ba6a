"""Where a step's time goes: waiting and who is the cause of it, the critical path, tails, links, throughput."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pl = pytest.importorskip("polars")

import numpy as np  # noqa: E402
from builders import judged_runs  # noqa: E402
from builders.judged import role_step  # noqa: E402
from builders.simulated_steps import role_of, runs_of, stragglers_of, verdicts_of  # noqa: E402

from mstxkit.errors import ReadError  # noqa: E402
from mstxkit.reading import role_runs  # noqa: E402
from mstxkit.reading import run as reading  # noqa: E402
from mstxkit.reading.tables import (  # noqa: E402
    bubbles,
    critical_path,
    lateness,
    resharding,
    stragglers,
    tails,
    throughput,
)
from mstxkit.reading.tables import steps as step_tables  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape  # noqa: E402

pytestmark = pytest.mark.days("even")

SLOW = InjectedFault("before", "actor_generate", rank=3, factor=2.5)
SINCE = 20
_NO_WAITS = pl.DataFrame(schema={"step": pl.Int64, "role": pl.String, "stage": pl.String, "unaccounted_ns": pl.Int64})


def test_a_straggler_is_told_with_its_effect_and_since_when() -> None:
    fault = InjectedFault("before", "reward", rank=3, factor=1.5)

    runs = runs_of(JobShape(), [fault])
    row, said = stragglers_of(runs).row(0, named=True), [v.confidence for v in verdicts_of(runs) if v.rank == 3]

    assert (row["rank"], row["stage"], row["where"]) == (3, "reward", "in")
    assert row["effect_ratio"] == pytest.approx(0.5, abs=0.08)
    assert abs(row["first_step"] - SINCE) <= 2
    assert row["confidence"] in said and min(said) > 0.7, "as its verdict has it"


@pytest.mark.parametrize(("tokens", "longer"), [(2000, []), (1010, [0.5])], ids=["twice the work", "the same work"])
def test_work_that_is_the_same_in_each_step_still_explains_its_time(tokens: int, longer: list[float]) -> None:
    chance, steps = np.random.default_rng(3), []
    for number in range(30):
        took = np.array([1.0, 1.0, 1.5, 1.0])[:, None] * chance.normal(1, 0.01, (4, 1))
        begin = np.full((4, 1), 2.0 * number)
        steps.append(role_step(number, ["reward"], begin, begin + took, [[1000], [1000], [tokens], [1000]]))

    rows = stragglers_of(role_runs.of_steps(steps)).filter(pl.col("where") == "in")

    assert rows["effect_ratio"].to_list() == pytest.approx(longer, abs=0.05)


@pytest.mark.parametrize(("begins", "first"), [(0, 0), (25, 25)], ids=["slow from the first step on", "since step 25"])
def test_a_single_step_that_is_odd_does_not_say_since_when(begins: int, first: int) -> None:
    chance, steps = np.random.default_rng(4), []
    for number in range(60):
        took = np.array([1.0, 1.0, 1.0, 1.4 if number >= begins else 1.0])[:, None] * chance.normal(1, 0.01, (4, 1))
        took[:3] *= 1.5 if number in (9, 22) else 1.0  # the others are as slow, or slower, once
        begin = np.full((4, 1), 2.0 * number)
        steps.append(role_step(number, ["reward"], begin, begin + took, [[1000]] * 4))

    (row,) = stragglers_of(role_runs.of_steps(steps)).filter(pl.col("where") == "in").to_dicts()

    assert (row["rank"], row["first_step"], row["last_step"]) == (3, first, 59)


def test_who_is_slow_in_every_third_step_costs_what_these_take_longer() -> None:
    chance, steps, begin = np.random.default_rng(5), [], 0.0
    for number in range(120):
        took = np.array([1.0, 1.0, 3.0 if number % 3 == 0 else 1.0, 1.0])[:, None] * chance.normal(1, 0.01, (4, 1))
        left, over = begin + took, begin + took.max() + 4.0 + chance.uniform(0, 1e-4, (4, 1))
        left_s = np.concatenate([left, over], axis=1)
        entered_s = np.concatenate([np.full((4, 1), begin), left], axis=1)
        steps.append(role_step(number, ["load_batch", "actor_update"], entered_s, left_s, np.full((4, 2), 1000)))
        begin = over.max()

    (row,) = stragglers_of(role_runs.of_steps(steps)).to_dicts()

    assert (row["rank"], row["stage"], row["first_step"], row["last_step"]) == (2, "load_batch", 0, 117)
    assert row["step_ratio"] == pytest.approx(2 / 3 / (5 + 2 / 3), rel=0.1)


def test_in_a_healthy_job_nobody_is_a_straggler_that_costs_anything() -> None:
    for seed in range(1000, 1005):
        rows = stragglers_of(runs_of(JobShape(mismatch=0.3), seed=seed))

        assert rows.filter(pl.col("step_ratio") > 0.03).is_empty()


def test_a_rank_that_is_slow_between_collectives_is_seen_by_these_alone() -> None:
    fault = InjectedFault("inside", "actor_update", rank=3, factor=1.5)

    with_rings = stragglers_of(runs_of(JobShape(), [fault]))
    without = stragglers_of(runs_of(JobShape(has_rings=False), [fault]))

    assert with_rings.row(0, named=True)["rank"] == 3
    assert with_rings.row(0, named=True)["where"] == "inside"
    assert without.filter((pl.col("rank") == 3) & (pl.col("stage") == "actor_update")).is_empty()


def test_who_waits_is_told_for_whom_and_where_that_one_was_late() -> None:
    rows = bubbles.table(runs_of(JobShape(has_rings=False), [SLOW])).filter(
        (pl.col("stage") == "actor_compute_log_prob") & (pl.col("step") >= SINCE)
    )

    often = rows.group_by("gate_rank", "gate_stage").len().sort("len", descending=True).row(0)
    assert often[:2] == (3, "actor_generate")
    own = rows.filter(pl.col("rank") == 3)["wait_ns"].mean()
    assert own < 0.2 * rows.filter(pl.col("rank") != 3)["wait_ns"].mean()


@pytest.mark.parametrize("around_collectives", [True, False])
def test_who_waits_in_a_collective_for_one_that_is_slow_before_it_waits(
    around_collectives: bool, tmp_path: Path
) -> None:
    """Of 54 ms of a step rank 0 waits for 20, of which only ranges inside of the stage tell."""
    path = judged_runs.recorded(
        tmp_path / "run", judged_runs.stage_times(judged_runs.BEHIND), around_collectives=around_collectives
    )

    steps, (first, slow) = reading.open_run(path).steps(), reading.open_run(path).ranks().to_dicts()

    waits_ms = 20.0 if around_collectives else 0.0
    assert first["wait_ns"] / 1e6 == pytest.approx(waits_ms, abs=0.5)
    assert first["work_ns"] / 1e6 == pytest.approx(53.0 - waits_ms, abs=0.5)
    assert (slow["wait_ns"] / 1e6, slow["work_ns"] / 1e6) == pytest.approx((0.0, 53.0), abs=0.5)
    assert steps["wait_ratio"].median() == pytest.approx(waits_ms / 2 / 54.0, abs=0.01)
    assert (slow["gated_steps"] > 0.9 * len(steps)) == around_collectives


def test_nobody_waits_longer_than_it_was_there() -> None:
    rows = bubbles.table(runs_of(JobShape(mismatch=0.6), [SLOW]))

    assert (rows["wait_ns"] >= 0).all()
    assert not rows.select("step", "role", "stage", "where", "rank").is_duplicated().any()


@pytest.mark.parametrize("shape", [JobShape(), JobShape(is_dispatched=True), JobShape(ranks=1)])
def test_the_critical_path_adds_up_to_the_step(shape: JobShape) -> None:
    run = role_of(shape, [SLOW])

    rows = critical_path.table((run,), origin_ns=10**18)

    summed = rows.group_by("step").agg(pl.col("duration_ns").sum()).sort("step")["duration_ns"].to_numpy() / 1e9
    np.testing.assert_allclose(summed, run.lengths_s, rtol=1e-6, atol=1e-6)
    assert (rows["start_ns"] > 10**18).all()


def test_the_critical_path_goes_through_the_slow_rank_in_its_stage() -> None:
    rows = critical_path.table(runs_of(JobShape(), [SLOW])).filter(
        (pl.col("stage") == "actor_generate") & (pl.col("where") == "in") & (pl.col("step") >= SINCE)
    )

    assert (rows["rank"] == 3).mean() > 0.8
    assert rows["more_ns"].median() > 0


def test_the_time_until_a_job_was_started_anew_is_in_no_step(tmp_path: Path) -> None:
    rows, hour_ns = judged_runs.stage_times(judged_runs.NOBODY, steps=20), 3600 * 10**9
    judged_runs.recorded(tmp_path / "run", [row for row in rows if row[0] < 10])
    anew = [(*row[:3], row[3] + hour_ns, row[4] + hour_ns) for row in rows if row[0] >= 10]
    run = reading.open_run(judged_runs.recorded(tmp_path / "run", anew))

    path = run.critical_path().group_by("step").agg(pl.col("duration_ns").sum())
    assert run.steps()["duration_ns"].max() < 50 * judged_runs.MS
    assert path["duration_ns"].max() < 50 * judged_runs.MS


def test_steps_say_who_held_them_up() -> None:
    rows = step_tables.table(runs_of(JobShape(), [SLOW]))

    late = rows.filter(pl.col("step") >= SINCE)
    assert late["gate_rank"].mode().to_list() == [3]
    assert late["gate_stage"].mode().to_list() == ["actor_generate"]
    assert late["wait_ratio"].mean() > 1.2 * rows.filter(pl.col("step") < SINCE)["wait_ratio"].mean() > 0


def test_ranks_have_work_and_waiting_apart() -> None:
    rows = step_tables.rank_table(runs_of(JobShape(), [SLOW], steps=60))

    slow, others = rows.filter(pl.col("rank") == 3), rows.filter(pl.col("rank") != 3)
    assert slow["wait_ns"][0] < others["wait_ns"].min()
    assert slow["work_ns"][0] > others["work_ns"].max()
    assert (slow["excess_stage"][0], slow["gated_steps"][0]) == ("actor_generate", rows["gated_steps"].max())


def test_the_tail_is_what_the_last_rank_goes_on_for() -> None:
    rows = tails.table(runs_of(JobShape())).filter(pl.col("stage") == "actor_generate")

    run = role_of(JobShape())
    piece = next(place for place, kind in enumerate(run.kinds) if kind == ("in", "actor_generate"))
    own = run.own_s[:, :, piece]
    np.testing.assert_allclose(rows["tail_ns"] / 1e9, own.max(axis=1) - np.median(own, axis=1), atol=1e-6)
    assert rows["last_rank"].to_list() == own.argmax(axis=1).tolist()
    assert (rows["last_rank_longest"] <= rows["longest_response"]).all()


def test_a_slow_link_is_that_of_its_group() -> None:
    fault = InjectedFault("link", "actor_update", rank=5, factor=4.0)

    row = lateness.link_table(runs_of(JobShape(group_ranks=4), [fault])).row(0, named=True)

    assert (row["group"], row["stage"]) == ("4-7", "actor_update")
    assert row["took_ns"] == pytest.approx(4 * row["others_ns"], rel=0.3)


def test_throughput_is_tokens_over_time_and_a_share_of_the_peak() -> None:
    runs = runs_of(JobShape(), steps=5)

    row = throughput.table(runs, flops_per_token=1e9, peak_flops=1e14).row(0, named=True)

    assert row["tokens_per_s"] == pytest.approx(row["tokens"] / (row["stage_ns"] / 1e9))
    assert row["mfu_ratio"] == pytest.approx(row["tokens_per_s"] * 1e9 / (1e14 * row["ranks"]))
    assert throughput.table(runs)["mfu_ratio"].null_count() == throughput.table(runs).height


def test_ranks_that_do_not_tell_their_tokens_have_devices_all_the_same() -> None:
    """Of a stage in which one rank tells the tokens of all, the share of the peak was that of one device."""
    (run, *_) = runs_of(JobShape(), steps=5)
    work = run.work.copy()
    work[:, 1:, :, 0] = np.nan
    row = throughput.table((dataclasses.replace(run, work=work),), 1e9, 1e14).row(0, named=True)

    assert row["ranks"] == len(run.members) > 1
    assert row["mfu_ratio"] == pytest.approx(row["tokens_per_s"] * 1e9 / (1e14 * len(run.members)))


def test_the_share_of_the_peak_takes_a_figure_for_each_stage_as_capture_does() -> None:
    rows = throughput.table(runs_of(JobShape(), steps=5), {"actor_update": 1e9}, {"actor_update": 1e14})

    is_known = rows["mfu_ratio"].is_not_null()
    assert set(rows.filter(is_known)["stage"]) == {"actor_update"} and set(rows["stage"]) > {"actor_update"}
    row = rows.filter(is_known).row(0, named=True)
    assert row["mfu_ratio"] == pytest.approx(row["tokens_per_s"] * 1e9 / (1e14 * row["ranks"]))


def test_a_figure_that_is_none_is_an_error_of_ours() -> None:
    with pytest.raises(ReadError, match="one for each stage"):
        throughput.table((), {"actor_update": -1.0}, 1e14)


def test_in_a_role_in_which_nobody_waits_a_tail_costs_no_waiting() -> None:
    rows = tails.table(runs_of(JobShape(is_async=True))).filter(pl.col("role") == "rollout")

    assert rows.height == 60 and rows["idle_ns"].null_count() == 60
    assert tails.table(runs_of(JobShape()))["idle_ns"].null_count() == 0


def test_ranks_that_drift_apart_are_not_slower_at_their_work() -> None:
    """Rollouts that never meet: by how much one is ahead of the others is no time that the work takes."""
    rows = throughput.table(runs_of(JobShape(is_async=True), steps=60)).filter(pl.col("role") == "rollout")
    first, last = (part["tokens_per_s"].mean() for part in (rows.head(20), rows.tail(20)))

    assert set(rows["stage"]) == {"actor_generate"} and rows.height == 60
    assert last == pytest.approx(first, rel=0.2)
    assert rows["tokens_per_s"].mean() >= rows["step_tokens_per_s"].mean() * 0.95


def test_resharding_and_dispatch_are_told_apart() -> None:
    waits = pl.DataFrame(
        {"step": [3], "role": ["driver"], "stage": ["actor_generate"], "unaccounted_ns": [10**9]},
        schema=_NO_WAITS.schema,
    )

    rows = resharding.table(runs_of(JobShape(), steps=10), waits)

    assert rows.filter(pl.col("kind") == "weights")["stage"].unique().to_list() == ["weight_sync"]
    (dispatch,) = rows.filter(pl.col("kind") == "dispatch").to_dicts()
    assert (dispatch["cost_ns"], dispatch["step"]) == (10**9, 3)
    assert 0 < dispatch["step_ratio"] < 1


def test_a_sample_that_goes_on_alone_is_the_last_of_its_process() -> None:
    rows = pl.DataFrame({
        "process": [0, 0, 0, 1], "rank": [0, 0, 0, 1], "step": [1, 1, 1, 1], "stage": ["actor_generate"] * 4,
        "start_ns": [0, 0, 5, 0], "duration_ns": [10, 40, 10, 9], "tokens": [1.0, 4.0, 1.0, None],
    })  # fmt: skip

    table = tails.list_samples(rows)

    assert table.select("duration_ns", "alone_ns", "is_last").rows() == [(40, 25, True), (10, 0, False), (10, 0, False)]


def occurrences(*spans: tuple[int, int, float | None], steps: int = 4) -> pl.DataFrame:
    """Of one process, alike in each step: begin, end, tokens."""
    rows = [
        {"process": 0, "rank": 0, "step": step, "stage": "generate", "start_ns": 100 * step + begin,
         "duration_ns": end - begin, "tokens": tokens}
        for step in range(steps) for begin, end, tokens in spans
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"tokens": pl.Float64})


@pytest.mark.parametrize("tokens", [None, 6.0])
def test_a_stage_that_encloses_the_samples_is_none_of_them(tokens: float | None) -> None:
    inside = (1, 10, 1.0), (3, 40, 4.0), (5, 15, 1.0)

    enclosed, alone = (
        tails.list_samples(occurrences((0, 45, tokens), *inside)),
        tails.list_samples(occurrences(*inside)),
    )

    assert enclosed.rows() == alone.rows()
    assert enclosed.filter("is_last").select("duration_ns", "alone_ns", "samples").unique().rows() == [(37, 25, 3)]


def test_each_of_several_rounds_of_a_step_may_enclose_its_samples() -> None:
    table = tails.list_samples(occurrences((0, 20, None), (1, 19, 9.0), (2, 8, 2.0), (30, 50, None), (31, 49, 3.0)))

    assert sorted(table["duration_ns"].unique()) == [6, 18]
    assert table["samples"].unique().to_list() == [3]


def test_a_long_sample_that_holds_the_others_now_and_then_stays_a_sample() -> None:
    held, beside = occurrences((0, 40, None), (1, 10, None), (5, 15, None)), occurrences((0, 9, None), (5, 15, None))

    table = tails.list_samples(pl.concat([held.filter(pl.col("step") < 2), beside.filter(pl.col("step") >= 2)]))

    assert table.filter("is_last").select("step", "duration_ns").rows() == [(0, 40), (1, 40), (2, 10), (3, 10)]


def test_a_sample_with_fewer_tokens_than_those_that_it_holds_encloses_nothing() -> None:
    table = tails.list_samples(occurrences((0, 40, 4.0), (1, 10, 3.0), (5, 15, 2.0)))

    assert table.filter("is_last")["duration_ns"].unique().to_list() == [40]


def test_tables_of_nothing_have_their_columns() -> None:
    for module in (bubbles, critical_path, step_tables, stragglers, tails, throughput):
        table = module.table(())

        assert table.is_empty()
        assert table.columns == list(module.SCHEMA)
    assert resharding.table((), _NO_WAITS).is_empty()
    assert step_tables.rank_table(()).columns == list(step_tables.RANK_SCHEMA)
    assert lateness.link_table(()).columns == list(lateness.LINK_SCHEMA)
