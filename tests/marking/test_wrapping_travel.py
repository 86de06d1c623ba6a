"""Wrappers in other processes: cloudpickle ships those of `__main__` by value, and they record where they arrive."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mstxkit import mstx_timer
from mstxkit.testing import captured

cloudpickle = pytest.importorskip("cloudpickle")
ROOT = str(Path(__file__).resolve().parents[2])

# Each definition is in __main__ there, so cloudpickle takes it by value, with all that its closure holds.
MAKE = """
import contextvars, sys, threading
import cloudpickle
from mstxkit import mstx_timer, stage

@mstx_timer("called", stage="s", attributes=lambda a, k=2: {"k": k})
def function(a, k=2):
    return a + k

@mstx_timer("coroutine")
async def coroutine(a):
    return a

@mstx_timer("generator")
def generator(a):
    yield a

@mstx_timer("async generator")
async def async_generator(a):
    yield a

@mstx_timer("worker")
class Worker:
    def act(self, a):
        return a

@stage("staged")
def staged(a):
    return a

sys.stdout.buffer.write(cloudpickle.dumps((function, coroutine, generator, async_generator, Worker, staged)))
"""


def run(script: str, stdin: bytes = b"", **environment: str) -> bytes:
    env = {**os.environ, "PYTHONPATH": ROOT, **environment}
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], input=stdin, capture_output=True, env=env)
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def pickled() -> bytes:
    return run(MAKE)


def test_wrappers_shipped_by_value_record_where_they_arrive(pickled: bytes) -> None:
    import asyncio

    function, coroutine, generator, async_generator, worker, staged = cloudpickle.loads(pickled)

    async def collect() -> list[int]:
        return [i async for i in async_generator(4)]

    with captured() as got:
        answers = (function(1, k=3), asyncio.run(coroutine(2)), list(generator(3)), asyncio.run(collect()))
        more = (worker().act(5), staged(6))

    assert answers == (4, 2, [3], [4])
    assert more == (5, 6)
    assert [(r.name, r.stage) for r in got.ranges] == [
        ("called", "s"), ("coroutine", None), ("generator", None), ("async generator", None), ("worker.act", None),
        ("staged", "staged"),
    ]  # fmt: skip
    assert got.ranges[0].attributes == {"k": 3}


def test_a_wrapper_that_arrived_can_be_shipped_on(pickled: bytes) -> None:
    function = cloudpickle.loads(cloudpickle.dumps(cloudpickle.loads(pickled)[0]))
    with captured() as got:
        function(1)

    assert [r.name for r in got.ranges] == ["called"]


def test_a_wrapper_that_arrived_is_not_decorated_twice(pickled: bytes) -> None:
    function: Any = cloudpickle.loads(pickled)[0]

    assert mstx_timer("called", stage="s")(function) is function


def test_a_wrapper_ships_no_lock_of_ours_even_after_it_has_recorded() -> None:
    answer = run(
        "import cloudpickle, threading\n"
        "from mstxkit import mstx_timer\n"
        "@mstx_timer\n"
        "def function(a): return a\n"
        "thread = threading.Thread(target=function, args=(1,)); thread.start(); thread.join(); function(2)\n"
        "print(cloudpickle.loads(cloudpickle.dumps(function))(3))"
    )

    assert answer.split() == [b"3"]


@pytest.mark.parametrize("native", ["0", ""])
def test_a_wrapper_runs_whatever_engine_it_meets(pickled: bytes, native: str) -> None:
    """Pickled here by one engine, run there by the other."""
    script = "import cloudpickle, sys; print(cloudpickle.load(sys.stdin.buffer)[0](1))"

    assert run(script, pickled, MSTXKIT_NATIVE=native) == b"3\n"


def test_a_wrapper_runs_where_mstxkit_is_off(pickled: bytes) -> None:
    script = (
        "import asyncio, cloudpickle, sys\n"
        "loaded = cloudpickle.load(sys.stdin.buffer)\n"
        "async def collect(): return [i async for i in loaded[3](4)]\n"
        "print(loaded[0](1), asyncio.run(loaded[1](2)), list(loaded[2](3)), asyncio.run(collect()))\n"
        "assert loaded[4]().act(5) == 5\n"
        "assert not [m for m in sys.modules if m.startswith(('mstxkit.recorder', 'mstxkit.engine'))]\n"
        "sys.stdout.flush(); sys.stderr.flush()\n"
        "assert cloudpickle.loads(cloudpickle.dumps(loaded[0]))(1) == 3"
    )

    assert run(script, pickled, MSTXKIT_OFF="1") == b"3 2 [3] [4]\n"


def test_a_wrapper_that_passed_through_a_process_that_is_off_records_again(pickled: bytes) -> None:
    script = (
        "import cloudpickle, sys\n"
        "function = cloudpickle.load(sys.stdin.buffer)[0]\n"
        "sys.stdout.buffer.write(cloudpickle.dumps(function))"
    )
    function = cloudpickle.loads(run(script, pickled, MSTXKIT_OFF="1"))

    with captured() as got:
        function(1)

    assert [(r.name, r.stage) for r in got.ranges] == [("called", "s")]


def test_shipping_works_while_another_thread_is_inside_the_function() -> None:
    inside, leave = threading.Event(), threading.Event()

    @mstx_timer("held")
    def held() -> None:
        inside.set()
        leave.wait(10)

    held.__module__ = "__main__"
    with captured() as got:
        thread = threading.Thread(target=held)
        thread.start()
        inside.wait(10)
        shipped = mstx_timer("other")(lambda a: a)
        copied = cloudpickle.loads(cloudpickle.dumps(shipped))
        answer = copied(1)
        leave.set()
        thread.join()

    assert answer == 1
    assert [r.name for r in got.ranges] == ["other", "held"]
