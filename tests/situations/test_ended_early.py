"""One of three ranks has no more data and ends in order; the others wait for it in the next step, and raise."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.situations import Life, S, Said, called, left, said_of, trained, written


def _raised(life: Life) -> Life:
    return life.ending(end={"error": "RuntimeError"})


def test_who_left_before_the_others_is_said_before_what_these_raised(tmp_path: Path) -> None:
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
