"""Ticks become CLOCK_MONOTONIC between anchors, and that one wall clock a group of processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from mstxkit.reading.align import Clock, anchor_of, keep_rising, wall_offset  # noqa: E402
from mstxkit.store.livefile import Anchor  # noqa: E402

TSC = 2
SECOND = 10**9


def anchors(*pairs: tuple[int, int], error_ns: int = 0) -> list[Anchor]:
    return [Anchor(ticks, ns, ns, error_ns) for ticks, ns in pairs]


def converted(clock: Clock, *ticks: int) -> list[int]:
    return clock.to_monotonic(np.array(ticks, dtype=np.int64)).tolist()  # type: ignore[no-any-return]


def test_between_anchors_time_is_linear_and_anchors_are_exact() -> None:
    clock = Clock(anchors((0, 0), (3 * SECOND, SECOND), (9 * SECOND, 2 * SECOND)), TSC, 3.0)

    assert converted(clock, 0, 3 * SECOND, 9 * SECOND) == [0, SECOND, 2 * SECOND]
    assert converted(clock, 1_500_000_000, 6 * SECOND) == [500_000_000, 1_500_000_000]


def test_outside_the_anchors_the_nearest_second_gives_the_rate() -> None:
    clock = Clock(anchors((0, 0), (2 * SECOND, SECOND), (5 * SECOND, 2 * SECOND)), TSC, 1.0)

    assert converted(clock, -2 * SECOND) == [-SECOND]
    assert converted(clock, 8 * SECOND) == [3 * SECOND]


def test_two_anchors_close_together_do_not_tilt_what_comes_after() -> None:
    """Their own error would: 100 ns over a millisecond is 100 µs over a second."""
    clock = Clock(anchors((0, 0), (SECOND, SECOND), (SECOND + 1_000_000, SECOND + 1_000_100)), TSC, 1.0)

    after = converted(clock, 2 * SECOND)[0]

    assert abs(after - 2 * SECOND) < 300


@pytest.mark.parametrize("held", [[], anchors((10, 100)), anchors((10, 100), (1_010, 1_700))])
def test_with_too_few_anchors_the_nominal_rate_holds(held: list[Anchor]) -> None:
    clock = Clock(held, TSC, 2.0)

    first, later = converted(clock, 10_000, 14_000)

    assert later - first == 2_000


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_rate_counts_as_one(rate: float) -> None:
    assert converted(Clock([], TSC, rate), 5) == [5]


def test_the_monotonic_clock_itself_is_taken_as_it_is() -> None:
    clock = Clock(anchors((0, 7), (10, 90)), 1, 1.0)

    assert converted(clock, 3, 1 << 61) == [3, 1 << 61]


@given(
    st.lists(st.tuples(st.integers(0, 1 << 55), st.integers(0, 1 << 55)), max_size=8),
    st.lists(st.integers(0, 1 << 55), min_size=2, max_size=20),
)
def test_time_never_runs_backwards(pairs: list[tuple[int, int]], ticks: list[int]) -> None:
    ns = converted(Clock(anchors(*pairs), TSC, 2.5), *sorted(ticks))

    assert ns == sorted(ns)


def test_contradicting_anchors_are_left_out() -> None:
    assert keep_rising(anchors((5, 50), (1, 10), (3, 60), (3, 70))) == anchors((1, 10), (3, 60))


def test_the_error_is_the_bracket_and_the_farthest_anchor_off_its_neighbours_line() -> None:
    assert Clock(anchors((0, 0), (10, 14), (20, 20), error_ns=3), TSC, 1.0).error_ns == 6 + 4
    assert Clock(anchors((0, 0), error_ns=3), TSC, 1.0).error_ns == 6
    assert Clock([], TSC, 1.0).error_ns is None


def test_the_offset_is_the_median_so_that_a_step_moves_nothing() -> None:
    held = [Anchor(t, t, t + offset, 0) for t, offset in enumerate((1000, 1001, 1002, 9_999_999))]

    assert wall_offset(held) == 1001
    assert wall_offset([]) == 0


@pytest.mark.parametrize("fields", [None, [], [1, 2, 3], [1, 2, 3, "x"], [1, 2, 3, -1], [1, 2, 3, 1 << 63], "abcd"])
def test_what_is_no_anchor_is_none(fields: object) -> None:
    assert anchor_of(fields) is None
