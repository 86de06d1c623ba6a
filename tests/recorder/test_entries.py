"""What a stage waits for in a queue is kept; nothing else of a queue is, and it behaves as ever."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import multiprocessing.queues
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Callable, Iterator

import pytest

import mstxkit
from mstxkit import stage
from mstxkit.recorder import entries
from mstxkit.store import collectives
from mstxkit.store.collectives import CollectiveEntry
from mstxkit.testing import captured

BEFORE = queue.Queue.get, asyncio.Queue.get
GETS = queue.Queue.get.__code__, multiprocessing.queues.Queue.get.__code__
SOON_S, WAITED_NS = 0.02, 10_000_000


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    mstxkit.autopatch("concurrent")
    entries.forget_entries()
    yield
    mstxkit.unpatch()
    assert (queue.Queue.get, asyncio.Queue.get) == BEFORE


def waits(action: Callable[[], object]) -> list[CollectiveEntry]:
    """What is kept of an action that is a stage."""
    with captured():
        action()
    return list(collectives.unpack_entries(entries.take_entries(everything=True)[0]))


def put_soon(waiting: Any) -> None:
    """Some time after a thread has begun to wait, however long a busy machine takes until then."""

    def put() -> None:
        while not any(map(is_in_a_get, sys._current_frames().values())):
            time.sleep(0.001)
        time.sleep(SOON_S)
        waiting.put("it")

    threading.Thread(target=put).start()


def is_in_a_get(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in GETS:
        frame = frame.f_back
    return frame is not None


def take(waiting: Any, **kwargs: Any) -> Any:
    with stage("wait_for_samples"):
        return waiting.get(**kwargs)


@pytest.mark.parametrize("make", [queue.Queue, queue.PriorityQueue, multiprocessing.get_context("spawn").Queue])
def test_a_stage_that_waits_for_a_queue_is_told_with_its_length(make: Callable[[], Any]) -> None:
    waiting = make()
    put_soon(waiting)
    rows = waits(lambda: take(waiting))

    (row,) = rows
    assert collectives.OPERATIONS[collectives.operation_in(row.operation)] == "take"
    assert row.left_ns - row.entered_ns > WAITED_NS
    assert row.operation >> collectives.OPERATION_BITS > 0


def test_each_wait_is_a_call_of_its_own() -> None:
    def take_twice() -> None:
        for _ in range(2):
            put_soon(waiting)
            take(waiting)

    waiting: Any = queue.Queue()
    rows = waits(take_twice)

    assert len({(row.group, row.sequence) for row in rows}) == 2


def test_a_coroutine_that_waits_is_told_and_one_that_is_cancelled_is_not() -> None:
    async def run() -> str:
        waiting: asyncio.Queue[str] = asyncio.Queue()
        asyncio.get_running_loop().call_later(SOON_S, waiting.put_nowait, "it")
        with stage("wait_for_samples"):
            taken = await waiting.get()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(waiting.get(), SOON_S)
        return taken

    said: list[str] = []
    rows = waits(lambda: said.append(asyncio.run(run())))

    assert said == ["it"]
    assert [row.left_ns - row.entered_ns > WAITED_NS for row in rows] == [True]
    assert inspect.iscoroutinefunction(asyncio.Queue.get)


def test_what_is_there_already_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: Any = queue.Queue()
    waiting.put("it")
    now_ns = entries.monotonic_ns()
    monkeypatch.setattr(entries, "monotonic_ns", lambda: now_ns)  # on a busy machine that takes long, too

    assert waits(lambda: take(waiting)) == []


def test_a_time_that_is_over_was_waited_too() -> None:
    def poll() -> None:
        with pytest.raises(queue.Empty):
            take(queue.Queue(), timeout=SOON_S)

    assert len(waits(poll)) == 1


def test_nothing_is_told_outside_of_stages_nor_by_threads_of_a_pool_nor_while_nothing_is_recorded() -> None:
    def run() -> None:
        put_soon(waiting)
        waiting.get()
        with ThreadPoolExecutor(1) as pool, stage("reward"):
            put_soon(waiting)
            pool.submit(waiting.get).result()

    waiting: Any = queue.Queue()
    rows = waits(run)
    put_soon(waiting)
    take(waiting)

    assert rows == []
    assert entries.take_entries(everything=True) == (b"", [])


def test_an_engine_that_waits_for_its_own_processes_works() -> None:
    """As a rollout whose engine is a process apart: it is slow itself then."""
    code = compile("def step(waiting):\n    return waiting.get()", "core_client.py", "exec")
    engine: dict[str, Any] = {"__name__": "vllm.v1.engine.core_client"}
    exec(code, engine)

    def run() -> None:
        put_soon(waiting)
        with stage("actor_generate"):
            engine["step"](waiting)

    waiting: Any = queue.Queue()

    assert waits(run) == []
