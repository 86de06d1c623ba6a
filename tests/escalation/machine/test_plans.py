"""Windows that a configuration names: each begins at its step, on every rank alike, and ends in a stated state."""

from __future__ import annotations

from typing import Any

import pytest
from builders.escalation_world import Rank, World

from mstxkit.escalation.machine import moves
from mstxkit.escalation.machine.plans import explain_wait, first_step
from mstxkit.store.request import WHOLE_STEPS, Planned, Request


def from_the_start(size: int = 1, **of: Any) -> World:
    """Ranks that were there from the first step on."""
    made = World(size, **of)
    for rank in made.ranks:
        assert rank.machine is not None
        rank.machine.placing.is_own = True
    return made


@pytest.fixture
def world() -> World:
    return from_the_start()


def plan(world: World, first: int, steps: int = 1, counted_from: str = "training", **given: Any) -> Request:
    return world.ask(steps=steps, planned={"first_step": first, "counted_from": counted_from}, **given)


def trains(rank: Rank, *steps: int, stages: tuple[str, ...] = ("actor_generate", "actor_update")) -> None:
    for step in steps:
        rank.advance(step)
        for stage in stages:
            rank.run(stage)


def test_a_window_waits_for_its_step_and_records_it_to_the_end(world: World, rank: Rank) -> None:
    asked = plan(world, 3, steps=2)
    waiting = rank.last(asked.id)
    trains(rank, 1, 2, 3, 4, 5)

    report = rank.last(asked.id)
    assert (waiting.state, waiting.reason) == ("queued", "planned for step 3")
    assert rank.stages_recorded() == [("actor_update", 3), ("actor_update", 4)]
    assert (report.state, report.first_step, report.last_step, report.recorded_steps) == ("done", 3, 4, (3, 4))


def test_the_very_first_stage_may_be_in_a_window(world: World, rank: Rank) -> None:
    plan(world, 1, stage=["actor_generate", "actor_update"], counted_from="process")
    trains(rank, 40, 41)

    assert rank.stages_recorded() == [("actor_generate", 40), ("actor_update", 40)]


@pytest.mark.parametrize(
    ("counted_from", "origin", "step"),
    [("training", 1, 3), ("training", 0, 2), ("training", 100, 3), ("process", 0, 2), ("process", 100, 102)],
)
def test_step_3_of_a_configuration_is_this_step_of_a_run_that_began_there(
    counted_from: str, origin: int, step: int
) -> None:
    assert first_step(Planned(3, counted_from), origin) == step


def test_what_comes_before_the_first_step_does_not_say_where_steps_begin(world: World, rank: Rank) -> None:
    """verl hands its workers the weights in step 0; its first step is 1."""
    plan(world, 2)
    trains(rank, 0, stages=("weight_sync",))
    trains(rank, 1, 2, 3)

    assert rank.stages_recorded() == [("actor_update", 2)]


def test_where_the_run_counts_otherwise_both_numbers_are_told(world: World, rank: Rank) -> None:
    asked = plan(world, 5)
    trains(rank, 0)

    assert rank.last(asked.id).reason == "planned for step 4, 5 in the configuration"
    assert explain_wait(Planned(5, "process"), None) == "planned for step 5 of this start"


def test_windows_follow_each_other_without_a_cooldown_and_other_requests_have_one(world: World, rank: Rank) -> None:
    first, second = plan(world, 2), plan(world, 4)
    trains(rank, 1, 2, 3)
    other = world.ask(occasion="by hand")
    trains(rank, 4, 5)

    assert rank.stages_recorded() == [("actor_update", 2), ("actor_update", 4)]
    assert (rank.state(first.id), rank.state(second.id), rank.state(other.id)) == ("done", "done", "queued")


def test_a_request_in_between_is_served_before_a_window_that_is_far(world: World, rank: Rank) -> None:
    window = plan(world, 50)
    other = world.ask(occasion="by hand")
    trains(rank, 1, 2)

    assert (rank.state(other.id), rank.state(window.id)) == ("done", "queued")


def test_a_window_in_which_another_request_was_under_way_says_so(world: World, rank: Rank) -> None:
    trains(rank, 1)
    by_hand = world.ask(occasion="by hand", stage="train_step")  # which never comes
    window = plan(world, 3)
    trains(rank, 2, 3, 4)

    assert rank.state(window.id) == "expired"
    assert rank.last(window.id).reason == (
        f"planned for step 3; waits for request {by_hand.id}, under way here: it was over in step 4, and nothing could "
        "begin before"
    )


def test_a_window_that_was_heard_of_in_its_second_step_says_what_is_missing(world: World, rank: Rank) -> None:
    trains(rank, 1, 2, 3)
    rank.advance(4)
    asked = plan(world, 3, steps=2)
    trains(rank, 4, 5)

    report = rank.last(asked.id)
    assert (report.state, report.recorded_steps) == ("done", (4,))
    assert report.reason == "nothing was recorded of step 3: heard of too late, or the stage is not in it"


def test_a_window_that_training_does_not_come_to_expires_with_the_process(world: World, rank: Rank) -> None:
    asked = plan(world, 30)
    trains(rank, 1, 2)
    rank.tell(moves.Ending())

    assert rank.state(asked.id) == "expired"
    assert rank.last(asked.id).reason == "planned for step 30: the process ended before that"


def test_ranks_that_do_not_exist_are_refused_on_every_rank_alike() -> None:
    world = from_the_start(size=2)
    asked = Request(("actor_update",), (1, 7), planned=Planned(3))

    world.publish(moves.RequestReceived(asked))
    world.deliver()

    assert [rank.last(asked.id).state for rank in world.ranks] == ["refused", "refused"]
    assert {rank.last(asked.id).reason for rank in world.ranks} == {"this run has the ranks 0 to 1"}


def test_all_ranks_record_the_same_step_and_none_waits_for_another() -> None:
    world = from_the_start(size=3)
    asked = plan(world, 2, ranks="all", counted_from="process")
    for rank in world.ranks:  # each by itself, nothing is delivered in between
        trains(rank, 10, 11, 12)

    assert {tuple(rank.stages_recorded()) for rank in world.ranks} == {(("actor_update", 11),)}
    assert {rank.state(asked.id) for rank in world.ranks} == {"done"}


def test_a_rank_that_was_not_there_from_the_first_step_on_keeps_to_the_word_of_rank_0() -> None:
    world = World(size=2)
    first, late = world.ranks
    trains(first, 1, 2)
    asked = plan(world, 5, ranks="all", counted_from="process")
    late.advance(3)
    world.deliver()
    for rank in world.ranks:
        trains(rank, 3, 4, 5, 6)

    assert [rank.stages_recorded() for rank in world.ranks] == [[("actor_update", 5)]] * 2
    assert [rank.state(asked.id) for rank in world.ranks] == ["done", "done"]


def test_a_restarted_process_keeps_the_step_at_which_its_window_begins(world: World, rank: Rank) -> None:
    plan(world, 4)
    trains(rank, 0, 1)
    rank.kill()
    rank.restart()
    trains(rank, 2, 3, 4)

    assert rank.stages_recorded() == [("actor_update", 3)]


def test_whole_steps_are_one_session_from_the_first_to_the_last(world: World, rank: Rank) -> None:
    asked = plan(world, 2, steps=2, stage="all")
    trains(rank, 1, 2, 3, 4)

    report = rank.last(asked.id)
    assert rank.stages_recorded() == [("all", 2)]
    assert (report.state, report.recorded, report.recorded_steps) == ("done", 1, (2, 3))


def test_to_the_end_of_the_run_is_done_at_its_end(world: World, rank: Rank) -> None:
    asked = plan(world, 2, steps=1_000_000, stage="all")
    trains(rank, 1, 2, 3)
    rank.tell(moves.Ending())

    assert rank.state(asked.id) == "done"
    assert rank.last(asked.id).recorded_steps == (2, 3)


@pytest.mark.parametrize(("steps", "until"), [(2, 5), (1_000_000, 4)], ids=["two steps", "to the end of the run"])
def test_what_is_to_begin_is_said_from_the_step_before_on_and_where_it_never_ends_only_until_it_has(
    steps: int, until: int, world: World, rank: Rank
) -> None:
    """Each time it is said, a file of the run is written."""
    asked, said = plan(world, 4, steps=steps), []
    for step in range(1, 8):
        world.pass_s(10)
        rank.advance(step)
        assert rank.machine is not None
        said += [step for announced in rank.machine.announced() if announced == (asked.id, "actor_update")]
        rank.run("actor_update")

    assert said == list(range(3, until + 1))


def test_a_session_that_is_put_off_costs_an_occurrence_and_not_the_window(world: World, rank: Rank) -> None:
    asked = plan(world, 2, steps=2)
    trains(rank, 1)
    rank.backend.fails = "late"
    trains(rank, 2)
    rank.backend.fails = ""
    trains(rank, 3, 4)

    assert rank.stages_recorded() == [("actor_update", 3)]
    assert rank.state(asked.id) == "done"
    assert "an occurrence was passed over" in rank.last(asked.id).reason


def test_a_cancelled_window_records_nothing(world: World, rank: Rank) -> None:
    asked = plan(world, 3)
    trains(rank, 1)
    rank.tell(moves.CancelReceived(asked.id))
    trains(rank, 2, 3, 4)

    assert (rank.state(asked.id), rank.stages_recorded()) == ("cancelled", [])


def test_whole_steps_that_nobody_planned_begin_with_the_next_one_and_not_in_the_middle() -> None:
    world = World(1)
    (rank,) = world.ranks
    trains(rank, 1)
    asked = world.ask(stage="all", steps=1)
    rank.run("actor_update")
    trains(rank, 2, 3)

    report = rank.last(asked.id)
    assert (report.state, report.recorded_steps) == ("done", (2,))
    assert rank.stages_recorded() == [("all", 2)]


def test_ranks_that_are_asked_for_a_whole_step_together_record_the_same_one() -> None:
    world = World(2)
    for step in range(4):
        for rank in world.ranks:
            trains(rank, step)
        world.pass_s(1)
    asked = world.ask(stage="all", steps=1, ranks=[0, 1])
    for step in range(4, 12):
        for rank in world.ranks:
            trains(rank, step)
        world.pass_s(1)
        world.deliver()

    recorded = [rank.stages_recorded() for rank in world.ranks]
    assert recorded[0] == recorded[1]
    assert [stage for stage, _ in recorded[0]] == ["all"]
    assert {rank.last(asked.id).state for rank in world.ranks} == {"done"}


def test_whole_steps_are_recorded_by_the_thread_that_counts_them_whoever_enters_a_stage_first(
    world: World, rank: Rank
) -> None:
    """Else nobody would end them: they are over as that one says so."""
    rank.advance(2)
    asked = plan(world, 3, steps=2, stage=WHOLE_STEPS)
    rank.tell(moves.StepAdvanced(3, thread=None))  # the watcher has noticed
    rank.enter("reward", thread=1)
    before = rank.backend.open
    rank.leave()
    trains(rank, 3, 4, 5)

    assert before is None
    assert rank.backend.open is None
    assert (rank.state(asked.id), rank.last(asked.id).recorded_steps) == ("done", (3, 4))
