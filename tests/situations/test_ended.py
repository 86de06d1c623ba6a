"""Ranks, or a host of them, that end before the job has: who was the first is said first, and what became of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.run_files import WALL_OFFSET_NS
from builders.situations import STEPS, Life, S, Said, called, left, said_of, seen, trained, written

INCIDENT = "cat RUN/incidents/20231114T221325.000/incident.txt"


def test_who_was_killed_is_said_first_and_where_it_was(tmp_path: Path) -> None:
    """The other one goes on for a while."""
    survivor, _ = trained()
    _, victim = trained(steps=range(31))
    run = written(tmp_path / "run", survivor, victim.inside_of(31))

    assert said_of(run) == Said(
        "Verdict: rank 1 was killed in actor_update, in step 31: the job ended 4.11 s later.",
        next="mstxkit status RUN", codes=(1, 1), kind="killed", blames=True,
    )  # fmt: skip
    picture = called("top", str(run)).output.splitlines()  # of a job that nobody judged
    assert "the job is over" in picture[0] and "! rank 1 was killed in actor_update, in step 31" in picture


def test_who_raised_and_what_is_said_first(tmp_path: Path) -> None:
    survivor, _ = trained()
    _, raised = trained(steps=range(31))
    run = written(tmp_path / "run", survivor, raised.ending(end={"error": "ValueError"}))

    assert said_of(run) == Said(
        "Verdict: rank 1 raised what nobody caught (ValueError): the job ended 4.11 s later.",
        next="mstxkit status RUN", codes=(1, 1), kind="exception", blames=True,
    )  # fmt: skip


def test_who_is_killed_as_memory_runs_out_is_said_to_be_whatever_the_signal(tmp_path: Path) -> None:
    survivor, _ = trained()
    _, victim = trained(steps=range(31))
    run = written(tmp_path / "run", survivor, victim.inside_of(31).ending(host="node1"))
    details = {"signal": 9, "oom_kills": 1, "process": "node1-4712-5eed"}
    left(run, "killed", victim.end_ns, details=details)

    assert said_of(run) == Said(
        "Verdict: rank 1 was killed by SIGKILL as memory ran out in forward_backward of actor_update: the "
        "job ended 4.11 s later.",
        next=INCIDENT, codes=(1, 1), kind="out_of_memory", blames=True,
    )  # fmt: skip


def test_who_hung_where_and_for_how_long_is_said_and_next_is_its_page(tmp_path: Path) -> None:
    """Somebody ends the job after 40 s."""
    lives = trained(steps=range(31))
    run = written(tmp_path / "run", *(life.inside_of(31) for life in lives))
    begin_ns = lives[0].end_ns
    left(run, "hang", begin_ns + 40 * S, since_ns=WALL_OFFSET_NS + begin_ns, reason="it waits for a lock")

    assert said_of(run) == Said(
        "Verdict: rank 1 hung in forward_backward of actor_update for 40 s: nothing went on.",
        next=INCIDENT, codes=(1, 1), kind="hang", blames=True,
    )  # fmt: skip


def test_a_host_that_is_gone_is_named_and_not_its_ranks_one_by_one(tmp_path: Path) -> None:
    """It says nothing any more, while the other one does."""
    lives = [life.ending(host="node1") for life in trained(ranks=4)[:2]]
    lost = [life.ending(host="node2", ended=None) for life in trained(ranks=4, steps=range(31))[2:]]
    run = written(tmp_path / "run", *lives, *lost)
    seen(run, "node1", 300 * S)
    seen(run, "node2", 0)

    assert said_of(run) == Said(
        "Verdict: host node2 is gone, with rank 2, rank 3: the job ended 4.12 s later.",
        next="mstxkit status RUN", codes=(1, 1), kind="host_gone", blames=True,
    )  # fmt: skip


def test_how_it_is_now_comes_before_how_an_earlier_attempt_ended(tmp_path: Path) -> None:
    """A rank was killed; the job was started again, and has ended well."""
    before, after = trained(steps=range(20)), trained(steps=range(20, STEPS), begin_ns=20 * S)
    again = [life.ending(pid=5000 + at) for at, life in enumerate(after)]
    run = written(tmp_path / "run", *(life.inside_of(20) for life in before), *again)

    assert said_of(run) == Said(
        "Verdict: healthy: nothing above 1 % of a step; no rank was seen to make others wait in the 44 "
        "steps that were judged.",
        next="", codes=(1, 0), kind="healthy", blames=False,
    )  # fmt: skip


def _raised(life: Life) -> Life:
    return life.ending(end={"error": "RuntimeError"})


def test_who_left_before_the_others_is_said_before_what_these_raised(tmp_path: Path) -> None:
    """It has no more data and ends in order; the others wait for it in the next step, and raise."""
    (first, second, _), (_, _, early) = trained(ranks=3, steps=range(42)), trained(ranks=3, steps=range(41))
    run = written(tmp_path / "run", _raised(first), _raised(second), early)

    assert said_of(run) == Said(
        "Verdict: rank 2 ended in order after step 40, while the others went on to step 41: the job ended with it.",
        next="mstxkit status RUN", codes=(1, 1), kind="ended_early", blames=True,
    )  # fmt: skip


def test_who_left_before_the_others_is_said_before_that_these_hang(tmp_path: Path) -> None:
    first, second, early = trained(ranks=3, steps=range(41))
    run = written(tmp_path / "run", first.inside_of(41), second.inside_of(41), early)
    left(run, "hang", first.end_ns + 40 * S, details={"how": "left", "who": "rank 2"})

    assert said_of(run).first == (
        "Verdict: rank 2 ended in order after step 40, while the others went on to step 41: nothing went on."
    )
    assert "also: rank 2 has ended in order, and others wait for it" in called("report", str(run)).output


def test_who_left_while_the_others_went_on_for_long_is_not_what_these_died_of(tmp_path: Path) -> None:
    longer, shorter = trained(ranks=3, steps=range(60)), trained(ranks=3, steps=range(41))
    run = written(tmp_path / "run", longer[0], _raised(longer[1]), shorter[2])

    assert said_of(run).first.startswith("Verdict: rank 1 raised what nobody caught (RuntimeError)")


@pytest.mark.parametrize("early", [0, 2])
def test_where_nobody_or_most_have_ended_who_raised_is_said_first(tmp_path: Path, early: int) -> None:
    """Most have ended after the last step, and one does more alone: nobody left before the others."""
    longer, shorter = trained(ranks=3, steps=range(42)), trained(ranks=3, steps=range(41))
    run = written(tmp_path / "run", *shorter[:early], *longer[early:2], _raised(longer[2]))

    assert said_of(run).first.startswith("Verdict: rank 2 raised what nobody caught (RuntimeError)")
