"""A block's ranges and marks as data, with a capture running and without."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Iterator

import pytest
from builders import lives

from mstxkit import at_step, capture, mark, mstx_range, mstx_timer, stage
from mstxkit.engine.choose import engine
from mstxkit.errors import CaptureError
from mstxkit.store import livefile
from mstxkit.testing import CapturedRange, FakeClock, captured, recording


@pytest.fixture
def same_clock_after() -> Iterator[None]:
    """A capture chooses its clock and leaves it."""
    kind = engine.clock_kind()
    yield
    engine.set_clock(kind)


def names(ranges: list[CapturedRange]) -> list[str]:
    return [found.name for found in ranges]


def test_ranges_come_in_the_order_of_their_ends_with_all_they_have() -> None:
    with FakeClock(start_ns=100) as clock, captured() as seen:
        with stage("rollout", prompts=4), at_step(7):
            with mstx_range("decode", domain="engine", greedy=True, ratio=0.5) as found:
                clock.advance(20)
                found.set(finish="length", other=object())

    decode, rollout = seen.ranges
    attributes = {"greedy": True, "ratio": 0.5, "finish": "length", "other": "object"}
    assert decode == CapturedRange(
        "decode", "engine", "rollout", False, 7, decode.track, 1, False, 100, 20, None, attributes
    )
    assert (rollout.stage, rollout.own_stage, rollout.depth, rollout.attributes) == ("rollout", True, 0, {"prompts": 4})


def test_marks_have_their_stage_and_attributes() -> None:
    with captured() as seen, stage("reward"):
        mark("late", domain="engine", rank=3)

    (found,) = seen.marks
    assert (found.message, found.domain, found.stage, found.attributes) == ("late", "engine", "reward", {"rank": 3})


def test_what_has_ended_can_be_read_inside_the_block_and_what_is_open_is_named() -> None:
    with captured() as seen:
        with stage("update"):
            with mstx_range("first"):
                pass
            inside, still_open = names(seen.ranges), [(found.name, found.own_stage) for found in seen.open]

    assert inside == ["first"]
    assert still_open == [("update", True)]
    assert seen.open == []


def test_ranges_outside_of_the_block_are_not_in_it() -> None:
    around = mstx_range("around")
    around.__enter__()
    with captured() as seen:
        around.__exit__(None, None, None)
        left = mstx_range("left open")
        left.__enter__()
    left.__exit__(None, None, None)
    with mstx_range("after"):
        pass

    assert seen.ranges == []
    assert [found.name for found in seen.open] == ["left open"]


def test_a_block_that_raises_keeps_what_it_saw() -> None:
    with pytest.raises(KeyError), captured() as seen:
        with mstx_range("before the error"):
            pass
        raise KeyError

    assert names(seen.ranges) == ["before the error"]


def test_blocks_can_be_nested_and_the_inner_one_sees_only_itself() -> None:
    with captured() as outer:
        with mstx_range("one"):
            pass
        with captured() as inner, mstx_range("two"):
            pass
        with mstx_range("three"):
            pass

    assert names(inner.ranges) == ["two"]
    assert names(outer.ranges) == ["one", "two", "three"]


def test_nothing_is_recorded_before_and_after_a_block() -> None:
    before = engine.recording()
    with captured():
        inside = engine.recording()

    assert (before, inside, engine.recording()) == (False, True, False)


def test_a_driven_coroutine_has_the_time_really_spent_inside() -> None:
    @mstx_timer
    async def waits(clock: FakeClock) -> None:
        clock.advance(5)
        await asyncio.sleep(0)
        clock.advance(6)

    async def with_a_pause(clock: FakeClock) -> None:
        task = asyncio.ensure_future(waits(clock))
        await asyncio.sleep(0)
        clock.advance(100)
        await task

    with FakeClock() as clock, captured() as seen:
        asyncio.run(with_a_pause(clock))

    (found,) = seen.ranges
    assert (found.duration_ns, found.busy_ns, found.attributes) == (111, 11, {})


def test_a_block_of_several_banks_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    use_layout(monkeypatch, banks=8)

    with captured() as seen:
        for number in range(800):
            with mstx_range("x", number=number):
                pass

    assert [found.attributes["number"] for found in seen.ranges] == list(range(800))


def test_a_block_too_large_for_its_memory_says_so_rather_than_lose_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    use_layout(monkeypatch, banks=2)

    with pytest.raises(CaptureError, match="lost ranges"), captured():
        for _ in range(2000):
            with mstx_range("x"):
                pass

    assert not engine.recording()


def test_the_error_of_a_too_large_block_does_not_hide_the_one_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    use_layout(monkeypatch, banks=2)

    with pytest.raises(KeyError), captured():
        for _ in range(2000):
            with mstx_range("x"):
                pass
        raise KeyError


def test_under_a_running_capture_its_own_recorder_is_read(tmp_path: Any, same_clock_after: None) -> None:
    with capture(tmp_path / "run"):
        with mstx_range("earlier"):
            pass
        with captured() as seen, mstx_range("inside"):
            pass
        recording = engine.recording()

    assert names(seen.ranges) == ["inside"]
    assert recording


def test_what_a_running_capture_seals_in_between_is_still_seen(tmp_path: Any, same_clock_after: None) -> None:
    with capture(tmp_path / "run") as running, captured() as seen:
        for number in range(2):
            with mstx_range("x", number=number):
                pass
            engine.rotate()
            wait_until_sealed()

    assert [found.attributes["number"] for found in seen.ranges] == [0, 1]
    assert running.run is not None


def test_more_than_the_memory_of_a_running_capture_is_an_error(tmp_path: Any, same_clock_after: None) -> None:
    with capture(tmp_path / "run", bank_bytes=65_536, banks=3):
        with pytest.raises(CaptureError, match="overwritten"), captured():
            for _ in range(4):
                with mstx_range("x"):
                    pass
                engine.rotate()
                wait_until_sealed()


def test_with_mstxkit_off_a_block_says_why_it_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_OFF", "1")

    with pytest.raises(CaptureError, match="MSTXKIT_OFF"), captured():
        pass


def test_neither_numpy_nor_polars_is_loaded() -> None:
    captures = """
        from mstxkit import mstx_range
        from mstxkit.testing import captured
        with captured() as seen, mstx_range("x"):
            pass
        assert len(seen.ranges) == 1
    """

    assert not lives.loads(captures, of="numpy polars torch wrapt")


def wait_until_sealed() -> None:
    deadline = time.monotonic() + 30
    while engine.full_bank() >= 0:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def use_layout(monkeypatch: pytest.MonkeyPatch, banks: int) -> None:
    """Small banks: 8 KiB each."""
    layout = livefile.Layout(slot_count=64, bank_count=banks, bank_bytes=8192)
    monkeypatch.setattr(recording, "_LAYOUT", layout)
