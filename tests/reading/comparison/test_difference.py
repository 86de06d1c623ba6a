"""By how much two series of times differ, how sure that is, and from when on."""

from __future__ import annotations

import pytest
from builders import soak

pytest.importorskip("numpy")

import numpy as np

from mstxkit.reading.comparison.difference import STEPS_NEEDED, find_onset, measure_difference


def heavy(seed: int, steps: int, tail: float = 0.1, alike: float = 0.0) -> np.ndarray:
    """Times about 1 s: noise that is like its neighbours, and a step in twenty that takes half as long again."""
    chance = np.random.default_rng(seed)
    noise = chance.normal(0, tail, steps)
    for at in range(1, steps):
        noise[at] = alike * noise[at - 1] + np.sqrt(1 - alike**2) * noise[at]
    return np.exp(noise) * np.where(chance.random(steps) < 0.05, 1.5, 1.0)


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_an_interval_holds_the_truth_about_as_often_as_it_says(alike: float) -> None:
    rounds = soak.rounds(2000, 400)
    held = 0
    for seed in range(rounds):
        found = measure_difference(heavy(seed, 60, alike=alike), 1.07 * heavy(10**6 + seed, 80, alike=alike))
        held += found is not None and found.low <= 0.07 <= found.high

    assert held / rounds > 0.90


def test_what_is_slower_is_said_with_both_medians_and_the_numbers_of_steps() -> None:
    found = measure_difference(heavy(1, 100), 1.2 * heavy(2, 50))

    assert found is not None and found.direction == 1
    assert found.ratio == pytest.approx(0.2, abs=0.06) and (found.steps_before, found.steps_after) == (100, 50)
    assert found.after / found.before == pytest.approx(1 + found.ratio)


def test_a_difference_that_matters_to_nobody_is_none_however_sure_it_is() -> None:
    found = measure_difference(np.full(1000, 1.0), np.full(1000, 1.004))

    assert found is not None and found.low > 0 and found.direction == 0


def test_of_too_few_steps_nothing_is_said() -> None:
    few = np.ones(STEPS_NEEDED - 1)

    assert measure_difference(few, np.ones(100)) is None and measure_difference(np.ones(100), few) is None
    assert measure_difference(np.array([np.nan] * 90 + [1.0] * 4 + [0.0, -1.0]), np.ones(100)) is None


def test_values_that_change_once_for_good_are_no_less_sure_than_others() -> None:
    after = np.concatenate([heavy(3, 20, 0.02), 1.5 * heavy(4, 40, 0.02)])

    found = measure_difference(heavy(5, 60, 0.02), after)

    assert found is not None and found.low > 0.4 and found.high < 0.6


@pytest.mark.parametrize(("since", "factor"), [(0, 1.3), (20, 1.3), (47, 0.7)])
def test_since_when_it_is_so_is_found(since: int, factor: float) -> None:
    after = heavy(6, 60, 0.03)
    after[since:] *= factor

    assert abs(find_onset(1.0, after, factor - 1) - since) <= 1


def test_steps_in_which_nothing_was_measured_are_passed_over() -> None:
    after = np.ones(40)
    after[20:] = 1.5
    after[::7] = np.nan

    assert find_onset(1.0, after, 0.5) == 20
