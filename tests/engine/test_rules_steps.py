"""Which step and which stage a range is in: rules 5 and 6 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from builders.fresh_engine import run_fresh
from builders.threads import elsewhere
from builders.written_banks import Written

from mstxkit.store import records


def test_before_the_first_step_there_is_none(engine: Any) -> None:
    found = run_fresh(
        engine,
        """
        written = Written(engine)
        with engine.mstx_range("x"):
            before, open_step = engine.current_step(), written.open[0].step
        result = [before, open_step, written.one("x").step]
        """,
    )

    assert found == [None, None, None]


def test_step_gives_0_first_and_then_one_more(engine: Any) -> None:
    found = run_fresh(engine, "result = [engine.step(), engine.current_step(), engine.step(), engine.step(None)]")

    assert found == [0, 0, 1, 2]


def test_a_bad_first_step_leaves_none_in_force(engine: Any) -> None:
    assert run_fresh(engine, "result = [engine.step(-1), engine.current_step()]") == [None, None]


@pytest.mark.parametrize("n", [0, 7, records.STEP_MAX])
def test_step_takes_the_number_it_is_given(engine: Any, recorded: Written, n: int) -> None:
    returned = engine.step(n)
    for _ in range(2):
        with engine.mstx_range("x"):
            pass

    assert returned == engine.current_step() == n
    assert [found.step for found in recorded.ranges] == [n, n]


def test_what_stands_for_an_int_is_a_step(engine: Any, recorded: Written) -> None:
    class Index:
        def __index__(self) -> int:
            return 12

    assert engine.step(Index()) == 12
    assert engine.step(True) == 1


class Failing:
    def __index__(self) -> int:
        raise RuntimeError("mine")


@pytest.mark.parametrize("bad", [-1, records.STEP_MAX + 1, 1 << 40, 1 << 70, -(1 << 70), "3", 1.0, [], Failing()])
def test_what_is_no_step_is_a_counted_fault_and_ignored(engine: Any, recorded: Written, bad: Any) -> None:
    engine.step(5)
    returned = engine.step(bad)
    with engine.at_step(bad) as inside, engine.mstx_range("x"):
        pass

    assert (returned, inside, recorded.one("x").step) == (5, 5, 5)
    assert engine.counters()["faults"] == 2


def test_when_the_first_step_was_said_is_known_of_each_recording(engine: Any, recorded: Written) -> None:
    """A step is recorded with its ranges: the first may wait before it has any."""
    silent, _, before = engine.first_step(), engine.step(-1), engine.now()
    engine.step(7)
    said, after = engine.first_step(), engine.now()
    engine.step(8)

    assert silent is None and said[0] == 7 and before <= said[1] <= after
    assert engine.first_step() == said
    engine.set_recording(True)
    assert engine.first_step() is None


def test_the_last_step_there_can_be_stays(engine: Any) -> None:
    engine.step(records.STEP_MAX)

    assert engine.step() == records.STEP_MAX


def test_a_step_is_in_force_in_every_thread(engine: Any, recorded: Written) -> None:
    def work() -> None:
        with engine.mstx_range("in a thread"):
            seen.append(engine.current_step())

    seen: list[int] = []
    engine.step(3)
    elsewhere(work)
    engine.step(4)
    elsewhere(work)

    assert seen == [found.step for found in recorded.ranges] == [3, 4]


@pytest.mark.parametrize("passed_before", [0, 3])
def test_at_step_holds_inside_its_block(engine: Any, recorded: Written, passed_before: int) -> None:
    engine.step(1)
    for _ in range(passed_before):
        with engine.mstx_range("x"):
            pass
    with engine.at_step(50) as first:
        with engine.mstx_range("x"), engine.at_step(60) as second, engine.mstx_range("y"):
            pass
        with engine.mstx_range("z"):
            engine.step(2)  # of the process: who is inside at_step is not moved by it
            within = engine.current_step()
            with engine.mstx_range("later"):
                pass
    with engine.mstx_range("x"):
        pass

    assert (first, second, within, engine.current_step()) == (50, 60, 50, 2)
    assert [found.step for found in recorded.ranges[passed_before:]] == [60, 50, 50, 50, 2]


def test_at_step_ends_with_a_body_that_raises(engine: Any, recorded: Written) -> None:
    engine.step(1)
    with pytest.raises(ValueError), engine.at_step(50):
        raise ValueError

    assert engine.current_step() == 1


def test_another_thread_is_not_inside_at_step_or_stage(engine: Any, recorded: Written) -> None:
    def work() -> None:
        with engine.mstx_range("elsewhere"):
            seen.append((engine.current_step(), engine.current_stage()))

    seen: list[Any] = []
    engine.step(1)
    with engine.at_step(50), engine.stage("s"):
        elsewhere(work)

    assert seen == [(1, None)]
    assert (recorded.one("elsewhere").step, recorded.one("elsewhere").stage) == (1, None)


def test_tasks_created_inside_at_step_and_a_stage_belong_to_them(engine: Any, recorded: Written) -> None:
    """Also after the block in which they were created has ended."""

    async def work(name: str) -> None:
        await go.wait()
        with engine.mstx_range(name):
            seen.append((engine.current_step(), engine.current_stage()))
            await asyncio.sleep(0)
            seen.append((engine.current_step(), engine.current_stage()))

    async def main() -> None:
        nonlocal go
        go = asyncio.Event()
        engine.step(1)
        with engine.at_step(50):
            with engine.stage("s"):
                inside = asyncio.ensure_future(work("inside"))
        outside = asyncio.ensure_future(work("outside"))
        await asyncio.sleep(0)
        go.set()
        await inside
        await outside

    go: Any = None
    seen: list[Any] = []
    asyncio.run(main())

    inside, outside = recorded.one("inside"), recorded.one("outside")
    assert (inside.step, inside.stage) == (50, "s")
    assert (outside.step, outside.stage) == (1, None)
    assert sorted(seen, key=str) == [(1, None), (1, None), (50, "s"), (50, "s")]


def test_what_a_task_enters_is_not_around_who_created_it(engine: Any, recorded: Written) -> None:
    async def work() -> None:
        with engine.at_step(50), engine.stage("s"):
            entered.set()
            await leave.wait()

    async def main() -> None:
        nonlocal entered, leave
        entered, leave = asyncio.Event(), asyncio.Event()
        engine.step(1)
        task = asyncio.ensure_future(work())
        await entered.wait()
        with engine.mstx_range("creator"):
            seen.append((engine.current_step(), engine.current_stage()))
        leave.set()
        await task

    entered: Any = None
    leave: Any = None
    seen: list[Any] = []
    asyncio.run(main())

    assert seen == [(1, None)]
    assert (recorded.one("creator").step, recorded.one("creator").stage) == (1, None)


def test_two_tasks_have_a_step_each(engine: Any, recorded: Written) -> None:
    async def work(n: int) -> None:
        with engine.at_step(n):
            for _ in range(3):
                with engine.mstx_range(f"task {n}"):
                    await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(work(10), work(11))

    asyncio.run(main())

    assert {(found.name, found.step) for found in recorded.ranges} == {("task 10", 10), ("task 11", 11)}
    assert len(recorded.ranges) == 6


def test_a_range_carries_the_innermost_stage_around_it(engine: Any, recorded: Written) -> None:
    def enter(name: str) -> None:
        with engine.mstx_range(name):
            seen.append(engine.current_stage())

    seen: list[Any] = []
    for _ in range(2):
        enter("none")
        with engine.stage("outer"):
            enter("in outer")
            with engine.mstx_range("plain"), engine.mstx_range("by name", stage="inner"):
                enter("in inner")
            enter("again in outer")

    assert seen == [None, "outer", "inner", "outer"] * 2
    assert engine.current_stage() is None
    assert [(found.name, found.stage, found.own_stage) for found in recorded.ranges[:7]] == [
        ("none", None, None), ("in outer", "outer", None), ("in inner", "inner", None), ("by name", "inner", "inner"),
        ("plain", "outer", None), ("again in outer", "outer", None), ("outer", "outer", "outer"),
    ]  # fmt: skip
    assert recorded.ranges[7:] != []


def test_a_stage_may_be_inside_itself(engine: Any, recorded: Written) -> None:
    with engine.stage("s"), engine.stage("other"), engine.stage("s"):
        inside = engine.current_stage()
    after = engine.current_stage()

    assert (inside, after) == ("s", None)
    assert [(found.name, found.depth) for found in recorded.ranges] == [("s", 2), ("other", 1), ("s", 0)]


def test_an_open_stage_is_its_own_in_its_slot(engine: Any, recorded: Written) -> None:
    with engine.stage("s"), engine.mstx_range("x"):
        assert [(found.name, found.stage) for found in recorded.open] == [("s", "s"), ("x", "s")]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_stages_ended_out_of_order_leave_the_innermost_that_is_open(engine: Any, recorded: Written, first: int) -> None:
    stages = [engine.stage(key) for key in ("a", "b", "c")]
    for entered in stages:
        entered.__enter__()
    stages[first].__exit__(None, None, None)
    with engine.mstx_range("x"):
        seen = engine.current_stage()
    for number in (0, 1, 2):
        if number != first:
            stages[number].__exit__(None, None, None)
    with engine.mstx_range("y"):
        pass

    assert seen == recorded.one("x").stage == ("c" if first != 2 else "b")
    assert recorded.one("y").stage is None
    assert engine.current_stage() is None


def test_a_stage_ended_on_another_thread_is_over_where_it_began(engine: Any, recorded: Written) -> None:
    moved = engine.stage("s")
    moved.__enter__()
    elsewhere(moved.__exit__, None, None, None)
    with engine.mstx_range("after"):
        pass

    assert recorded.one("after").stage is None
    assert engine.current_stage() is None


def test_a_stage_ended_on_another_thread_is_over_for_tasks_and_after_them(engine: Any, recorded: Written) -> None:
    seen = []

    async def work() -> None:
        with engine.mstx_range("in a task"):
            seen.append(engine.current_stage())

    moved = engine.stage("s")
    moved.__enter__()
    elsewhere(moved.__exit__, None, None, None)
    engine.current_stage()
    asyncio.run(work())

    assert seen == [None]
    assert recorded.one("in a task").stage is None
    assert engine.current_stage() is None


def test_a_stage_of_which_nobody_hears_is_not_current(engine: Any, recorded: Written) -> None:
    engine.set_recording(False)
    with engine.stage("s"):
        engine.set_recording(True)
        with engine.mstx_range("inside"):
            seen = engine.current_stage()

    assert seen is None
    assert recorded.one("inside").stage is None


def test_stage_keys_with_numbers_leave_room_for_those_without(engine: Any) -> None:
    """Who names a stage after each request has so many; those of a program have no numbers, and come late."""
    found = run_fresh(
        engine,
        """
        import logging

        class Kept(logging.Handler):
            def emit(self, record):
                lines.append(record.getMessage())

        lines = []
        logging.getLogger("mstxkit").addHandler(Kept())
        written = Written(engine, bank_bytes=1 << 22)
        numbered = [f"request {number}" for number in range(records.NUMBERED_STAGES + 10)]
        words = ["late" + "x" * number for number in range(records.STAGE_MAX - records.NUMBERED_STAGES + 1)]
        for key in numbered + words + ["request 5"]:
            with engine.stage(key), engine.mstx_range("x"):
                pass
        stages = [found.stage for found in written.ranges if found.name == "x"]
        count = records.NUMBERED_STAGES
        result = [
            stages[:count] == numbered[:count], stages[count:len(numbered)],
            stages[len(numbered):-2] == words[:-1], stages[-2:], len(written.ranges) == 2 * len(stages), lines,
        ]
        """,
    )

    assert found[:-1] == [True, [None] * 10, True, [None, "request 5"], True]
    assert len(found[-1]) == 1 and "'request 3000'" in found[-1][0] and "attributes" in found[-1][0]
