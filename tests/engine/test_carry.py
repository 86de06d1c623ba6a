"""What work takes along to another thread: stage and step of who handed it over, on both engines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from builders.fresh_engine import run_fresh
from builders.threads import elsewhere
from builders.written_banks import Written


def test_outside_of_any_stage_nothing_is_carried(engine: Any, recorded: Written) -> None:
    """Not even a step: what a process starts between its steps may go on for its whole life."""
    engine.step(3)

    assert engine.carried() is None
    assert engine.carry(None) is None


def test_a_thread_is_inside_of_what_it_carries_until_it_lets_go(engine: Any, recorded: Written) -> None:
    def work() -> None:
        for name in ("before", "inside", "after"):
            before = engine.carry(carried) if name == "inside" else None
            for _ in range(3):
                with engine.mstx_range(name):
                    seen.append((engine.current_stage(), engine.current_step()))
            engine.carry(before)

    seen: list[Any] = []
    engine.step(3)
    with engine.stage("s"):
        carried = engine.carried()
    engine.step(4)
    elsewhere(work)

    assert seen == [(None, 4)] * 3 + [("s", 3)] * 3 + [(None, 4)] * 3
    assert [(one.stage, one.step) for one in recorded.ranges if one.name != "s"] == seen
    assert {one.depth for one in recorded.ranges} == {0}


def test_at_step_is_carried_without_a_stage(engine: Any, recorded: Written) -> None:
    seen: list[Any] = []
    engine.step(3)
    with engine.at_step(50):
        carried = engine.carried()
    elsewhere(lambda: (engine.carry(carried), seen.append((engine.current_stage(), engine.current_step()))))

    assert seen == [(None, 50)]


def test_without_a_step_that_of_the_process_holds_where_it_is_carried_to(engine: Any) -> None:
    found = run_fresh(
        engine,
        """
        written = Written(engine)
        with engine.stage("s"):
            carried = engine.carried()
        before = engine.carry(carried), engine.current_stage(), engine.current_step()
        engine.step()
        result = [*before[1:], engine.current_step(), engine.carry(before[0]) == carried, engine.current_stage()]
        """,
    )

    assert found == ["s", None, 0, True, None]


def test_a_stage_of_its_own_is_inside_of_what_is_carried(engine: Any, recorded: Written) -> None:
    def work() -> None:
        before = engine.carry(carried)
        with engine.stage("own"):
            seen.append(engine.current_stage())
        seen.append(engine.current_stage())
        engine.carry(before)
        seen.append(engine.current_stage())

    seen: list[Any] = []
    with engine.stage("s"):
        carried = engine.carried()
    elsewhere(work)

    assert seen == ["own", "s", None]


def test_tasks_of_a_loop_that_the_thread_runs_inherit_it(engine: Any, recorded: Written) -> None:
    async def task() -> None:
        seen.append((engine.current_stage(), engine.current_step()))

    async def main() -> None:
        await asyncio.gather(task(), task())

    def work() -> None:
        before = engine.carry(carried)
        asyncio.run(main())
        engine.carry(before)
        asyncio.run(main())

    seen: list[Any] = []
    engine.step(3)
    with engine.stage("s"):
        carried = engine.carried()
    engine.step(4)
    elsewhere(work)

    assert seen == [("s", 3)] * 2 + [(None, 4)] * 2


def test_what_is_no_number_is_refused(engine: Any) -> None:
    with pytest.raises(TypeError):
        engine.carry("s")
