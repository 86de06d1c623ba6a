"""The fake clock stands still until it is moved, and the real one comes back."""

from __future__ import annotations

import pytest

from mstxkit import mark, mstx_range
from mstxkit.engine.choose import engine
from mstxkit.errors import CaptureError
from mstxkit.testing import FakeClock, captured


def test_a_range_takes_the_time_by_which_the_clock_was_moved() -> None:
    with FakeClock(start_ns=500) as clock, captured() as seen:
        with mstx_range("outer"):
            clock.advance(30)
            with mstx_range("inner"):
                clock.advance(7)
            mark("instant")

    inner, outer = seen.ranges
    assert (inner.start_ns, inner.duration_ns) == (530, 7)
    assert (outer.start_ns, outer.duration_ns) == (500, 37)
    assert seen.marks[0].time_ns == 537


def test_the_clock_can_be_read() -> None:
    with FakeClock(start_ns=1) as clock:
        clock.advance(9)

        assert clock.now_ns == engine.now() == 10


def test_the_clock_before_comes_back_also_after_an_error() -> None:
    before = engine.clock_kind()

    with pytest.raises(KeyError), FakeClock():
        raise KeyError

    assert engine.clock_kind() == before


def test_a_clock_cannot_be_faked_under_a_running_recorder() -> None:
    with captured(), pytest.raises(CaptureError, match="enter FakeClock"):
        FakeClock().__enter__()


def test_two_fake_clocks_do_not_lose_the_real_one() -> None:
    before = engine.clock_kind()

    with FakeClock(start_ns=5), FakeClock(start_ns=9):
        pass

    assert engine.clock_kind() == before
