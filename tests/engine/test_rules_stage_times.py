"""How long this process was in its stages: rule 11 of docs/internals/engine.md, on both engines.

What a stage adds up to is kept for the life of the process: every test has steps of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any

import pytest
from builders.fresh_engine import run_fresh
from builders.written_banks import Written

_steps = itertools.count(1_000_000, 100)
_S = 1_000_000_000


@pytest.fixture()  # noqa: PT001
def first() -> int:
    """A step that no other test uses, nor the 99 after it."""
    return next(_steps)


def test_before_any_stage_there_is_nothing(engine: Any) -> None:
    assert run_fresh(engine, "result = [engine.stage_times(), engine.stage_times(0)]") == [{}, {}]


def test_occurrences_of_a_step_add_up(engine: Any, recorded: Written, first: int) -> None:
    engine.step(first)
    for seconds in (1, 2, 4):
        with engine.stage("a"):
            recorded.tick(seconds * _S)
        recorded.tick(_S)
    with engine.stage("b"):
        recorded.tick(_S // 2)

    assert engine.stage_times(first) == pytest.approx({"a": 7.0, "b": 0.5})


def test_a_stage_inside_itself_counts_once(engine: Any, recorded: Written, first: int) -> None:
    engine.step(first)
    with engine.stage("a"):
        recorded.tick(_S)
        with engine.stage("b"), engine.stage("a"):
            recorded.tick(_S)
        recorded.tick(_S)

    assert engine.stage_times(first) == pytest.approx({"a": 3.0, "b": 1.0})


def test_one_stage_in_several_domains_and_names_is_one(engine: Any, recorded: Written, first: int) -> None:
    engine.step(first)
    with engine.mstx_range("x", stage="a"), engine.mstx_range("y", stage="a", domain="d"):
        recorded.tick(_S)

    assert engine.stage_times(first) == pytest.approx({"a": 1.0})


def test_a_stage_counts_for_the_step_at_its_begin(engine: Any, recorded: Written, first: int) -> None:
    engine.step(first)
    with engine.stage("a"):
        recorded.tick(_S)
        engine.step()
        recorded.tick(_S)
        with engine.stage("b"):
            recorded.tick(_S)

    assert engine.stage_times(first) == pytest.approx({"a": 3.0})
    assert engine.stage_times(first + 1) == pytest.approx({"b": 1.0})


def test_overlapping_occurrences_count_once_for_the_step_of_the_first(
    engine: Any, recorded: Written, first: int
) -> None:
    engine.step(first)
    one, two = engine.stage("a"), engine.stage("a")
    one.__enter__()
    recorded.tick(_S)
    engine.step()
    two.__enter__()
    recorded.tick(_S)
    one.__exit__(None, None, None)
    recorded.tick(_S)
    two.__exit__(None, None, None)

    assert engine.stage_times(first) == pytest.approx({"a": 3.0})
    assert engine.stage_times(first + 1) == {}


def test_threads_that_overlap_count_once(engine: Any, recorded: Written, first: int) -> None:
    def work() -> None:
        with engine.stage("a"):
            inside.wait()
            leave.wait()

    engine.step(first)
    inside, leave = threading.Barrier(4, timeout=30), threading.Barrier(4, timeout=30)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    inside.wait()
    recorded.tick(2 * _S)
    leave.wait()
    for thread in threads:
        thread.join()

    assert engine.stage_times(first) == pytest.approx({"a": 2.0})


def test_tasks_that_overlap_count_once_and_apart_twice(engine: Any, recorded: Written, first: int) -> None:
    async def work(turns: int) -> None:
        with engine.stage("a"):
            for _ in range(turns):
                await asyncio.sleep(0)
                recorded.tick(_S)

    async def main() -> None:
        await asyncio.gather(work(3), work(2))
        recorded.tick(10 * _S)
        await asyncio.gather(work(1))

    engine.step(first)
    asyncio.run(main())

    assert engine.stage_times(first) == pytest.approx({"a": 6.0})


def test_a_stage_that_was_left_by_a_raise_counts(engine: Any, recorded: Written, first: int) -> None:
    engine.step(first)
    with pytest.raises(ValueError), engine.stage("a"):
        recorded.tick(_S)
        raise ValueError

    assert engine.stage_times(first) == pytest.approx({"a": 1.0})


def test_a_suspended_stage_goes_on(engine: Any, recorded: Written, first: int) -> None:
    """A stage is what its range is: from its begin to its end."""

    def body() -> Any:
        recorded.tick(_S)
        yield
        recorded.tick(_S)

    engine.step(first)
    for _ in engine.driven(engine.intern("body", "a"), body()):
        recorded.tick(_S)

    assert engine.stage_times(first) == pytest.approx({"a": 3.0})


def test_the_last_8_steps_are_kept(engine: Any, recorded: Written, first: int) -> None:
    for number in range(10):
        engine.step(first + number)
        with engine.stage("a"):
            recorded.tick(_S)

    times = [engine.stage_times(first + number) for number in range(10)]
    assert times == [{}, {}, *[pytest.approx({"a": 1.0})] * 8]


def test_without_an_argument_it_is_the_latest_finished_step(engine: Any, recorded: Written, first: int) -> None:
    for seconds in (1, 2, 3):
        engine.step(first + seconds)
        with engine.stage("a"):
            recorded.tick(seconds * _S)
    within = engine.stage_times()
    assert engine.stage_times(step=None) == within
    engine.step(first + 50)
    after = engine.stage_times()

    assert within == pytest.approx({"a": 2.0})
    assert after == pytest.approx({"a": 3.0})


def test_where_no_step_is_finished_it_is_the_latest_that_has_any(engine: Any) -> None:
    found = run_fresh(
        engine,
        """
        written = Written(engine)
        with engine.stage("a"):
            written.tick(1_000_000_000)
        result = [engine.stage_times()]
        engine.step(5)
        with engine.stage("a"):
            written.tick(2_000_000_000)
        result.append(engine.stage_times())
        engine.step(3)
        with engine.stage("a"):
            written.tick(3_000_000_000)
        result.append(engine.stage_times())
        """,
    )

    assert found == [{"a": pytest.approx(1.0)}, {"a": pytest.approx(2.0)}, {"a": pytest.approx(2.0)}]


def test_an_open_stage_is_not_counted_yet(engine: Any, recorded: Written, first: int) -> None:
    engine.step(first)
    with engine.stage("a"):
        recorded.tick(_S)
        within = engine.stage_times(first)

    assert within == {}


@pytest.mark.parametrize("bad", [-1, 1 << 32, "3", 1.5])
def test_what_is_no_step_has_no_times_and_is_a_counted_fault(engine: Any, recorded: Written, bad: Any) -> None:
    assert engine.stage_times(bad) == engine.stage_times(step=bad) == {}
    assert engine.counters()["faults"] == 2


def test_a_stage_that_only_a_sink_hears_is_timed_too(engine: Any, recorded: Written, first: int) -> None:
    engine.set_recording(False)
    engine.set_sink(0, lambda message, domain: 1, lambda token, domain: None)
    engine.step(first)
    with engine.stage("a"):
        recorded.tick(_S)

    assert engine.stage_times(first) == pytest.approx({"a": 1.0})


def test_detached_inside_a_stage_the_next_occurrence_starts_anew(engine: Any, recorded: Written, first: int) -> None:
    engine.step(first)
    with engine.stage("a"):
        recorded.tick(_S)
        engine.detach()
    engine.step(first + 1)
    following = Written(engine)
    with engine.stage("a"):
        following.tick(2 * _S)

    assert engine.stage_times(first + 1) == pytest.approx({"a": 2.0})
