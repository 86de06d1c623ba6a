"""What was judged of a run: its judge's word where there is any; else the run's tables, judged here."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.judged_runs import BEHIND, INPUT, NOBODY, recorded, say, stage_times, verdict
from builders.run_files import anchor, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.reading import judged
from mstxkit.reading.report.summary import summarise_run
from mstxkit.reading.run import open_run


def test_the_word_of_the_jobs_own_judge_comes_first(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, steps=40))
    say(run, verdict(id="small", impact_ratio=0.1, rank=0), verdict(id="large"), verdict(id="gone", withdrawn="x"))
    say(run, verdict(id="open", kind="not_enough_evidence", impact_ratio=0.9))

    judgement = judged.of_run(open_run(run).roles)

    assert judgement.by == judged.JOB
    assert [said.id for said in judgement.holding] == ["large", "small", "open"]
    assert [said.id for said in judgement.blaming] == ["large", "small"]


def test_where_all_verdicts_are_withdrawn_nobody_is_blamed(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, steps=40))
    recovered = verdict(withdrawn="it recovered")
    say(run, recovered)

    assert judged.of_run(open_run(run).roles) == judged.JobVerdicts(judged.JOB, withdrawn=(recovered,))
    assert summarise_run(open_run(run))["judged"]["hiding"] == ["actor_update"]


def test_a_rank_that_recovered_is_blamed_no_more_but_told_of(tmp_path: Path) -> None:
    slow = stage_times(INPUT, steps=30)
    over_ns = max(end for *_, end in slow)
    healthy = [(step + 30, *who, begin + over_ns, end + over_ns) for step, *who, begin, end in stage_times(NOBODY)]

    judgement = judged.of_run(open_run(recorded(tmp_path / "run", [*slow, *healthy])).roles)

    assert judgement.holding == ()
    assert [(said.rank, said.stage) for said in judgement.withdrawn] == [(1, "reference")]


@pytest.mark.parametrize(("steps", "counted"), [(8, 0), (15, 5), (60, 50)])
def test_it_says_how_many_steps_could_lead_to_a_verdict(tmp_path: Path, steps: int, counted: int) -> None:
    judgement = judged.of_run(open_run(recorded(tmp_path / "run", stage_times(NOBODY, steps=steps))).roles)

    assert judgement.roles == (judged.JudgedRole("", steps, counted),)


def test_where_the_jobs_judge_lacks_evidence_the_tables_may_have_it(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT))
    healthy = recorded(tmp_path / "healthy", stage_times(NOBODY))
    for each in (run, healthy):
        say(each, verdict(id="open", kind="not_enough_evidence"))

    assert judged.of_run(open_run(run).roles).by == judged.TABLES
    assert [said.id for said in judged.of_run(open_run(healthy).roles).holding] == ["open"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_run_that_nobody_judged_is_judged_by_its_tables(tmp_path: Path, ranks: int) -> None:
    judgement = judged.of_run(open_run(recorded(tmp_path / "run", stage_times(INPUT, ranks=ranks))).roles)

    assert judgement.by == judged.TABLES
    assert [(said.rank, said.stage) for said in judgement.blaming] == [(1, "reference")]


@pytest.mark.parametrize("fault", [BEHIND, NOBODY])
def test_tables_alone_blame_nobody_where_a_barrier_hides_it_or_all_is_well(tmp_path: Path, fault: str) -> None:
    run = recorded(tmp_path / "run", stage_times(fault, ranks=4))

    judgement = judged.of_run(open_run(run).roles)

    assert judgement.by == judged.TABLES
    assert [said for said in judgement.blaming if said.rank is not None] == []
    assert summarise_run(open_run(run))["judged"]["hiding"] == ["actor_update"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranges_around_collectives_tell_who_is_late_behind_the_barrier(tmp_path: Path, ranks: int) -> None:
    """And the one that is slow is blamed, not the one that is in the collective for longest."""
    run = recorded(tmp_path / "run", stage_times(BEHIND, ranks=ranks), around_collectives=True)

    judgement = judged.of_run(open_run(run).roles)

    assert [(said.rank, said.stage) for said in judgement.blaming] == [(1, "actor_update")]
    assert summarise_run(open_run(run))["judged"]["hiding"] == []


@pytest.mark.parametrize("fault", [INPUT, NOBODY])
def test_ranges_around_collectives_accuse_nobody_else(tmp_path: Path, fault: str) -> None:
    run = recorded(tmp_path / "run", stage_times(fault, ranks=4), around_collectives=True)

    blaming = judged.of_run(open_run(run).roles).blaming

    assert [(said.rank, said.stage) for said in blaming] == [(1, "reference")] * (fault == INPUT)


@pytest.mark.parametrize("every", [3, 10])
@pytest.mark.parametrize(("fault", "stage"), [(INPUT, "reference"), (BEHIND, "actor_update")])
def test_a_rank_that_does_nothing_in_most_steps_has_not_gone_and_the_others_are_judged(
    tmp_path: Path, fault: str, stage: str, every: int
) -> None:
    rows = [row for row in stage_times(fault, ranks=3) if row[1] != 2 or row[0] % every == 0]

    judgement = judged.of_run(open_run(recorded(tmp_path / "run", rows, around_collectives=True)).roles)

    assert [(said.rank, said.stage) for said in judgement.blaming] == [(1, stage)]
    assert judgement.roles[0].judged_steps >= 45


def test_who_works_beside_ranks_is_not_taken_for_them(tmp_path: Path) -> None:
    """A pool's steps are over before its ranks'; these were taken for late ones then."""
    rows = stage_times(INPUT, ranks=3, steps=40)
    run = recorded(tmp_path / "run", rows)
    recorded(run, [row for row in rows if row[2] == "reference"], under="pool", part="pool 1")

    assert [(said.rank, said.stage) for said in judged.of_run(open_run(run).roles).blaming] == [(1, "reference")]


@pytest.mark.parametrize(("first", "then", "blamed", "recovered"), [(NOBODY, INPUT, [1], []), (INPUT, NOBODY, [], [1])])
def test_attempts_in_one_run_folder_are_judged_one_after_the_other(
    tmp_path: Path, first: str, then: str, blamed: list[int], recovered: list[int]
) -> None:
    """The second one counts its steps from 0 on again."""
    run, now_ns = tmp_path / "run", 0
    for steps, fault in ((40, first), (30, then)):
        rows = [(*row[:3], row[3] + now_ns, row[4] + now_ns) for row in stage_times(fault, ranks=3, steps=steps)]
        recorded(run, rows, job=fault, anchors=(anchor(now_ns), anchor(rows[-1][-1])))
        now_ns = rows[-1][-1] + 10**10

    judgement = judged.of_run(open_run(run).roles)

    assert [said.rank for said in judgement.blaming] == blamed
    assert [said.rank for said in judgement.withdrawn] == recovered
    assert judgement.roles == (judged.JudgedRole("", 30, 20),)


@pytest.mark.parametrize(("ranks", "steps"), [(1, 20), (2, 0)])
def test_where_there_is_nothing_to_compare_nobody_judges_and_it_says_why(
    tmp_path: Path, ranks: int, steps: int
) -> None:
    rows = stage_times(NOBODY, ranks=ranks, steps=steps)
    run = recorded(tmp_path / "run", rows) if rows else new_run(tmp_path / "empty")

    judgement = judged.of_run(open_run(run).roles)

    assert judgement.by == judged.NOBODY
    assert judgement.why_not
