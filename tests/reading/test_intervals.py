"""Stretches of time against counting every nanosecond of them."""

from __future__ import annotations

import random

import pytest

np = pytest.importorskip("numpy")

from mstxkit.reading import intervals  # noqa: E402
from mstxkit.reading.intervals import Intervals  # noqa: E402

END = 40


def covered(stretches: Intervals) -> set[int]:
    return {ns for start, end in zip(*stretches) for ns in range(start, end)}


def some(rng: random.Random) -> tuple[Intervals, set[int]]:
    starts = [rng.randrange(END) for _ in range(rng.randrange(6))]
    ends = [min(start + rng.randrange(9), END) for start in starts]
    return intervals.join_stretches(starts, ends), {ns for start, end in zip(starts, ends) for ns in range(start, end)}


@pytest.mark.parametrize("seed", range(200))
def test_union_cut_and_rest_are_those_of_sets(seed: int) -> None:
    rng = random.Random(seed)
    (one, of_one), (other, of_other) = some(rng), some(rng)

    assert covered(one) == of_one and one.total_ns == len(of_one)
    assert all(end < start for end, start in zip(one.ends, one.starts[1:]))
    assert covered(one.cut(other)) == of_one & of_other
    assert covered(one.without(other)) == of_one - of_other


@pytest.mark.parametrize("seed", range(200))
def test_what_is_inside_of_a_stretch_and_how_far_it_reaches(seed: int) -> None:
    """Stretches that are asked about may overlap, as the waits of two steps do."""
    rng = random.Random(seed)
    stretches, theirs = some(rng)
    starts = np.array([rng.randrange(END) for _ in range(5)])
    ends = starts + np.array([rng.randrange(1, 12) for _ in range(5)])

    inside, (first, last) = stretches.inside(starts, ends), stretches.reach(starts, ends)

    for place, (start, end) in enumerate(zip(starts, ends)):
        shared = theirs & set(range(start, end))
        assert inside[place] == len(shared)
        assert (first[place], last[place]) == ((min(shared), max(shared) + 1) if shared else (start, start))
