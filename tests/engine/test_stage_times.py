"""Stages, steps and their times: rules 5, 6 and 11 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from builders.threads import elsewhere
from builders.written_banks import Written


def test_stage_times_are_unions_of_what_overlaps(engine: Any, recorded: Written) -> None:
    engine.step(1000)
    outer, inner, other = engine.stage("u"), engine.stage("u"), engine.stage("u")
    outer.__enter__()
    recorded.tick(1)
    inner.__enter__()
    recorded.tick(2)
    elsewhere(other.__enter__)
    outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    recorded.tick(4)
    other.__exit__(None, None, None)
    recorded.tick(8)

    assert engine.stage_times(1000) == pytest.approx({"u": 7e-9})


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
