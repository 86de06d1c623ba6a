"""The report calls nobody slow who waits for another: by a verdict, and by who enters last where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders.judged_runs import BEHIND, INPUT, MS, NOBODY, recorded, say, stage_times, verdict
from builders.run_files import new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("rich")

from builders.shown_report import printed

from mstxkit.reading.report.choice import read_choice
from mstxkit.reading.report.summary import summarise_run
from mstxkit.reading.run import open_run


def entry_of(summary: dict[str, Any], stage: str) -> dict[str, Any]:
    return next(entry for entry in summary["stages"] if entry["stage"] == stage)


def waiting(summary: dict[str, Any], stage: str) -> dict[int, int | None]:
    """Rank to the one for whom it waits."""
    rows = entry_of(summary, stage)["ranks"]
    return {row["rank"]: row["waits_for"] and row["waits_for"]["rank"] for row in rows}


@pytest.mark.parametrize("is_judged", [True, False])
@pytest.mark.parametrize("ranks", [2, 8])
def test_the_victim_of_a_slow_input_is_not_called_slowest(tmp_path: Path, ranks: int, is_judged: bool) -> None:
    """Review N2: rank 1's input is slow; all others are longest in actor_update, where they wait for it."""
    run = recorded(tmp_path / "run", stage_times(INPUT, ranks=ranks, steps=30))
    if is_judged:
        say(run, verdict(group=tuple(range(ranks))))

    summary = summarise_run(open_run(run))

    assert waiting(summary, "actor_update") == {rank: None if rank == 1 else 1 for rank in range(ranks)}
    assert entry_of(summary, "actor_update")["slowest"]["rank"] == 1
    assert entry_of(summary, "reference")["slowest"]["rank"] == 1
    assert waiting(summary, "reference") == dict.fromkeys(range(ranks))
    assert min(
        row["waits_for"]["ns"] for row in entry_of(summary, "actor_update")["ranks"] if row["waits_for"]
    ) > 15 * MS  # fmt: skip


def test_of_two_roles_with_the_same_ranks_and_stages_each_waits_for_its_own(tmp_path: Path) -> None:
    """Rank 1 of the other role was called the slowest, by the cause of this one's."""
    recorded(tmp_path / "run", stage_times(NOBODY, ranks=4, steps=30), role="large")
    run = recorded(tmp_path / "run", stage_times(INPUT, ranks=4, steps=30), role="small")
    update = entry_of(summarise_run(open_run(run)), "actor_update")

    waits = {(row["role"], row["waits_for"]["rank"]) for row in update["ranks"] if row["waits_for"]}
    slowest = update["slowest"]
    assert waits == {("small", 1)}
    assert (slowest["role"], slowest["rank"], slowest["cause"]) == ("small", 1, "reference")


def test_a_tired_reader_sees_the_cause_first_and_no_percentage_of_who_waits(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, ranks=2, steps=30))
    say(run, verdict())

    lines = printed(summarise_run(open_run(run))).splitlines()

    assert lines[0].startswith(
        "Verdict: rank 1 gets its input more slowly than the others in reference: without it a step takes"
    )
    update = next(at for at, line in enumerate(lines) if line.startswith("actor_update"))
    assert lines[update + 1].split()[:2] == ["rank", "1"]
    assert "rank 0 waits for rank 1" in lines[update + 2]
    assert lines[update + 2].split("%")[-1].split()[1] == "waits"
    reference = next(at for at, line in enumerate(lines) if line.startswith("reference"))
    assert "rank 1, the cause" in lines[reference + 1]


def test_behind_a_barrier_the_verdict_decides_where_all_take_equally_long(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, ranks=4, steps=30))
    say(run, verdict(kind="compute", rank=2, stage="actor_update", group=(0, 1, 2, 3), waits_for=""))

    summary = summarise_run(open_run(run))

    assert waiting(summary, "actor_update") == {0: 2, 1: 2, 2: None, 3: 2}
    assert entry_of(summary, "actor_update")["slowest"]["rank"] == 2
    assert entry_of(summary, "actor_update")["slowest"]["cause"] == "actor_update"


def test_who_is_not_of_the_group_of_a_verdict_waits_for_nobody(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, ranks=4, steps=30))
    say(run, verdict(kind="compute", rank=2, stage="actor_update", group=(2, 3), waits_for=""))

    assert waiting(summarise_run(open_run(run)), "actor_update") == {0: None, 1: None, 2: None, 3: 2}


@pytest.mark.parametrize("changes", [{"withdrawn": "it recovered"}, {"kind": "not_enough_evidence"}])
def test_what_blames_nobody_changes_no_row(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, ranks=4, steps=30))
    say(run, verdict(stage="actor_update", group=(), **changes))

    summary = summarise_run(open_run(run))

    assert waiting(summary, "actor_update") == dict.fromkeys(range(4))
    assert not any(row["is_cause"] for entry in summary["stages"] for row in entry["ranks"])


def test_in_a_healthy_run_nobody_is_said_to_wait_and_the_longest_is_slowest(tmp_path: Path) -> None:
    summary = summarise_run(open_run(recorded(tmp_path / "run", stage_times(NOBODY, ranks=4, steps=30))))

    for entry in summary["stages"]:
        assert waiting(summary, entry["stage"]) == dict.fromkeys(range(4))
        assert entry["slowest"]["rank"] == max(entry["ranks"], key=lambda row: row["step_ns"])["rank"]
        assert entry["slowest"]["cause"] is None


def test_of_many_ranks_those_that_are_not_listed_are_not_called_faster(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, ranks=12, steps=30))
    say(run, verdict(group=()))

    text = printed(summarise_run(open_run(run)), columns=80)

    assert "7 more wait for rank 1 (--all)" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_ranks_that_are_asked_for_wait_for_one_that_is_not(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(INPUT, ranks=4, steps=30))

    assert waiting(summarise_run(open_run(run), read_choice(ranks="2-3")), "actor_update") == {2: 1, 3: 1}


def test_the_json_has_verdicts_with_their_evidence_and_who_judged(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    say(run, verdict(), verdict(id="gone", withdrawn="it recovered"))

    summary = json.loads(json.dumps(summarise_run(open_run(run))))

    assert [said["id"] for said in summary["verdicts"]] == ["input-1"]
    assert summary["verdicts"][0]["evidence"] == {"late_ms": 20.1}
    assert summary["judged"]["by"] == "job"
