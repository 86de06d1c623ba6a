"""Clock, anchors and heartbeat of both engines."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from builders.fresh_engine import run_fresh
from builders.waiting import until
from builders.written_banks import MONOTONIC, NONCE, Written

from mstxkit.store import livefile


def test_the_clock_is_monotonic_until_another_is_chosen(engine: Any) -> None:
    before = time.monotonic_ns()
    now = engine.now()
    after = time.monotonic_ns()

    assert engine.clock_kind() == MONOTONIC
    assert before <= now <= after
    assert engine.ticks_per_ns() == 1.0


def test_the_fake_clock_stands_still_until_it_is_set(engine: Any) -> None:
    engine.set_clock(4)
    engine.set_fake_ticks(123)
    first = engine.now()
    engine.set_fake_ticks(1 << 60)

    assert (first, engine.now(), engine.clock_kind()) == (123, 1 << 60, 4)


@pytest.mark.parametrize("kind", [0, 5, 99])
def test_a_clock_that_is_not_there_is_refused(engine: Any, kind: int) -> None:
    with pytest.raises(ValueError):
        engine.set_clock(kind)
    assert engine.clock_kind() == MONOTONIC


@pytest.mark.parametrize("kind", [2, 3])
def test_python_has_no_cycle_counter(kind: int) -> None:
    from mstxkit.engine.twin import hot

    with pytest.raises(ValueError, match="not one of the Python engine"):
        hot.set_clock(kind)


def test_a_heartbeat_of_python_that_hangs_in_a_finalizer_of_the_program_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mstxkit.engine.twin import banks

    hung = threading.Event()
    monkeypatch.setattr(banks, "_keep_beating", lambda *_: hung.wait(60))
    monkeypatch.setattr(banks, "_ENDS_WITHIN_S", 0.01)
    monkeypatch.setattr(banks, "live", SimpleNamespace(view=memoryview(b"")))
    banks.start_heartbeat(1.0)
    assert banks.beat is not None
    thread = banks.beat[0]
    was_there, goes_on = banks.stop_heartbeat(), thread.is_alive()
    hung.set()
    thread.join(60)

    assert (was_there, goes_on, thread.is_alive()) == (True, True, False)


def test_the_clock_stays_while_a_file_is_attached(engine: Any, recorded: Written) -> None:
    with pytest.raises(ValueError, match="attached"):
        engine.set_clock(MONOTONIC)
    assert engine.clock_kind() == 4


def test_ranges_on_the_real_clock_have_its_times(engine: Any) -> None:
    written = Written(engine)
    for _ in range(3):
        before = time.monotonic_ns()
        with engine.mstx_range("x"):
            pass
        after = time.monotonic_ns()

    last = written.ranges[-1]
    assert before <= last.start <= last.start + last.duration <= after


def test_an_anchor_is_one_instant_on_all_clocks(engine: Any) -> None:
    written = Written(engine)
    before = time.monotonic_ns(), time.time_ns()
    for _ in range(3):
        engine.anchor()
    after = time.monotonic_ns(), time.time_ns()

    anchors = livefile.read_anchors(written.view)
    assert len(anchors) == 3
    for anchor in anchors:
        assert before[0] <= anchor.ticks <= after[0]
        assert anchor.ticks == anchor.monotonic_ns
        assert before[1] <= anchor.realtime_ns <= after[1]
        assert anchor.error_ns <= after[0] - before[0]


def test_detached_an_anchor_is_nothing(engine: Any) -> None:
    before = engine.counters(), threading.active_count()
    engine.anchor()
    engine.start_heartbeat(0.01)

    assert (engine.counters(), threading.active_count()) == before


def test_the_heartbeat_keeps_the_header_alive_until_it_is_stopped(engine: Any) -> None:
    written = Written(engine)
    engine.start_heartbeat(0.001)
    first = until(lambda: livefile.heartbeat_ns(written.view))
    until(lambda: livefile.heartbeat_ns(written.view) > first)
    until(lambda: len(livefile.read_anchors(written.view)) >= 2)
    engine.stop_heartbeat()
    last = livefile.heartbeat_ns(written.view)

    assert first <= last <= time.monotonic_ns()
    assert not any("heartbeat" in thread.name for thread in threading.enumerate())


def test_a_heartbeat_starts_once_and_ends_with_detach(engine: Any) -> None:
    before = threading.active_count()
    written = Written(engine)
    for _ in range(3):
        engine.start_heartbeat(0.001)
    until(lambda: livefile.heartbeat_ns(written.view))
    engine.detach()

    assert threading.active_count() == before
    engine.attach(written.view, NONCE)
    engine.start_heartbeat(60)
    engine.stop_heartbeat()
    engine.stop_heartbeat()


def test_a_program_that_freezes_time_freezes_its_own_only(engine: Any) -> None:
    """As freezegun does it: what is a function of `time` is replaced in all modules that hold it."""
    found = run_fresh(
        engine,
        """
        import time

        engine.set_clock(1)
        view = memoryview(bytearray(livefile.Layout(8, 2, 4096).total_bytes))
        livefile.lay_out(view, livefile.Layout(8, 2, 4096), 1, engine.NATIVE)
        real = [time.time, time.clock_gettime_ns]
        names = ["time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"]
        frozen = {id(getattr(time, name)): name for name in names}
        for module in list(sys.modules.values()):
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in frozen:
                    setattr(module, key, lambda: 1)
        engine.attach(view, 1)
        before = engine.now()
        while real[1](time.CLOCK_MONOTONIC) - before < 1_000_000:
            pass
        engine.anchor()
        (anchor,) = livefile.read_anchors(view)
        result = engine.now() - before >= 1_000_000, abs(anchor.realtime_ns * 1e-9 - real[0]()) < 60
        """,
    )

    assert found == [True, True]
