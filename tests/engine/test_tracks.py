"""Who is inside what: threads, tasks and contexts, on both engines."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import gc
import os
import threading
import time
import weakref
from typing import Any, Callable

import pytest
from builders.written_banks import Written

from mstxkit.store import livefile

THREADS_END_WITHIN_S = 60


def run_in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(number)` in so many threads, which begin and end together."""
    together = threading.Barrier(count)

    def run(number: int) -> None:
        together.wait()
        work(number)
        together.wait()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(THREADS_END_WITHIN_S)


def test_a_thread_has_a_track_of_its_own(engine: Any, recorded: Written) -> None:
    def other() -> None:
        seen.append(threading.get_native_id())
        with engine.mstx_range("other"):
            pass

    seen = [threading.get_native_id()]
    with engine.mstx_range("main"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    other_one, main = recorded.ranges
    assert (main.thread, other_one.thread) == tuple(seen)
    assert main.track != other_one.track
    assert (main.depth, other_one.depth) == (0, 0)
    assert not main.is_task
    assert not other_one.is_task


def names_of_tracks(recorded: Written) -> dict[int, str]:
    texts = [livefile.read_texts(bank.text, bank.salt)[0] for bank in recorded.banks]
    return {track: text.name for one in texts for track, text in one.tracks.items()}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("loader-1", "loader-1"),
        ("", ""),
        ("\u00e4" * 40, "\u00e4" * 32),
        ("x" + "\u4e16" * 40, "x" + "\u4e16" * 21),
        ("lone \ud800", "lone \\ud800"),
        ("n" * 65, "n" * 64),
    ],
)
def test_a_track_has_the_name_of_its_thread(engine: Any, recorded: Written, name: str, kept: str) -> None:
    """Up to 64 bytes, whole characters, as it was called when it first recorded."""

    def work() -> None:
        for _ in range(2):
            with engine.mstx_range("r"):
                threading.current_thread().name = "another"

    thread = threading.Thread(target=work)
    thread.name = name
    with engine.mstx_range("main"):
        thread.start()
        thread.join()

    assert [names_of_tracks(recorded)[recorded.one(one).track] for one in ("main",)] == ["MainThread"]
    assert names_of_tracks(recorded)[recorded.ranges[0].track] == kept


def test_a_thread_that_python_does_not_know_has_no_name_and_is_not_made_known(engine: Any, recorded: Written) -> None:
    over = threading.Event()

    def work() -> None:
        with engine.mstx_range("r"):
            pass
        over.set()

    with engine.mstx_range("main"):
        _thread.start_new_thread(work, ())
        assert over.wait(THREADS_END_WITHIN_S)

    assert names_of_tracks(recorded)[recorded.one("r").track] == ""
    assert not any(isinstance(thread, threading._DummyThread) for thread in threading.enumerate())


def test_a_thread_that_takes_over_a_track_gives_it_its_name(engine: Any, recorded: Written) -> None:
    def work() -> None:
        with engine.mstx_range(threading.current_thread().name):
            pass

    with engine.mstx_range("main"):
        for name in ("first", "second"):
            thread = threading.Thread(target=work, name=name)
            thread.start()
            wait_until_gone(thread)

    first, second = recorded.one("first"), recorded.one("second")
    (text,) = [livefile.read_texts(bank.text, bank.salt)[0] for bank in recorded.banks]
    assert first.track == second.track
    assert text.tracks[second.track] == (second.thread, False, "second", True)


def test_threads_fill_banks_together_and_nothing_is_lost_but_what_is_counted(engine: Any, recorded: Written) -> None:
    small = Written(engine, slot_count=256, bank_count=40, bank_bytes=4096)

    def work(number: int) -> None:
        for _ in range(60):
            with engine.mstx_range("shared"):
                pass

    run_in_threads(16, work)

    assert len(small.ranges) + engine.counters()["dropped"] == 16 * 60
    assert engine.counters()["open"] == 0


def wait_until_gone(thread: threading.Thread) -> None:
    """Python's thread is over a little before the system's, which frees its track."""
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < deadline:
        time.sleep(0.001)


def test_threads_that_come_one_after_the_other_share_tracks(engine: Any, recorded: Written) -> None:
    def work() -> None:
        with engine.mstx_range("x"):
            pass

    for _ in range(50):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        wait_until_gone(thread)

    assert len({found.track for found in recorded.ranges}) <= 2
    assert len(recorded.ranges) == 50


def test_a_task_created_inside_a_range_does_not_sit_on_its_track(engine: Any, recorded: Written) -> None:
    async def child() -> None:
        for _ in range(2):
            with engine.mstx_range("child"):
                await asyncio.sleep(0)

    async def main() -> None:
        with engine.stage("parent"):
            await asyncio.gather(child(), child())

    asyncio.run(main())

    parent = recorded.one("parent")
    children = [found for found in recorded.ranges if found.name == "child"]
    assert parent.track not in {found.track for found in children}
    assert len({found.track for found in children}) == 2
    assert {(found.depth, found.stage, found.is_task) for found in children} == {(0, "parent", True)}


def test_a_task_that_has_left_its_stage_is_in_the_one_around_it(engine: Any, recorded: Written) -> None:
    seen = []

    async def work() -> None:
        with engine.stage("own"):
            await asyncio.sleep(0)
        seen.append(engine.current_stage())
        with engine.mstx_range("afterwards"):
            await asyncio.sleep(0)

    async def main() -> None:
        with engine.stage("around"):
            await asyncio.gather(work(), work())

    asyncio.run(main())

    assert seen == ["around"] * 2
    assert [found.stage for found in recorded.ranges if found.name == "afterwards"] == seen


def test_contexts_without_an_event_loop_have_tracks_of_their_own(engine: Any, recorded: Written) -> None:
    """As of tasks that are stepped from inside another's range, which eager task factories do."""
    contexts = [contextvars.copy_context() for _ in range(3)]
    ranges = [engine.mstx_range(f"context {number}") for number in range(3)]
    with engine.mstx_range("main"):
        for context, entered in zip(contexts, ranges):
            context.run(entered.__enter__)
        for context, entered in zip(contexts, ranges):
            context.run(entered.__exit__, None, None, None)

    assert len({found.track for found in recorded.ranges}) == 4
    assert {found.depth for found in recorded.ranges} == {0}


def test_a_stage_in_a_worker_thread_is_inherited_with_its_context(engine: Any, recorded: Written) -> None:
    def work() -> int:
        with engine.mstx_range("in the thread"):
            pass
        return threading.get_native_id()

    async def main() -> int:
        with engine.stage("s"), engine.at_step(9):
            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(None, context.run, work)

    thread = asyncio.run(main())

    found = recorded.one("in the thread")
    assert (found.stage, found.step, found.depth, found.thread) == ("s", 9, 0, thread)
    assert found.track != recorded.one("s").track


def test_what_a_finished_task_held_in_its_context_is_freed(engine: Any, recorded: Written) -> None:
    """A recorder must not keep contexts, and the tensors in them, alive."""

    class Tensor:
        pass

    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    freed = []

    async def work() -> None:
        tensor = Tensor()
        variable.set(tensor)
        freed.append(weakref.ref(tensor))
        with engine.mstx_range("x"), engine.stage("s"):
            await asyncio.sleep(0)

    async def main() -> None:
        with engine.mstx_range("main"):
            await asyncio.gather(*(work() for _ in range(3)))

    asyncio.run(main())
    gc.collect()

    assert [reference() for reference in freed] == [None] * 3
