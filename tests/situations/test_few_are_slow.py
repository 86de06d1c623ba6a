"""Few of eight ranks take longer than the others, in every step or in some: these are named, not "a long tail".

A step takes 101 ms where nobody is slow: 60 ms alone, 40 ms together, one between.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Callable

import pytest
from builders.situations import OWN, said_of, trained, written

from mstxkit import open_run

STEPS = 100
LONGER, FAR = "longer than the others", "far longer now and then"
MoreMs = Callable[[int, int], float]  # of a step and a rank


def said_first(tmp_path: Path, more_ms: MoreMs, steps: int = STEPS) -> str:
    lives = trained(lambda step, rank: 60.0 + more_ms(step, rank), ranks=8, steps=range(steps))
    return said_of(written(tmp_path / "run", *lives)).first


@pytest.mark.parametrize(
    ("more_ms", "said", "takes_ms", "steps"),
    [
        (lambda step, rank: {2: 30.0, 3: 20.0}.get(rank, 0.0), f"ranks 2-3 take {LONGER}", 131, "steps 2 to 99"),
        (lambda step, rank: 30.0 * (rank == 1 + 4 * (step % 2)), f"ranks 1,5 take {LONGER}", 131, "steps 2 to 99"),
        (lambda step, rank: 30.0 * (rank >= 4), f"ranks 4-7 take {LONGER}", 131, "steps 2 to 99"),
        (lambda step, rank: 300.0 * (rank == 5 and step % 10 == 3), f"rank 5 takes {FAR}", 131, "10 of steps 2 to 99"),
        (lambda step, rank: 300.0 * (rank == 3 and step < 6), f"rank 3 takes {LONGER}", 401, "steps 2 to 5 (4 of 98)"),
        (lambda step, rank: 800.0 * (rank == 1 and step == 50), f"rank 1 takes {LONGER}", 901, "step 50 (1 of 98)"),
    ],
    ids=["two, one more than the other", "two in turn", "half of them", "one now and then", "one at first", "one once"],
)  # fmt: skip
def test_those_who_are_always_last_are_named_together_with_what_they_cost(
    tmp_path: Path, more_ms: MoreMs, said: str, takes_ms: float, steps: str
) -> None:
    words, cost = said_first(tmp_path, more_ms).split(": without it a step takes ")

    assert words == f"Verdict: {said} in {OWN}"
    check(cost, takes_ms, steps)


def check(cost: str, takes_ms: float, steps: str) -> None:
    """What is said that a step takes without and with it, and in which steps."""
    parts = re.fullmatch(r"(\d+) ms, not (\d+) ms: \d+ % less, in (.*)\.", cost)
    assert parts is not None, cost
    assert (int(parts[1]), int(parts[2])) == (
        pytest.approx(101, rel=0.02), pytest.approx(takes_ms, rel=0.03),
    )  # fmt: skip
    assert parts[3] == steps


@pytest.mark.parametrize(("slow", "who"), [((2, 3), "ranks 2-3"), ((2, 3, 6), "ranks 2-3,6")], ids=["two", "three"])
def test_those_who_are_done_at_once_are_named_and_none_of_them_is_blamed(
    tmp_path: Path, slow: tuple[int, ...], who: str
) -> None:
    """Nothing tells whether one keeps the others waiting, in a group that nobody has told of."""
    words, cost = said_first(tmp_path, lambda step, rank: 30.0 * (rank in slow)).split(": without it a step takes ")

    at_once = "and are done at once: one of them may keep the others waiting"
    assert words == f"Verdict: {who} take longer than the others in {OWN}, {at_once}"
    check(cost, 131, "steps 2 to 99")
    (verdict,) = open_run(tmp_path / "run").roles.by_judge.standing
    assert (verdict.kind, verdict.rank, verdict.group) == ("not_enough_evidence", None, slow)
    assert verdict.impact_ratio == pytest.approx(30 / 131, abs=0.02)
    assert verdict.next.startswith("capture(rings=True)")


def test_of_those_who_are_done_at_once_each_is_named_once_a_step_shows_that_none_waits(tmp_path: Path) -> None:
    """Rank 3 takes 30 ms more than the others, as rank 2, and from step 50 on 20 ms."""
    said_first(tmp_path, lambda step, rank: {2: 30.0, 3: 30.0 if step < 50 else 20.0}.get(rank, 0.0))

    by_judge = open_run(tmp_path / "run").roles.by_judge
    assert {(verdict.kind, verdict.rank) for verdict in by_judge.standing} == {("compute", 2), ("compute", 3)}
    assert [(gone.group, gone.withdrawn) for gone in by_judge.withdrawn] == [
        ((2, 3), "one of them is named, by another verdict")
    ]


def test_of_too_few_steps_to_judge_it_is_said_who_was_last_so_far(tmp_path: Path) -> None:
    too_few = "Verdict: too few steps to judge who makes others wait: 0 count, 20 are needed"
    slow = said_first(tmp_path, lambda step, rank: 30.0 * (rank == 3), steps=6)
    assert slow == f"{too_few}; so far rank 3 takes longer than the others in {OWN}."


def test_of_too_few_steps_in_which_nobody_is_slow_nobody_is_named(tmp_path: Path) -> None:
    said = said_first(tmp_path, lambda step, rank: 0.0, steps=6)
    assert said == "Verdict: too few steps to judge who makes others wait: 0 count, 20 are needed."


@pytest.mark.parametrize("seed", range(4))
def test_a_long_tail_of_all_is_no_few_ranks_slowness(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    more_ms = [[60.0 * chance.lognormvariate(0, 0.6) for _ in range(8)] for _ in range(STEPS)]
    said = said_first(tmp_path, lambda step, rank: more_ms[step][rank])
    assert said.startswith(f"Verdict: there is a long tail in {OWN}: all wait for the last of it: ")
