"""Stages, steps and their times: rules 5, 6 and 11 of docs/internals/engine.md, on both engines."""

from __future__ import annotations

import asyncio
from typing import Any

from builders.written_banks import Written


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
