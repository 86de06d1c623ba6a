"""Who is inside what among tasks and threads: tracks, on both engines."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter, defaultdict
from typing import Any

from builders.fresh_engine import run_fresh
from builders.threads import elsewhere, on_threads
from builders.written_banks import Written, WrittenRange

_THREADS = 64
_RANGES = 50


def are_nested(ranges: list[WrittenRange]) -> bool:
    """Does no range on a track overlap another one without being inside it?"""
    by_track = defaultdict(list)
    for found in ranges:
        by_track[found.track].append((found.start, -found.duration))
    for on_track in by_track.values():
        ends: list[int] = []
        for start, minus_duration in sorted(on_track):
            while ends and ends[-1] <= start:
                ends.pop()
            if ends and start - minus_duration > ends[-1]:
                return False
            ends.append(start - minus_duration)
    return True


def test_interleaved_tasks_have_tracks_of_their_own(engine: Any, recorded: Written) -> None:
    async def work(number: int) -> None:
        with engine.stage(f"stage {number}"):
            for _ in range(3):
                with engine.mstx_range(f"outer {number}"):
                    recorded.tick(1)
                    await asyncio.sleep(0)
                    with engine.mstx_range(f"inner {number}"):
                        recorded.tick(1)
                        await asyncio.sleep(0)
                        recorded.tick(1)

    async def main() -> None:
        await asyncio.gather(*[work(number) for number in range(5)])

    asyncio.run(main())

    tracks = defaultdict(set)
    for found in recorded.ranges:
        tracks[found.stage].add(found.track)
    assert are_nested(recorded.ranges)
    placed = {(found.name[:5], found.name[-1], found.depth, found.stage) for found in recorded.ranges}
    kinds = [("stage", 0), ("outer", 1), ("inner", 2)]
    assert placed == {(kind, f"{n}", depth, f"stage {n}") for kind, depth in kinds for n in range(5)}
    assert len(recorded.ranges) == 35
    assert [len(own) for own in tracks.values()] == [1] * 5 and len(set().union(*tracks.values())) == 5
    assert engine.counters()["open"] == 0


def test_many_short_tasks_use_as_many_tracks_as_run_at_once(engine: Any) -> None:
    """10,000 tasks, eight at a time: the lowest idle track is taken again."""
    found = run_fresh(
        engine,
        """
        written = Written(engine, bank_bytes=1 << 22)

        async def work(limit):
            async with limit:
                with engine.mstx_range("task"):
                    await asyncio.sleep(0)
                    with engine.mstx_range("inside"):
                        await asyncio.sleep(0)

        async def main():
            limit = asyncio.Semaphore(8)
            await asyncio.gather(*[work(limit) for _ in range(10_000)])

        asyncio.run(main())
        ranges = written.ranges
        result = [len(ranges), len({found.track for found in ranges}), max(found.track for found in ranges),
                  sorted({found.depth for found in ranges}), engine.counters()["open"]]
        """,
    )

    assert found[:2] == [20_000, 8]
    assert found[2] <= 8
    assert found[3:] == [[0, 1], 0]


def test_the_lowest_idle_track_is_taken_again(engine: Any) -> None:
    found = run_fresh(
        engine,
        """
        written = Written(engine)

        async def hold(name, leave):
            with engine.mstx_range(name):
                await leave.wait()

        async def main():
            leave = [asyncio.Event() for _ in range(5)]
            tasks = [asyncio.ensure_future(hold(f"first {number}", leave[number])) for number in range(4)]
            await asyncio.sleep(0)
            leave[1].set()
            leave[2].set()
            await asyncio.gather(tasks[1], tasks[2])
            late = asyncio.ensure_future(hold("late", leave[4]))
            await asyncio.sleep(0)
            for event in leave:
                event.set()
            await asyncio.gather(late, *tasks)

        asyncio.run(main())
        result = [written.one("late").track, written.one("first 1").track, written.one("first 2").track]
        """,
    )

    assert found[0] == found[1] < found[2]


def test_a_task_holds_its_track_only_while_something_is_open(engine: Any, recorded: Written) -> None:
    """Tasks that live long, with short ranges one after the other, share one track."""

    async def work(name: str) -> None:
        for _ in range(5):
            with engine.mstx_range(name):
                recorded.tick(1)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*[work(f"task {number}") for number in range(6)])

    asyncio.run(main())

    assert len({found.track for found in recorded.ranges}) <= 6
    assert are_nested(recorded.ranges)
    assert Counter(found.name for found in recorded.ranges) == {f"task {number}": 5 for number in range(6)}


def test_a_range_begun_in_one_task_and_ended_in_another_stays_on_its_track(engine: Any, recorded: Written) -> None:
    async def begin() -> Any:
        opened = engine.mstx_range("moved")
        opened.__enter__()
        return opened

    async def end(opened: Any) -> None:
        with engine.mstx_range("own"):
            opened.__exit__(None, None, None)
            with engine.mstx_range("inside own"):
                pass

    async def main() -> None:
        opened = await asyncio.ensure_future(begin())
        await asyncio.ensure_future(end(opened))

    asyncio.run(main())

    assert [(found.name, found.depth) for found in recorded.ranges] == [("moved", 0), ("inside own", 1), ("own", 0)]
    assert recorded.one("moved").track != recorded.one("own").track
    assert recorded.open == []
    assert engine.counters()["open"] == 0


def test_a_track_is_of_the_thread_that_uses_it_now(engine: Any, recorded: Written) -> None:
    """Threads one after the other may use the same track; which thread it was is in each bank of its time."""

    def work(number: int) -> None:
        threads.append(threading.get_native_id())
        with engine.mstx_range(f"thread {number}"):
            seen.append([found.thread for found in recorded.open])

    threads: list[int] = []
    seen: list[Any] = []
    for number in range(3):
        elsewhere(work, number)
        engine.rotate()

    assert seen == [[thread] for thread in threads]
    assert [recorded.one(f"thread {number}").thread for number in range(3)] == threads


def test_64_threads_record_everything_exactly_once(engine: Any) -> None:
    engine.set_clock(1)
    written = Written(engine, slot_count=1024, bank_bytes=1 << 22)

    def work(number: int) -> None:
        threads[number] = threading.get_native_id()
        together.wait()
        for turn in range(_RANGES):
            with engine.mstx_range(f"outer {number}"):
                with engine.mstx_range("plain"), engine.mstx_range("full", number=number, turn=turn):
                    engine.mark("mark", number=number)
        together.wait()

    threads: dict[int, int] = {}
    together = threading.Barrier(_THREADS, timeout=60)
    on_threads(_THREADS, work)
    engine.set_recording(False)

    ranges = written.ranges
    expected = {f"outer {number}": _RANGES for number in range(_THREADS)}
    assert Counter(found.name for found in ranges) == {
        **expected, "plain": _THREADS * _RANGES, "full": _THREADS * _RANGES
    }  # fmt: skip
    for number in range(_THREADS):
        assert {found.thread for found in ranges if found.name == f"outer {number}"} == {threads[number]}
    full = Counter(tuple(found.attributes.items()) for found in ranges if found.name == "full")
    assert set(full.values()) == {1}
    assert len(full) == _THREADS * _RANGES
    assert Counter(found.attributes["number"] for found in written.marks) == dict.fromkeys(range(_THREADS), _RANGES)
    assert {(found.name[:5], found.depth) for found in ranges} == {("outer", 0), ("plain", 1), ("full", 2)}
    assert are_nested(ranges)
    assert [engine.counters()[key] for key in ("dropped", "slots_overflowed", "faults", "open")] == [0, 0, 0, 0]
    engine.detach()


def test_threads_that_rotate_small_banks_lose_nothing_while_one_is_free(engine: Any) -> None:
    """One thread seals and frees while eight record."""
    engine.set_clock(1)
    written = Written(engine, slot_count=64, bank_count=64, bank_bytes=8192)
    seen: Counter[tuple[str, int]] = Counter()

    def work(number: int) -> None:
        start.wait()
        for turn in range(150):
            with engine.mstx_range(f"thread {number}", turn=turn), engine.mstx_range("plain"):
                pass

    start = threading.Barrier(8, timeout=60)
    on_threads(8, work)
    for found in written.ranges:
        seen[found.name, found.attributes.get("turn", -1)] += 1

    dropped = engine.counters()["dropped"]
    assert dropped == 0
    assert seen.pop(("plain", -1)) == 8 * 150
    assert seen == {(f"thread {number}", turn): 1 for number in range(8) for turn in range(150)}
    assert engine.counters()["open"] == 0
    engine.detach()


def test_a_thread_that_ends_inside_a_range_leaves_it_to_who_holds_it(engine: Any, recorded: Written) -> None:
    def work(_: int) -> None:
        held.append(engine.mstx_range("held"))
        held[0].__enter__()

    held: list[Any] = []
    on_threads(1, work)
    still_open = [found.name for found in recorded.open]
    held.pop().__exit__(None, None, None)
    gc.collect()

    assert still_open == ["held"]
    assert recorded.names == ["held"]
    assert recorded.open == []


def test_an_event_loop_in_another_thread_keeps_apart(engine: Any, recorded: Written) -> None:
    async def work(name: str) -> None:
        for _ in range(3):
            with engine.mstx_range(name):
                await asyncio.sleep(0)

    async def main(prefix: str) -> None:
        await asyncio.gather(*[work(f"{prefix} {number}") for number in range(3)])

    with engine.mstx_range("around"):
        on_threads(3, lambda number: asyncio.run(main(f"loop {number}")))

    assert len(recorded.ranges) == 28
    assert all(found.depth == 0 for found in recorded.ranges)
    assert are_nested(recorded.ranges)
