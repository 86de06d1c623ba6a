"""What steps say in the mean: the same as the tables, the worst first, whole in JSON, short in words on a terminal."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("rich")

from builders.judged_runs import BEHIND, INPUT, NOBODY, recorded, stage_times  # noqa: E402
from builders.run_files import BankFiles, ProcessFiles, new_run  # noqa: E402
from builders.shown_report import printed, shown  # noqa: E402
from builders.simulated_runs import recorded_job  # noqa: E402
from builders.simulated_steps import runs_of  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from mstxkit.cli import build_application  # noqa: E402
from mstxkit.reading.page import writing  # noqa: E402
from mstxkit.reading.report import step_means, step_words  # noqa: E402
from mstxkit.reading.report.choice import Supposed  # noqa: E402
from mstxkit.reading.report.summary import summarise_run  # noqa: E402
from mstxkit.reading.run import Run, open_run  # noqa: E402
from mstxkit.store.metrics_setting import Flops  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape  # noqa: E402

MS = 10**6
SLOW = InjectedFault("before", "actor_generate", rank=3, factor=1.8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("means") / "run"
    return open_run(recorded_job(path, JobShape(ranks=8, is_dispatched=True), faults=[SLOW], steps=50))


@pytest.fixture(scope="module")
def summary(run: Run) -> dict[str, Any]:
    return summarise_run(run)


def words_of(summary: dict[str, Any], columns: int = 4000) -> dict[str, str]:
    """What the terminal shows of each, by its first word, where everything is asked for."""
    text = shown(*step_words.render_steps(summary, everything=True), columns=columns)
    return {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines()}


def steady(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Those of steps that count in means."""
    return rows.filter(run.roles.is_steady)


def test_the_first_steps_of_each_attempt_count_in_no_mean_and_that_is_said(tmp_path: Path) -> None:
    path, rows = tmp_path / "run", stage_times(NOBODY, steps=20)
    slow = [(step, rank, name, begin, end + (step in (0, 1)) * 50 * MS) for step, rank, name, begin, end in rows]
    run = open_run(recorded(path, slow))
    short = open_run(recorded(tmp_path / "short", slow[: 4 * 3]))

    summary = summarise_run(run)

    assert (run.roles.warm_up, short.roles.warm_up) == ((0, 1), ())
    assert summary["warm_up"] == [0, 1]
    assert [run.steps.tolist() for run in run.roles.steady] == [list(range(2, 20))]
    assert all(row["mean_ns"] < 40 * MS for stage in summary["stages"] for row in stage["ranks"])
    assert "steps 0 to 19; means leave out warm-up, steps 0-1" in printed(summary, columns=200)


def test_the_critical_path_is_the_length_of_a_step(run: Run, summary: dict[str, Any]) -> None:
    rows = summary["critical_path"]

    lasted = steady(run, run.critical_path())["duration_ns"].sum() / steady(run, run.steps()).height
    assert sum(row["ns"] for row in rows) == pytest.approx(lasted, rel=1e-6)
    assert sum(row["ratio"] for row in rows) == pytest.approx(1)
    assert [row["ns"] for row in rows] == sorted((row["ns"] for row in rows), reverse=True)
    assert (rows[0]["stage"], rows[0]["where"], rows[0]["role"]) == ("actor_generate", "in", "actor")


def test_who_held_up_the_others_is_told_with_the_steps_and_what_was_waited(run: Run, summary: dict[str, Any]) -> None:
    worst = summary["held_up_by"][0]

    bubbles = steady(run, run.bubbles()).filter(
        (pl.col("gate_rank") == 3) & (pl.col("gate_stage") == "actor_generate") & (pl.col("rank") != 3)
    )
    assert (worst["rank"], worst["stage"], worst["of_steps"]) == (3, "actor_generate", 48)
    assert worst["steps"] == bubbles["step"].n_unique()
    assert worst["wait_ns"] == pytest.approx(bubbles["wait_ns"].sum() / 48, abs=1)


def test_of_several_roles_each_line_says_whose_rank_it_is_and_how_late_that_one_was(tmp_path: Path) -> None:
    """Ranks of one number were taken for one: half as late, and nobody knew which of them was slow."""
    recorded(tmp_path / "run", stage_times(NOBODY, ranks=4, steps=30), role="large")
    run = open_run(recorded(tmp_path / "run", stage_times(INPUT, ranks=4, steps=30), role="small"))
    told = summarise_run(run)
    words, page = words_of(told), writing.make_page(run, told, tmp_path)

    late_ms = {(row["role"], row["rank"]): row["late_ns"] / MS for row in told["lateness"]}
    assert 19 < late_ms["small", 1] < 21
    assert late_ms["large", 1] < 1
    assert words["late"].startswith("small: rank 1 enters actor_update")
    assert words["what"].startswith("if small: rank 1 as fast as the others")
    assert words["held"].startswith("up small: all together")
    assert told["headline"]["words"].startswith("rank 1 small takes longer than the others in reference")
    assert html.escape(told["headline"]["verdict"]) in page


@pytest.mark.parametrize(("inside", "told"), [(True, "19 % of a rank"), (False, "at least <1 % of a rank")])
def test_what_ranks_wait_is_told_as_the_least_where_nothing_tells_of_a_stage_s_inside(
    inside: bool, told: str, tmp_path: Path
) -> None:
    """Of two ranks one waits 20 of 54 ms in a collective: it was printed that they wait 1 % of their time."""
    # Of more steps than are looked into: what is seen in those is told.
    run = open_run(recorded(tmp_path / "run", stage_times(BEHIND, steps=300), around_collectives=inside))
    summary = summarise_run(run)

    assert words_of(summary)["waiting"].startswith(told)
    assert told.split(" of")[0] in html.unescape(writing.make_page(run, summary, tmp_path))


def test_tails_and_tokens_are_the_means_of_the_tables(run: Run, summary: dict[str, Any]) -> None:
    tail, rates = summary["tails"][0], {row["stage"]: row for row in summary["throughput"]}

    rows = steady(run, run.tails()).filter(pl.col("stage") == "actor_generate")
    assert (tail["stage"], tail["generates"], tail["steps"]) == ("actor_generate", True, 48)
    assert tail["tail_ratio"] == pytest.approx(rows["tail_ratio"].mean())
    assert tail["often"][0] == [3, rows["last_rank"].to_list().count(3)]
    of_update = steady(run, run.throughput()).filter(pl.col("stage") == "actor_update")
    took_s = of_update["stage_ns"].sum() / 1e9
    assert rates["actor_update"]["tokens_per_s"] == pytest.approx(of_update["tokens"].sum() / took_s)
    assert rates["actor_update"]["mfu_ratio"] is None


def test_what_resharding_and_a_controller_s_calls_cost_is_told(tmp_path: Path) -> None:
    run, workers, driver = new_run(tmp_path / "run"), [BankFiles(), BankFiles()], BankFiles()
    for step in range(4):
        at = step * 100 * MS
        for rank, bank in enumerate(workers):
            bank.range("sync", at, at + (10 + 10 * rank) * MS, stage="weight_sync", own=True, step=step)
            bank.range("gen", at + 30 * MS, at + 90 * MS, stage="actor_generate", own=True, step=step)
        driver.range(
            "gen", at + 25 * MS, at + 95 * MS, stage="actor_generate", own=True, step=step, waits_for="workers"
        )
    for rank, bank in enumerate(workers):
        ProcessFiles(run, 100 + rank, rank=rank, role="actor").seal(bank)
    ProcessFiles(run, 200, rank=None, role="driver", part="driver").seal(driver)

    summary = summarise_run(open_run(run))

    assert [
        (row["kind"], row["stage"], row["steps"], row["cost_ns"] // MS, row["last_ns"] // MS)
        for row in summary["resharding"]
    ] == [("weights", "weight_sync", 4, 15, 20), ("dispatch", "actor_generate", 4, 10, 10)]
    assert words_of(summary)["resharding"] == (
        "weight_sync 20.0 ms a step for the last rank (21 %); "
        "dispatch of actor_generate 10.0 ms a step for the last rank (10 %)"
    )


def test_a_long_step_counts_for_more_than_a_short_one() -> None:
    """Half of the tokens take a second, the others nine: in the mean of both steps that were 500 a second, not 180."""
    per_step = {"step": [0, 1], "role": ["", ""], "stage": ["a", "a"], "ranks": [2, 2], "tokens": [900.0, 900.0]}
    rates = pl.DataFrame({**per_step, "stage_ns": [1_000_000_000, 9_000_000_000], "step_ns": [10**10, 8 * 10**10]})
    waits = pl.DataFrame({"ranks": [2, 2], "wait_ns": [50, 0], "duration_ns": [100, 900]})

    (row,) = step_means.mean_throughput(rates, Flops(1.0, 900.0))

    assert (row["tokens_per_s"], row["step_tokens_per_s"], row["mfu_ratio"]) == pytest.approx((180.0, 20.0, 0.1))
    assert step_means.wait_ratio(waits) == pytest.approx(0.05)


def test_ranks_that_enter_late_are_of_the_role_whose_stage_it_is() -> None:
    """Also where a rank is of two roles, and where its role has no such stage."""
    trainer, rollout = runs_of(JobShape(ranks=2, rollouts=2, is_async=True), steps=5)
    stages = ["actor_update", "rollout", "unheard_of"]
    late = pl.DataFrame(
        {"step": [0] * 3, "group": ["0,1"] * 3, "rank": [trainer.ranks[1], rollout.ranks[1], 99], "stage": stages,
         "late_ns": [30, 20, 10], "error_ns": [5] * 3, "source": ["device"] * 3, "role": [None] * 3}
    )  # fmt: skip
    both = dataclasses.replace(rollout, role="both", members=trainer.members)

    rows, shared = (step_means.mean_lateness(late, runs) for runs in ((trainer, rollout), (trainer, both)))

    assert [row["role"] for row in rows] == [trainer.role, rollout.role, ""]
    assert shared[0]["role"] == trainer.role
    assert rows[0] == {
        "role": trainer.role, "rank": 1, "stage": "actor_update", "source": "device", "late_ns": 30.0, "error_ns": 5,
        "steps": 1,
    }  # fmt: skip


def test_the_json_has_all_of_it_and_is_not_cut(run: Run) -> None:
    done = CliRunner().invoke(build_application("report"), ["report", run.path, "--json"])
    document = json.loads(done.stdout)

    for key in ("critical_path", "held_up_by", "tails", "throughput", "resharding", "stragglers", "what_if"):
        assert document[key], key
    steps = steady(run, run.steps())
    assert document["wait_ratio"] == pytest.approx(steps["wait_ns"].sum() / steps["duration_ns"].sum())
    assert len(document["what_if"]) == run.what_if().height
    pairs = steady(run, run.bubbles()).filter(
        (pl.col("rank") != pl.col("gate_rank")) & (pl.col("wait_ns") > 0) & (pl.col("where") != "inside")
    )
    assert len(document["held_up_by"]) == pairs.select("gate_rank", "gate_stage").drop_nulls().n_unique()


def test_the_text_says_each_in_a_line_and_how_much_more_there_is(summary: dict[str, Any]) -> None:
    words = words_of(summary)

    assert list(words) == ["time", "waiting", "held", "tail", "what", "tokens/s", "resharding"]
    assert words["time"].startswith(f"{round(100 * summary['critical_path'][0]['ratio'])} % actor_generate, ")
    assert "for rank 3, late in actor_generate in " in words["held"]
    assert words["held"].endswith(f"; {len(summary['held_up_by']) - 2} more (--json lists all)")
    assert "rank 3 is last most often" in words["tail"]
    assert "rank 3 as fast as the others in actor_generate: " in words["what"] or "more (--json" in words["what"]


def test_the_mfu_is_of_what_a_token_takes_in_that_stage(run: Run) -> None:
    flops = Flops({"actor_update": 6 * 7e9}, 3.5e14)

    rates = {row["stage"]: row["mfu_ratio"] for row in summarise_run(run, supposed=Supposed(flops=flops))["throughput"]}

    own = steady(run, run.throughput(6 * 7e9, 3.5e14)).filter(pl.col("stage") == "actor_update")
    assert rates["actor_update"] == pytest.approx((own["mfu_ratio"] * own["stage_ns"]).sum() / own["stage_ns"].sum())
    assert rates["reward"] is None


def test_a_split_that_is_asked_for_is_told_first_also_where_it_costs(tmp_path: Path) -> None:
    path = recorded_job(tmp_path / "run", JobShape(ranks=4, rollouts=4, is_async=True), steps=25)
    for asked, words in (
        (["--trainers", "6", "--rollouts", "2"], "6 trainers and 2 rollouts: "), (["--rollouts", "3"], "3 rollouts: "),
        (["--rollouts", "2"], "4 trainers and 2 rollouts: "),  # and not 6 and 2, to which others would be moved
    ):  # fmt: skip
        shown = CliRunner().invoke(build_application("report"), ["report", str(path), *asked], env={"COLUMNS": "300"})

        (line,) = [line for line in shown.stdout.splitlines() if line.startswith("  what if")]
        assert words in line.partition(";")[0]
        assert "% more" not in line.partition(";")[2]
        assert re.search(r" % (less|more) \(± \d+ %\)$", line.partition(";")[0])


def test_the_sample_that_went_on_alone_longest_is_told_also_of_a_single_rank(tmp_path: Path) -> None:
    run, bank = new_run(tmp_path / "run"), BankFiles()
    for step in range(3):
        at = step * 100 * MS
        for track, (begin, end) in enumerate([(0, 70), (0, 20), (2, 60 + step)]):
            name = {"stage": "generate", "own": True, "step": step, "track": track}
            bank.range("gen" if track else "rollout", at + begin * MS, at + end * MS, **name)
    ProcessFiles(run, 100, rank=5).seal(bank)
    opened = open_run(run)

    summary = summarise_run(opened)

    assert (summary["samples"]["count"], summary["samples"]["alone"]) == (6, 3)
    assert words_of(summary)["samples"] == (
        "one of rank 5 in step 2 went on alone longest, for 42.0 ms of the 60.0 ms that it took"
    )
    page = writing.make_page(opened, summary, tmp_path)
    assert "Single samples that went on alone" in page


def test_a_rank_within_the_bound_of_the_clocks_is_not_called_late(summary: dict[str, Any]) -> None:
    row = {"role": "", "rank": 1, "stage": "w", "source": "stage_entry", "late_ns": 20.0, "error_ns": 25, "steps": 2}
    sure = {**row, "rank": 2, "late_ns": 2e6, "error_ns": 1000, "source": "device"}

    words = words_of({**summary, "lateness": [sure, row]})

    assert words["late"] == "rank 2 enters w 2.00 ms after the first (± 1.00 µs) by its device"
    assert "late" not in words_of({**summary, "lateness": [row]})


def test_a_run_of_nothing_has_no_such_line(tmp_path: Path) -> None:
    ProcessFiles(new_run(tmp_path / "run")).seal(BankFiles())

    assert words_of(summarise_run(open_run(tmp_path / "run"))) == {}
