"""The report holds every stage of every rank, what killed processes were inside of, what was lost; all escaped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.run_files import BankFiles, ProcessFiles

pytest.importorskip("numpy")
pytest.importorskip("polars")
pytest.importorskip("rich")

from builders.shown_report import printed

from mstxkit.reading.page import sections
from mstxkit.reading.report.choice import read_choice
from mstxkit.reading.report.summary import is_something_wrong, summarise_run
from mstxkit.reading.run import open_run

MILLISECOND = 1_000_000


def bank_of(*milliseconds: int) -> BankFiles:
    bank, at = BankFiles(), 0
    for step, length in enumerate(milliseconds):
        bank.range("gen", at, at + length * MILLISECOND, stage="gen", own=True, step=step)
        at += (length + 1) * MILLISECOND
    return bank


def test_a_stage_has_its_ranks_the_slowest_a_step_first(run: Path) -> None:
    for rank, lengths in enumerate([(10, 20), (10, 20), (40, 50)]):
        ProcessFiles(run, 100 + rank, rank=rank).seal(bank_of(*lengths))

    (stage,) = summarise_run(open_run(run))["stages"]

    assert (stage["stage"], stage["count"], stage["total_ns"]) == ("gen", 6, 150 * MILLISECOND)
    assert [(row["rank"], row["count"]) for row in stage["ranks"]] == [(2, 2), (0, 2), (1, 2)]
    assert (stage["slowest"]["rank"], stage["slowest"]["step_ns"]) == (2, 45.0 * MILLISECOND)
    assert stage["slowest"]["middle_ns"] == stage["middle"]["step_ns"] == 15.0 * MILLISECOND


def test_a_trainer_and_its_data_loader_workers_have_rows_of_their_own(run: Path) -> None:
    ProcessFiles(run, 100, part="trainer").seal(bank_of(1))
    for worker in range(2):
        ProcessFiles(run, 101 + worker, part=f"dataloader {worker}", under="dataloader").seal(bank_of(5 + worker))

    lines = [line for line in printed(summarise_run(open_run(run))).splitlines() if line.startswith("  rank")]

    assert [line.strip().partition("  ")[0] for line in lines] == [
        "rank 0 dataloader 1", "rank 0 dataloader 0", "rank 0",
    ]  # fmt: skip
    assert "+20 %" in lines[0]


def test_one_rank_alone_is_not_the_slowest(run: Path) -> None:
    ProcessFiles(run).seal(bank_of(1))

    assert summarise_run(open_run(run))["stages"][0]["slowest"] is None


def test_a_single_step_can_be_asked_for(run: Path) -> None:
    ProcessFiles(run).seal(bank_of(1, 2, 3))

    summary = summarise_run(open_run(run), read_choice(steps="1"))

    assert (summary["first_step"], summary["last_step"]) == (0, 2)
    assert summary["stages"][0]["total_ns"] == 2 * MILLISECOND


def test_a_clean_run_is_not_wrong_but_a_kill_a_drop_or_damage_is(run: Path) -> None:
    process = ProcessFiles(run, 41)
    process.seal(bank_of(1))
    assert not is_something_wrong(summarise_run(open_run(run)))

    ProcessFiles(run, 42).seal(inside=[{"name": "x", "domain": "d", "start": 5}], ended="killed")
    assert is_something_wrong(summarise_run(open_run(run)))

    for file in (run / "sealed").iterdir():
        file.unlink()
    process.counters["dropped"] = 1
    process.seal()
    assert is_something_wrong(summarise_run(open_run(run)))

    process.counters["dropped"] = 0
    process.seal(ended=None).write_bytes(b"")
    assert is_something_wrong(summarise_run(open_run(run)))


def test_the_summary_is_json(run: Path) -> None:
    ProcessFiles(run).seal(bank_of(1), inside=[{"name": "x", "domain": "d", "start": 5}], ended="killed")

    assert (
        json.loads(json.dumps(summarise_run(open_run(run))))["endings"][0]["processes"][0]["inside"][0]["name"] == "x"
    )


def test_the_text_names_inside_what_a_process_died(run: Path) -> None:
    fields = {"name": "all_reduce", "domain": "comm", "stage": "gen", "step": 7, "track": 0, "depth": 1}
    ProcessFiles(run, 4711, rank=3, role="actor", host="h").seal(inside=[{**fields, "start": 0}], ended="killed")

    text = " ".join(printed(summarise_run(open_run(run))).split())

    assert text.startswith("Verdict: rank 3 actor was killed in all_reduce of gen, in step 7: the job ended with it.")
    assert "why pid 4711 on h, entered" in text


def test_all_that_left_alike_are_one_line_and_nothing_is_wrong(run: Path) -> None:
    fields = {"name": "all_reduce", "domain": "comm", "stage": "gen", "step": 7, "track": 0, "depth": 1, "start": 0}
    for rank in range(12):
        ProcessFiles(run, 100 + rank, rank=rank).seal(inside=[fields] if rank == 3 else None, ended="killed")
    summary = summarise_run(open_run(run))
    text = " ".join(printed(summary).split())

    assert not is_something_wrong(summary)
    assert "12 processes (12 left)" in text
    assert "12 left with the job: rank 0, rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, 4 more" in text
    assert "open: rank 3 in all_reduce of comm, stage gen, step 7" in text


def test_who_was_gone_first_comes_first_inside_of_a_range_or_not(run: Path) -> None:
    for pid, last_s, inside in ((101, 20, None), (102, 30, [{"name": "b"}]), (103, 25, [{"name": "a"}])):
        process = ProcessFiles(run, pid, rank=pid)
        process.heartbeat_ns = last_s * 1_000_000_000
        process.seal(inside=inside, ended="killed")
    alive = ProcessFiles(run, 104, rank=104)
    alive.heartbeat_ns = 90_000_000_000
    alive.seal()

    summary = summarise_run(open_run(run))

    assert [matter["words"][:19] for matter in summary["matters"]] == [
        "rank 101 was killed", "rank 103 was killed", "rank 102 was killed",
    ]  # fmt: skip
    assert {process["rank"] for ending in summary["endings"] for process in ending["processes"]} == {101, 102, 103}


def test_losses_are_named(run: Path) -> None:
    process = ProcessFiles(run)
    process.counters.update(dropped=12, names_capped=3)
    process.seal()

    assert "12 records dropped, 3 ranges given the catch-all name" in printed(summarise_run(open_run(run)))


def test_who_makes_too_many_names_is_named(run: Path) -> None:
    for pid, marks in ((1, [("(too many names)", {"module": "train.rollout", "names": 59_000})]), (2, [])):
        process, bank = ProcessFiles(run, pid, rank=pid), bank_of(1)
        for message, attributes in marks:
            bank.mark(message, 0, **attributes)
        process.counters.update(names_capped=3)
        process.seal(bank)
    summary = summarise_run(open_run(run))

    said = " ".join(printed(summary, columns=300).split())
    assert [row["names_by"] for row in summary["losses"]] == ["train.rollout", None]
    assert "name (too many names, made most by module train.rollout; what differs from call to call" in said
    assert "name (too many names, what differs from call to call belongs into attributes)" in said


def test_many_ranks_are_cut_to_the_slowest_unless_all_are_asked_for(run: Path) -> None:
    for rank in range(20):
        ProcessFiles(run, 100 + rank, rank=rank).seal(bank_of(rank + 1))
    summary = summarise_run(open_run(run))

    texts = printed(summary), printed(summary, everything=True)
    few, every = (text[text.index("slowest first") :] for text in texts)

    assert "… 15 faster (--all)" in few
    assert len(every.splitlines()) - len(few.splitlines()) == 14


def test_names_with_control_characters_and_markup_are_shown_not_obeyed(run: Path) -> None:
    evil = "[red]\x1b]0;x\x07[/]"
    bank = BankFiles().range(evil, 0, 1, stage=evil, own=True)
    inside = [{"name": evil, "domain": evil, "stage": evil, "start": 0}]
    ProcessFiles(run, role=evil).seal(bank, inside=inside, ended="killed")
    (run / "sealed" / "\x1b[2J.mxs").write_bytes(b"")

    text = printed(summarise_run(open_run(run)), columns=200)

    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("[red]\\x1b]0;x\\x07[/]") >= 4
    assert "\\x1b[2J.mxs" in text


def test_coalesced_ranges_are_named_with_their_calls(run: Path) -> None:
    bank = BankFiles()
    for calls in (30, 12):
        bank.range("poll", 0, 10, busy=5, coalesced=calls, total_ns=5, max_ns=1)
    bank.range("swap", 0, 10, busy=5, coalesced=7, total_ns=5, max_ns=1)
    bank.range("of the user", 0, 10, coalesced=99)
    process = ProcessFiles(run)
    process.counters["coalesced"] = 49
    process.seal(bank)

    summary = summarise_run(open_run(run))

    assert summary["coalesced"] == [
        {"name": "poll", "calls": 42, "records": 2}, {"name": "swap", "calls": 7, "records": 1},
    ]  # fmt: skip
    assert "coalesced: poll (42 calls in 2 records), swap (7 calls in 1 records)" in printed(summary, columns=200)
    assert "49 calls coalesced" in printed(summary, columns=200)


def test_where_nothing_was_coalesced_nothing_is_said_of_it(run: Path) -> None:
    ProcessFiles(run).seal(bank_of(1))

    summary = summarise_run(open_run(run))

    assert summary["coalesced"] == []
    assert "coalesced" not in printed(summary)


@pytest.mark.parametrize(
    ("sizes", "missing"), [((5, 5, None), "2,4"), ((3, 3, 3), "2"), ((2, 2, 2), ""), ((4, 8, 8), ""), ((None,) * 3, "")]
)
def test_ranks_of_which_nothing_is_here_are_named_where_all_say_how_many_there_are(
    run: Path, sizes: tuple[int | None, ...], missing: str
) -> None:
    """As where files of a host were not copied. A process without a rank is none of them."""
    for rank, size in zip((0, 1, 3), sizes):
        ProcessFiles(run, 100 + rank, rank=rank, world_size=size).seal(bank_of(10))
    ProcessFiles(run, 200, rank=None, world_size=9).seal(bank_of(10))
    summary = summarise_run(open_run(run))

    assert summary["missing_ranks"] == missing
    assert (f"nothing is here: {missing};" in printed(summary)) == bool(missing)
    assert (f"nothing is here: {missing};" in sections.show_health(summary, {})) == bool(missing)
    assert not is_something_wrong(summary)
