"""The sealer: full banks become blocks, and old ones too; it ends for a fork and starts again, and knows who the
process is.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
from builders import lives
from builders.threads import on_threads

import mstxkit
from mstxkit import faults
from mstxkit.engine.choose import engine
from mstxkit.errors import CaptureError
from mstxkit.host import identity
from mstxkit.recorder import current, sealer
from mstxkit.store import livefile, segment


def record(count: int) -> None:
    for _ in range(count):
        with mstxkit.mstx_range("x"):
            pass


def blocks_in(run: Path) -> list[segment.Block]:
    contents = [path.read_bytes() for path in sorted((run / "sealed").iterdir())]
    # A file that was made a moment ago may still be empty.
    found = [block for content in contents if content for block in segment.scan_blocks(content)]
    assert all(isinstance(block, segment.Block) for block in found)
    return found  # type: ignore[return-value]


def sealer_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mstxkit-sealer"]


def recorder() -> Any:
    return current.recorder


def test_a_full_bank_is_sealed_at_once_and_free_again(run: Path) -> None:
    with mstxkit.capture(run, bank_bytes=16384, banks=2):
        record(700)
        assert lives.wait_until(lambda: bool(blocks_in(run)))
        (block,) = blocks_in(run)
        assert lives.wait_until(lambda: engine.full_bank() == -1)

    assert block.kind == segment.RECORDS
    assert 0 < block.meta["records"] < 700


def test_a_bank_that_does_not_fill_is_sealed_when_it_is_old(run: Path) -> None:
    with mstxkit.capture(run, seal_every_s=0.05):
        record(1)
        assert lives.wait_until(lambda: bool(blocks_in(run)))
        sealed = [block.meta["records"] for block in blocks_in(run)]

    assert sealed == [1]


def test_old_banks_of_processes_that_began_together_are_sealed_at_different_moments(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is full is sealed with the next tick, whatever the schedule says."""
    now_s, rotated = [0.0], []
    clock = SimpleNamespace(
        monotonic=lambda: now_s[0], monotonic_ns=time.monotonic_ns, thread_time_ns=time.thread_time_ns
    )
    with mstxkit.capture(run, bank_bytes=16384, banks=8):
        recorder().park()
        given = recorder().sealer
        monkeypatch.setattr(sealer, "time", clock)
        monkeypatch.setattr(sealer.engine, "rotate", lambda: rotated.append(now_s[0]), raising=False)
        schedules = []
        for pid in (101, 102):
            now_s[0] = 0.0
            rotated.clear()
            monkeypatch.setattr(identity, "of_life", lambda pid=pid: {"pid": pid, "pid_start": 7000})
            one = sealer.Sealer(given._live, given._files, 30.0)
            for second in range(300):
                now_s[0] = float(second)
                one._tick()
            schedules.append(list(rotated))
        record(700)
        one._tick()
        sealed = blocks_in(run)
        monkeypatch.undo()

    first, second = schedules
    assert all(22 < later - earlier <= 31 for each in schedules for earlier, later in zip([0.0, *each], each))
    assert len(set(first) & set(second)) < len(first) / 2
    assert (len(sealed), rotated) == (1, second)


def test_where_nothing_was_recorded_nothing_but_the_end_is_sealed(run: Path) -> None:
    with mstxkit.capture(run, seal_every_s=0.01):
        for _ in range(3):
            recorder().sealer._tick()

    assert [block.kind for block in blocks_in(run)] == [segment.END, segment.INDEX]


def test_where_nothing_was_recorded_another_thread_that_is_awake_brings_the_next_tick(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "_QUIET_LOOKS", -1)
    monkeypatch.setattr(sealer, "_QUIET_TICK_S", 0.0)
    with mstxkit.capture(run):
        ours = recorder().sealer
        ours.is_looked_for = lambda: True
        assert lives.wait_until(lambda: ours._ticked_s > 0)
        before = ours._ticked_s
        ours.tick_too()

        assert lives.wait_until(lambda: ours._ticked_s > before)


@pytest.fixture
def asleep_s(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """How long the sealer of this process has wanted to sleep, each time that `_sleep` was called."""
    monkeypatch.setenv("RANK", "0")
    with mstxkit.capture(run, seal_every_s=100.0):
        recorder().park()
        wanted: list[float] = []
        monkeypatch.setattr(sealer.engine, "wait", wanted.append, raising=False)
        recorder().sealer.is_looked_for = lambda: True
        recorder().sealer.learn_identity()
        recorder().sealer._tick()
        recorder().sealer._govern()  # what was coalesced in this process before is no news any more
        record(1)
        recorder().sealer._sleep()
        yield wanted
        monkeypatch.undo()


def test_where_little_is_recorded_it_looks_less_often(asleep_s: list[float]) -> None:
    record(1)
    recorder().sealer._ticked_s = time.monotonic()
    recorder().sealer._sleep()

    assert 2.0 < asleep_s[-1] <= 6.0


@pytest.mark.parametrize("why", ["much", "coalesced", "nobody sees to the keeper", "an old bank"])
def test_where_there_is_a_reason_it_looks_each_second(asleep_s: list[float], why: str) -> None:
    ours = recorder().sealer
    record(2000 if why == "much" else 1)
    if why == "coalesced":
        # Other tests have left names that cannot be compared.
        named = (site for site, *_ in engine.site_costs() if type(site.name) is str and site.name == "x")
        (site,) = (site for site in named if (site.stage, site.domain) == (None, "default"))
        engine.throttle(site, True)
        record(1)
        engine.throttle(site, False)
        ours._govern()
    elif why == "nobody sees to the keeper":
        ours.is_looked_for = lambda: False
    elif why == "an old bank":
        ours._rotating._due_s = time.monotonic() + 0.5
    ours._ticked_s = time.monotonic()
    ours._sleep()

    assert asleep_s[-1] <= 1.0


def test_blocks_carry_the_order_of_their_banks(run: Path) -> None:
    with mstxkit.capture(run, bank_bytes=16384, banks=8):
        record(2500)

    sealed = [block for block in blocks_in(run) if block.kind == segment.RECORDS]
    numbers = [block.meta["bank"] for block in sealed]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len(numbers) >= 4
    assert sum(block.meta["records"] for block in sealed) == 2500


def test_parked_it_has_no_thread_and_started_it_has_one(run: Path) -> None:
    with mstxkit.capture(run):
        started = len(sealer_threads())
        recorder().park()
        recorder().park()
        parked = len(sealer_threads())
        recorder().resume()
        recorder().resume()
        resumed = len(sealer_threads())
    stopped = len(sealer_threads())

    assert (started, parked, resumed, stopped) == (1, 0, 1, 0)


def test_a_bank_that_fills_while_it_is_parked_is_sealed_afterwards(run: Path) -> None:
    with mstxkit.capture(run, bank_bytes=16384, banks=4):
        recorder().park()
        record(700)
        while_parked = blocks_in(run) if list((run / "sealed").iterdir()) else []
        recorder().resume()
        assert lives.wait_until(lambda: bool(list((run / "sealed").iterdir()) and blocks_in(run)))

    assert not while_parked
    assert lives.ended(run) == {"x": 700}


def test_while_the_others_cannot_be_started_what_is_full_is_sealed_and_they_are_tried_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "reraise", False)
    tries: list[int] = []

    def start_others() -> bool:
        tries.append(0)
        if len(tries) < 3:
            raise RuntimeError("can't start new thread")
        return True

    with mstxkit.capture(run, bank_bytes=16384, banks=2):
        monkeypatch.setattr(recorder().sealer, "start_others", start_others)
        recorder().park()
        recorder().sealer.background.start()
        record(700)
        assert lives.wait_until(lambda: engine.full_bank() == -1 and len(tries) == 3)

    assert faults.counts["sealer"] == 2


def test_its_own_cost_is_counted(run: Path) -> None:
    with mstxkit.capture(run, bank_bytes=16384, banks=8):
        record(2500)
        view = current.live_view()
        assert view is not None
        assert lives.wait_until(lambda: livefile.read_counters(view)["own_cost_ns"] > 0)

    (told,) = lives.processes(run)
    assert told["own_cost_ratio"] > 0


def test_sealing_from_two_threads_at_once_writes_each_bank_once(run: Path) -> None:
    """The background thread and a stop, say."""
    with mstxkit.capture(run, bank_bytes=16384, banks=16):
        recorder().park()
        record(5000)
        on_threads(4, lambda _: recorder().sealer.seal_full_banks())

    numbers = [block.meta["bank"] for block in blocks_in(run) if block.kind == segment.RECORDS]
    assert numbers == sorted(set(numbers))
    assert lives.ended(run) == {"x": 5000}


def govern_after(count: int) -> None:
    """Record so many ranges, and look what they cost, as each second."""
    record(count)
    recorder().sealer._govern()


def test_what_costs_too_much_is_coalesced_until_the_end(run: Path) -> None:
    with mstxkit.capture(run, budget_ratio=1e-9):
        recorder().park()
        govern_after(1000)
        govern_after(500)
        governed = mstxkit.status().governor
        coalesced = mstxkit.status().counters["coalesced"]
    with mstxkit.capture(run):
        record(10)

    assert governed["coalescing"] == ["x"]
    assert governed["cost_ratio"] > governed["budget_ratio"] == 1e-9
    assert coalesced == 500
    assert lives.ended(run) == {"x": 1000 + 1 + 10}


def test_without_a_budget_nothing_is_coalesced(run: Path) -> None:
    with mstxkit.capture(run, budget_ratio=0):
        recorder().park()
        govern_after(1000)
        govern_after(500)
        governed = mstxkit.status().governor

    assert (governed["coalescing"], governed["cost_ratio"] > 0) == ([], True)
    assert lives.ended(run) == {"x": 1500}


def test_what_ranges_cost_is_part_of_the_own_cost(run: Path) -> None:
    with mstxkit.capture(run, budget_ratio=0):
        recorder().park()
        view = current.live_view()
        assert view is not None
        before = livefile.read_counters(view)["own_cost_ns"]
        govern_after(1000)
        after = livefile.read_counters(view)["own_cost_ns"]

    assert after > before


def test_coalesced_calls_are_written_each_second_and_at_the_end(run: Path) -> None:
    site = engine.intern("limited")
    engine.limit(site, coalesce=True)
    try:
        with mstxkit.capture(run):
            recorder().park()
            for _ in range(3):
                with engine.timed(site):
                    pass
            recorder().sealer._govern()
            with engine.timed(site):
                pass
            told = mstxkit.status().coalesced["limited"]
    finally:
        engine.limit(site)

    assert [row["attributes"]["coalesced"] for row in lives.ranges(run)] == [3, 1]
    assert [process["coalesced"] for process in lives.processes(run)] == [4]
    assert told >= 4


@pytest.mark.parametrize("ratio", [-0.1, 1.5, "much", None])
def test_a_budget_that_is_no_ratio_is_refused(run: Path, ratio: Any) -> None:
    with pytest.raises(CaptureError, match=r"budget_ratio=.*a number from 0 to 1 is needed"):
        mstxkit.capture(run, budget_ratio=ratio)
