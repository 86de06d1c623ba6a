"""The offset of two clocks, found by ranges that both have."""

from __future__ import annotations

import random

import pytest
from builders import imported_run
from builders.device_profiles import MS

pytest.importorskip("numpy")

import numpy as np

from mstxkit.reading.importers import _clock_fit
from mstxkit.reading.importers._clock_fit import FEW_RANGES, RANGES, ClockFit
from mstxkit.reading.importers._trace import NamedStretches

HOUR = 3_600_000_000_000
Rows = list[tuple[str, int, int]]


def column(rows: Rows) -> NamedStretches:
    starts, ends = (np.array([row[at] for row in rows], dtype=np.int64) for at in (1, 2))
    return NamedStretches.of([name for name, _, _ in rows], np.arange(len(rows)), starts, ends)


def steps(count: int, seed: int = 1) -> Rows:
    """Two stages a step, of lengths as in life."""
    chance, at, rows = random.Random(seed), 1_790_000_000_000_000_000, []
    for _ in range(count):
        for name, length in (("reference", 20), ("actor_update", 60)):
            end = at + int(chance.gauss(length, length / 20) * MS)
            rows.append((name, at, end))
            at = end + int(chance.uniform(0, 1) * MS)
    return rows


def seen(rows: Rows, ahead_ns: int, drift: float = 0.0, noise_ns: int = 3_000, seed: int = 2) -> Rows:
    """The same ranges by a clock that is ahead by so much; each begin and end a little late, as by a call."""
    chance, first = random.Random(seed), rows[0][1]

    def moved(time: int) -> int:
        return time + ahead_ns + round((time - first) * drift) + chance.randrange(noise_ns + 1)

    return [(name, moved(start), max(moved(end), moved(start))) for name, start, end in rows]


def fitted(theirs: Rows, ours: Rows) -> ClockFit | None:
    return _clock_fit.fit_clocks(column(theirs), column(ours), 0)


def worst_ns(fit: ClockFit, theirs: Rows, ours: Rows) -> int:
    """How far the farthest begin is from where it should be."""
    begins = np.array([start for _, start, _ in ours], dtype=np.int64)
    expected = np.array([start for _, start, _ in theirs], dtype=np.int64)
    return int(np.abs(fit.to_theirs(begins) - expected).max())


@pytest.mark.parametrize("ahead_ns", [0, 40 * MS, -7 * MS, HOUR, -HOUR])
def test_the_offset_is_found_and_its_bound_holds(ahead_ns: int) -> None:
    ours = steps(50)
    theirs = seen(ours, ahead_ns)
    fit = fitted(theirs, ours)

    assert fit is not None
    assert (fit.how, fit.matches) == (RANGES, 100)
    assert abs(fit.offset_ns + ahead_ns) < 5_000
    assert worst_ns(fit, theirs, ours) <= fit.error_ns + 1 < 20_000


def test_a_window_in_a_long_run_is_found_where_it_is() -> None:
    ours = steps(2000)
    fit = fitted(seen(ours[1500:1510], HOUR), ours)

    assert fit is not None
    assert (fit.matches, fit.note) == (10, "")
    assert abs(fit.offset_ns + HOUR) < 5_000


def test_a_clock_that_drifts_is_followed() -> None:
    ours = steps(3000)
    theirs = seen(ours, 9 * MS, drift=40e-6)
    fit = fitted(theirs, ours)

    assert fit is not None
    assert fit.drift == pytest.approx(-40e-6, rel=0.01)
    assert worst_ns(fit, theirs, ours) <= fit.error_ns + 1 < 40_000


@pytest.mark.parametrize("seed", range(5))
def test_outliers_and_ranges_of_others_change_nothing(seed: int) -> None:
    chance, ours = random.Random(seed), steps(60)
    theirs = seen(ours, 5 * MS)
    for at in chance.sample(range(len(theirs)), 40):
        name, start, end = theirs[at]
        away = chance.randrange(-800 * MS, 800 * MS)
        theirs[at] = (name, start + away, end + away)
    theirs += [("of somebody else", start, end) for _, start, end in theirs]
    fit = fitted(theirs, ours)

    assert fit is not None
    assert abs(fit.offset_ns + 5 * MS) < 5_000
    assert fit.matches >= 80


def test_one_range_is_enough_where_it_is_the_only_one_but_says_so() -> None:
    ours = steps(1)[:1]
    fit = fitted(seen(ours, HOUR), ours)

    assert fit is not None
    assert (fit.how, fit.matches) == (FEW_RANGES, 1)
    assert abs(fit.offset_ns + HOUR) < 5_000
    assert "1 range alone" in fit.note


def test_one_range_that_fits_in_many_places_tells_nothing() -> None:
    ours: Rows = [("stage", at * 100 * MS, at * 100 * MS + 50 * MS) for at in range(1, 50)]

    assert fitted(seen(ours[7:8], HOUR), ours) is None


def test_steps_all_alike_go_by_the_nearest_place_and_say_so() -> None:
    ours: Rows = [("stage", at * 100 * MS, at * 100 * MS + 50 * MS) for at in range(1, 50)]
    fit = fitted(seen(ours[10:20], 2 * MS), ours)

    assert fit is not None
    assert abs(fit.offset_ns + 2 * MS) < 5_000
    assert "several places" in fit.note


def test_no_range_in_common_tells_nothing() -> None:
    assert fitted([("theirs", 0, 5 * MS)], steps(5)) is None
    assert fitted([], steps(5)) is None
    assert fitted(steps(5), []) is None


def test_ranges_of_other_lengths_are_others() -> None:
    ours = steps(20)
    theirs = [(name, start, end + 30 * MS) for name, start, end in ours]

    assert fitted(theirs, ours) is None


def test_many_ranges_are_thinned_not_refused() -> None:
    ours: Rows = []
    chance, at = random.Random(3), 1_790_000_000_000_000_000
    for _ in range(30_000):
        end = at + chance.randrange(MS, 3 * MS)
        ours.append(("op", at, end))
        at = end + chance.randrange(MS)
    fit = fitted(seen(ours[:5000], -HOUR), ours)

    assert fit is not None
    assert abs(fit.offset_ns - HOUR) < 5_000


def test_the_run_of_the_builder_is_as_it_says() -> None:
    assert imported_run.lengths(3) == [0, 100, 207]
