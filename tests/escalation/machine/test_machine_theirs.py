"""A rank beside somebody else's profiler: it waits, it gives way, and says so."""

from __future__ import annotations

import pytest
from builders.escalation_world import Rank, World

from mstxkit.escalation.machine import moves


def at_step(step: int, size: int = 1) -> World:
    world = World(size)
    for rank in world.ranks:
        rank.advance(step)
    return world


@pytest.fixture
def world() -> World:
    return at_step(5)


def test_a_request_waits_for_a_profile_that_is_on_and_runs_after_it(world: World, rank: Rank) -> None:
    rank.tell(moves.TheirProfiles((("verl's profile, steps 5 to 6", 0),)))
    asked = world.ask()
    rank.run("actor_update")
    waits = rank.last(asked.id)
    rank.tell(moves.TheirProfiles())
    rank.advance(7)
    rank.run("actor_update")
    rank.advance(8)

    assert (waits.state, waits.reason) == ("queued", "waits for verl's profile, steps 5 to 6")
    assert rank.stages_recorded() == [("actor_update", 7)]
    assert (rank.state(asked.id), rank.last(asked.id).reason) == ("done", "")


@pytest.mark.parametrize(("steps", "records"), [(1, True), (2, False)])
def test_it_does_not_begin_what_a_planned_profile_would_cut_short(
    steps: int, records: bool, world: World, rank: Rank
) -> None:
    rank.tell(moves.TheirProfiles((("verl's profile, step 7", 2),)))
    world.ask(steps=steps)
    rank.advance(6)
    rank.run("actor_update")

    assert bool(rank.stages_recorded()) is records


def test_it_expires_where_theirs_never_ends(world: World, rank: Rank) -> None:
    rank.tell(moves.TheirProfiles((("verl's profile", 0),)))
    asked = world.ask(expires_ns=world.wall_ns + 60 * moves.NS)
    world.pass_s(61)

    report = rank.last(asked.id)
    assert (report.state, report.reason) == ("expired", "waits for verl's profile; 0 of 1 occurrences recorded")


def test_where_nothing_was_recorded_it_has_failed(world: World, rank: Rank) -> None:
    asked = world.ask()
    rank.advance(6)
    rank.enter("actor_update")
    rank.backend.fails = "stop"
    rank.tell(moves.GiveWay("verl", 0))

    report = rank.last(asked.id)
    assert report.state == "failed"
    assert "cut short by verl's profile" in report.reason


def test_a_rank_that_waits_is_not_ready_for_a_step_of_all() -> None:
    world = at_step(5, size=2)
    world.ranks[1].tell(moves.TheirProfiles((("verl's profile, steps 7 to 8", 2),)))
    asked = world.ask(ranks=[0, 1])
    waits = world.ranks[1].last(asked.id)
    world.pass_s(31)
    world.deliver()

    assert waits.reason == "waits for verl's profile, steps 7 to 8"
    assert [rank.state(asked.id) for rank in world.ranks] == ["expired", "expired"]
    assert (
        "rank 1 was not ready within 30 s (waits for verl's profile, steps 7 to 8)"
        in world.ranks[0].last(asked.id).reason
    )


def test_with_nothing_open_there_is_nothing_to_give_way_with(world: World, rank: Rank) -> None:
    asked = world.ask()
    rank.tell(moves.GiveWay("verl", 0))

    assert rank.state(asked.id) == "armed"
