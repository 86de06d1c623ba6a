"""Who hands on to whom, seen in when members are done: of those that do, and of those that never meet."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from mstxkit.judging.in_a_row import RowOrder  # noqa: E402

STEPS, SEEDS = 40, 60


@pytest.mark.parametrize("members", [3, 4])
def test_who_runs_ahead_of_a_slow_one_without_ever_waiting_hands_nothing_on(members: int) -> None:
    """Each step takes 60 ms, of the last one 84: they drift apart. A fifth of such threes were taken for a row."""
    taken = [seed for seed in range(SEEDS) if _is_row(_free(members, np.random.default_rng(seed)))]

    assert taken == []


@pytest.mark.parametrize("members", [3, 4])
def test_who_is_let_go_in_turn_and_takes_as_long_each_time_hands_nothing_on(members: int) -> None:
    """Rollouts of 45 ms, which a queue lets begin one after another: healthy ones were blamed in two of three jobs."""
    taken = [seed for seed in range(SEEDS) if _is_row(_let_go_in_turn(members, np.random.default_rng(seed)))]

    assert taken == []


@pytest.mark.parametrize("members", [3, 4, 8])
def test_who_waits_for_the_one_before_is_in_a_row(members: int) -> None:
    missed = [seed for seed in range(SEEDS) if not _is_row(_handed_on(members, np.random.default_rng(seed)))]

    assert missed == []


def _is_row(steps: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    order = RowOrder()
    return any(order.learn(0, came_s, done_s, 0.06) for came_s, done_s in steps)


def _free(members: int, chance: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """(when each came, when each was done) of each step."""
    usual_s = np.where(np.arange(members) == members - 1, 0.084, 0.06)
    done_s = np.cumsum(usual_s * chance.normal(1, 0.02, (STEPS, members)), axis=0)
    return list(zip(np.vstack([np.zeros(members), done_s[:-1]]), done_s))


def _handed_on(members: int, chance: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first one's 30 ms vary more than what the others do after it, 5 ms each."""
    after_s = np.cumsum(np.full(members, 0.005) * chance.normal(1, 0.1, (STEPS, members)), axis=1)
    done_s = 0.03 * chance.normal(1, 0.1, (STEPS, 1)) + after_s
    return [(np.zeros(members), one_s) for one_s in done_s]


def _let_go_in_turn(members: int, chance: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each begins some 5 ms after the one before, when whoever empties the queue gets to it; each takes 45 ms."""
    apart_s = np.cumsum(np.full(members, 0.005) * chance.normal(1, 0.1, (STEPS, members)), axis=1)
    came_s = 0.01 * chance.normal(1, 0.3, (STEPS, 1)) + apart_s
    return list(zip(came_s, came_s + 0.045 * chance.normal(1, 0.002, (STEPS, members))))
