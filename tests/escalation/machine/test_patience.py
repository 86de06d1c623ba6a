"""Ranks that others wait for: a window near HCCL's time-out is bounded, and the acknowledgement says so before it."""

from __future__ import annotations

import pytest
from builders.escalation_world import World

from mstxkit.escalation.machine import moves
from mstxkit.store.hccl import Patience

SHORT = Patience(60, "HCCL_EXEC_TIMEOUT, as set in its environment", {"full": 4.0, "kernels": 40.0})


def ordered_s(world: World) -> float:
    (start,) = [action for action in world.ranks[0].did if isinstance(action, moves.StartSession)]
    return start.seconds


def world_with(patience: Patience | None) -> World:
    world = World()
    world.ranks[0].machine.patience = patience
    return world


def test_what_is_shorter_anyway_is_no_matter() -> None:
    world = world_with(SHORT)
    asked = world.ask(preset="full", limits={"seconds": 10})
    world.ranks[0].advance(1)
    world.ranks[0].run("actor_update")

    assert ordered_s(world) == 10
    assert "each session" not in world.ranks[0].last(asked.id).reason


@pytest.mark.parametrize("patience", [SHORT, None])
def test_with_force_and_where_nobody_waits_it_takes_what_it_may(patience: Patience | None) -> None:
    world = world_with(patience)
    asked = world.ask(preset="full", **({} if patience is None else {"force": True}))
    world.ranks[0].advance(1)
    world.ranks[0].run("actor_update")

    assert ordered_s(world) == 50
    assert not world.ranks[0].last(asked.id).reason


def test_where_start_and_stop_alone_come_near_it_is_refused_with_what_to_do() -> None:
    world = world_with(SHORT)
    asked = world.ask(preset="kernels")
    report = world.ranks[0].last(asked.id)

    assert report.state == "refused"
    assert "alone took 40 s" in report.reason
    assert "--force records all the same" in report.reason
