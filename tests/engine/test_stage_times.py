"""Stages, steps and their times: rules 5, 6 and 11 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from builders.written_banks import Written


def test_stage_times_add_up_a_step(engine: Any, recorded: Written) -> None:
    for step, ticks in ((5001, 10), (5002, 30)):
        engine.step(step)
        for _ in range(2):
            with engine.stage("generate"):
                recorded.tick(ticks)
        with engine.stage("update"):
            recorded.tick(1)
    engine.step(5003)

    assert engine.stage_times(5001) == pytest.approx({"generate": 20e-9, "update": 1e-9})
    assert engine.stage_times(5002) == pytest.approx({"generate": 60e-9, "update": 1e-9})
    assert engine.stage_times() == engine.stage_times(step=None) == engine.stage_times(5002)
    assert engine.stage_times(5099) == {}


def test_stage_times_are_unions_of_what_overlaps(engine: Any, recorded: Written) -> None:
    engine.step(1000)
    outer, inner, other = engine.stage("u"), engine.stage("u"), engine.stage("u")
    outer.__enter__()
    recorded.tick(1)
    inner.__enter__()
    recorded.tick(2)
    thread = threading.Thread(target=other.__enter__)
    thread.start()
    thread.join()
    outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    recorded.tick(4)
    other.__exit__(None, None, None)
    recorded.tick(8)

    assert engine.stage_times(1000) == pytest.approx({"u": 7e-9})


def test_stage_times_belong_to_the_step_in_which_the_first_began(engine: Any, recorded: Written) -> None:
    engine.step(2000)
    with engine.stage("across"):
        recorded.tick(5)
        engine.step(2001)

    assert engine.stage_times(2000) == pytest.approx({"across": 5e-9})
    assert "across" not in engine.stage_times(2001)


def test_stage_times_keep_the_last_eight_steps(engine: Any, recorded: Written) -> None:
    for step in range(3000, 3010):
        engine.step(step)
        with engine.stage("kept"):
            recorded.tick(1)

    kept = [step for step in range(3000, 3010) if "kept" in engine.stage_times(step)]
    assert kept == list(range(3002, 3010))


@pytest.mark.parametrize("bad", [-1, "x", 1.5])
def test_stage_times_of_a_bad_step_are_none(engine: Any, bad: Any) -> None:
    assert engine.stage_times(bad) == {}
    assert engine.counters()["faults"] >= 1


def test_stages_nest_also_in_themselves(engine: Any, recorded: Written) -> None:
    seen = []
    for _ in range(2):
        with engine.stage("outer"):
            with engine.stage("inner"), engine.stage("inner"):
                seen.append(engine.current_stage())
                with engine.mstx_range("deep"):
                    pass
            seen.append(engine.current_stage())
        seen.append(engine.current_stage())

    assert seen == ["inner", "outer", None] * 2
    assert [found.stage for found in recorded.ranges] == ["inner", "inner", "inner", "outer"] * 2


def test_a_stage_that_ends_before_what_was_opened_inside_is_no_longer_current(engine: Any, recorded: Written) -> None:
    stage, inner = engine.stage("s"), engine.mstx_range("inner")
    stage.__enter__()
    inner.__enter__()
    stage.__exit__(None, None, None)
    current = engine.current_stage()
    with engine.mstx_range("later"):
        pass
    inner.__exit__(None, None, None)

    assert current is None
    assert recorded.one("later").stage is None
    assert recorded.one("inner").stage == "s"


@pytest.mark.parametrize("turns", [1, 3])
def test_a_range_has_the_step_at_its_begin(engine: Any, recorded: Written, turns: int) -> None:
    for _ in range(turns):
        engine.step(1)
        with engine.mstx_range("across"):
            with engine.mstx_range("inside"):
                pass
            engine.step(2)
            with engine.mstx_range("inside"):
                pass
        with engine.mstx_range("after"):
            pass

    steps = [(found.name, found.step) for found in recorded.ranges]
    assert steps == [("inside", 1), ("inside", 2), ("across", 1), ("after", 2)] * turns


@pytest.mark.parametrize("turns", [1, 3])
def test_at_step_holds_for_its_block_and_for_nothing_else(engine: Any, recorded: Written, turns: int) -> None:
    engine.step(1)
    for _ in range(turns):
        with engine.mstx_range("outer"):
            with engine.at_step(10), engine.mstx_range("inner"):
                inside = engine.current_step()
                with engine.at_step(20), engine.mstx_range("innermost"):
                    pass
            with engine.mstx_range("inner"):
                pass

    steps = [(found.name, found.step) for found in recorded.ranges]
    assert steps == [("innermost", 20), ("inner", 10), ("inner", 1), ("outer", 1)] * turns
    assert (inside, engine.current_step()) == (10, 1)


def test_at_step_around_a_range_that_outlives_it(engine: Any, recorded: Written) -> None:
    engine.step(1)
    outlives = engine.mstx_range("outlives")
    with engine.at_step(10):
        outlives.__enter__()
        with engine.mstx_range("inside"):
            pass
    with engine.mstx_range("inside"):
        pass
    outlives.__exit__(None, None, None)
    with engine.mstx_range("outlives"):
        pass

    steps = [(found.name, found.step) for found in recorded.ranges]
    assert steps == [("inside", 10), ("inside", 1), ("outlives", 10), ("outlives", 1)]


def test_at_step_is_known_while_nothing_records(engine: Any, recorded: Written) -> None:
    engine.set_recording(False)
    with engine.at_step(10):
        engine.set_recording(True)
        with engine.mstx_range("x"):
            pass

    assert recorded.one("x").step == 10


def test_a_task_belongs_to_the_stage_it_was_created_in_also_when_it_runs_later(engine: Any, recorded: Written) -> None:
    async def child() -> None:
        with engine.mstx_range("child"):
            await asyncio.sleep(0)

    async def main() -> None:
        with engine.mstx_range("child"):
            pass
        with engine.stage("s"):
            inside = asyncio.ensure_future(child())
        outside = asyncio.ensure_future(child())
        await asyncio.gather(inside, outside)

    asyncio.run(main())

    assert [found.stage for found in recorded.ranges if found.name == "child"] == [None, "s", None]


def test_a_stage_that_ends_in_another_task_leaves_that_tasks_stage_alone(engine: Any, recorded: Written) -> None:
    async def ends(stage: Any) -> Any:
        with engine.stage("of the task"):
            stage.__exit__(None, None, None)
            return engine.current_stage()

    async def main() -> Any:
        stage = engine.stage("handed over")
        stage.__enter__()
        return await asyncio.ensure_future(ends(stage))

    assert asyncio.run(main()) == "of the task"
    assert recorded.names == ["handed over", "of the task"]
