"""One rank or a few, told what happens: who records what, and what is said about it."""

from __future__ import annotations

import json

import pytest
from builders.escalation_world import QUICK, Rank, World, request

from mstxkit.errors import ConfigError
from mstxkit.escalation.machine import moves
from mstxkit.escalation.machine.machine import Machine
from mstxkit.escalation.machine.moves import NS, Now
from mstxkit.store.request import WHOLE_STEPS

UPDATES = ("actor_update",)  # whose pieces are told


def test_the_next_entry_of_the_stage_is_covered_and_light_capture_returns(world: World, rank: Rank) -> None:
    rank.advance(7)
    asked = world.ask(preset="kernels")
    rank.advance(8)
    rank.run("actor_generate")
    rank.did.clear()

    rank.run("actor_update")

    assert [type(action).__name__ for action in rank.did if not isinstance(action, moves.Acknowledge)] == [
        "StartSession",
        "StopSession",
        "ResumeLight",
    ]
    assert rank.did[0] == moves.StartSession(asked.id, "actor_update", 8, "kernels", (), 50.0, None)
    assert [report.state for report in rank.said] == ["armed", "running", "draining", "armed"]


def test_an_event_in_the_middle_of_another_takes_none_of_its_actions_away(world: World, rank: Rank) -> None:
    """As a signal's handler of the program has a stage: the session was never begun, and held to be open."""
    rank.advance(7)
    world.ask()
    rank.advance(8)

    interrupts: list[moves.Event] = [moves.StageEntered("reward"), moves.StageLeft("reward")]

    class Interrupted(int):
        def __ne__(self, other: object) -> bool:
            while interrupts and rank.machine is not None:
                rank.machine.handle(interrupts.pop(0), world.now())
            return int(self) != other

    assert rank.machine is not None
    actions = rank.machine.handle(moves.StageEntered("actor_update", Interrupted(0)), world.now())

    assert [type(action).__name__ for action in actions] == ["StartSession", "Acknowledge"]


def test_what_is_heard_inside_a_step_begins_with_the_first_occurrence_of_a_later_one_and_says_so(
    world: World, rank: Rank
) -> None:
    rank.advance(1)
    rank.enter("actor_update")
    asked = world.ask(steps=2)
    armed = rank.last(asked.id)
    rank.leave()
    for step in (1, 2, 3, 4):
        rank.advance(step)
        for _ in range(3):
            rank.run("actor_update")

    assert (armed.state, armed.reason) == ("armed", "begins in a later step than 1, in which it was heard")
    assert rank.stages_recorded() == [("actor_update", step) for step in (2, 3) for _ in range(3)]
    assert (rank.state(asked.id), rank.last(asked.id).reason) == ("done", "")


def test_a_stage_that_comes_seldom_is_waited_for(world: World, rank: Rank) -> None:
    rank.advance(1)
    asked = world.ask()
    for step in (2, 3, 4, 5):
        rank.advance(step)
        rank.run("actor_update" if step == 4 else "actor_generate")

    assert rank.stages_recorded() == [("actor_update", 4)]
    assert rank.state(asked.id) == "done"


def test_a_step_of_which_a_part_had_no_session_is_left_out(world: World, rank: Rank) -> None:
    rank.advance(1)
    world.ask()
    rank.advance(2)
    rank.backend.theirs = True
    rank.run("actor_update")
    rank.backend.theirs = False
    rank.run("actor_update")
    rank.advance(3)
    rank.run("actor_update")

    assert rank.stages_recorded() == [("actor_update", 3)]


def test_every_occurrence_in_a_step_is_recorded_but_one_inside_itself_is_no_second(world: World, rank: Rank) -> None:
    rank.advance(1)
    world.ask()
    rank.run("actor_update")
    rank.advance(2)
    rank.run("actor_update")
    rank.enter("actor_update")
    rank.run("actor_update")
    rank.leave()

    assert rank.stages_recorded() == [("actor_update", 2)] * 2


def test_occurrences_are_counted_for_each_stage(world: World, rank: Rank) -> None:
    rank.advance(1)
    asked = world.ask(stage=["actor_update", "actor_generate"], occurrences=2)
    for stage in ("actor_update", "actor_update", "actor_update", "actor_generate", "actor_generate"):
        rank.run(stage)

    assert [stage for stage, _ in rank.stages_recorded()] == ["actor_update"] * 2 + ["actor_generate"] * 2
    assert rank.state(asked.id) == "done"


def test_several_stages_begin_with_a_step_that_is_whole(world: World, rank: Rank) -> None:
    rank.advance(1)
    rank.run("actor_generate")
    world.ask(stage=["actor_update", "actor_generate"])
    rank.run("actor_update")
    rank.advance(2)
    rank.run("actor_generate")
    rank.run("actor_update")

    assert rank.stages_recorded() == [("actor_generate", 2), ("actor_update", 2)]


def test_where_no_step_is_ever_told_a_step_is_one_occurrence(world: World, rank: Rank) -> None:
    asked = world.ask(steps=2)
    for _ in range(3):
        rank.run("actor_update")

    assert rank.stages_recorded() == [("actor_update", None)] * 2
    assert rank.state(asked.id) == "done"


@pytest.mark.parametrize(
    ("given", "suspects", "reason"),
    [
        ({"ranks": "suspect+peer"}, (), "nobody is suspected in this run; name ranks, or all"),
        ({"ranks": "dp:0"}, (), "it does not say which ranks dp:0 are; name ranks, or ask by mstxkit escalate"),
        ({"ranks": "suspect+peer"}, (7,), "this run has the ranks 0 to 0"),
    ],
)
def test_ranks_that_are_not_there_are_refused_by_every_rank(
    given: dict, suspects: tuple, reason: str, world: World
) -> None:
    asked = world.ask(suspects, **given)

    assert (world.ranks[0].state(asked.id), world.ranks[0].last(asked.id).reason) == ("refused", reason)


def test_the_suspect_and_its_peer_are_whom_the_event_names() -> None:
    world = World(3)
    asked = world.ask((0, 2), ranks="suspect+peer", occurrences=1)

    assert [rank.number for rank in world.ranks if rank.said] == [0, 2]
    assert world.ranks[2].state(asked.id) == "armed"


def test_a_stage_on_another_thread_neither_begins_a_second_session_nor_ends_this_one(world: World, rank: Rank) -> None:
    world.ask()
    rank.enter("actor_update", thread=1)
    rank.enter("actor_update", thread=2)
    rank.leave()

    assert rank.backend.open is not None
    rank.leave()
    assert rank.backend.open is None


def test_nothing_begins_on_another_thread_while_a_session_is_still_being_stopped(world: World) -> None:
    machine, now = world.ranks[0].machine, world.now()
    assert machine is not None
    machine.handle(moves.RequestReceived(world.made()), now)
    machine.handle(moves.StageEntered("actor_update", thread=1), now)
    stops = machine.handle(moves.StageLeft("actor_update", thread=1), now)
    meanwhile = machine.handle(moves.StageEntered("actor_update", thread=2), now)

    assert [type(action) for action in stops] == [moves.StopSession, moves.Acknowledge]
    assert meanwhile == ()


def test_a_cancel_that_comes_before_its_request_holds(world: World, rank: Rank) -> None:
    asked = world.made()
    rank.tell(moves.CancelReceived(asked.id, "not any more"))
    rank.tell(moves.RequestReceived(asked))

    assert (rank.state(asked.id), rank.last(asked.id).reason) == ("cancelled", "not any more")


def test_a_cancel_and_an_agreed_step_that_came_early_outlast_a_restart() -> None:
    world = World(2)
    rank = world.ranks[1]
    cancelled, agreed = world.made(ranks=[1]), world.made(ranks="all")
    rank.tell(moves.CancelReceived(cancelled.id))
    rank.tell(moves.Commit(agreed.id, 5))
    rank.kill()
    rank.restart()
    rank.tell(moves.RequestReceived(cancelled))
    rank.tell(moves.RequestReceived(agreed))

    assert rank.state(cancelled.id) == "cancelled"
    assert (rank.state(agreed.id), rank.last(agreed.id).first_step) == ("armed", 5)


def test_seconds_are_enforced_at_the_next_event_of_the_thread_and_the_overshoot_is_told(
    world: World, rank: Rank
) -> None:
    asked = world.ask(occurrences=1, limits={"seconds": 2})
    rank.enter("actor_update")
    world.pass_s(3)
    still_open = rank.backend.open is not None
    rank.tell(moves.Tick(thread=0))

    assert still_open and rank.backend.open is None
    assert rank.state(asked.id) == "done"
    assert rank.last(asked.id).reason == "actor_update was cut short by its limit of 2 s, at 3 s"


def test_bytes_are_enforced_and_the_rest_of_the_occurrence_is_left_alone(world: World, rank: Rank) -> None:
    rank.advance(1)
    asked = world.ask(limits={"bytes": 1000})
    rank.advance(2)
    rank.enter("actor_update")
    rank.tell(moves.Tick(thread=0, session_bytes=1200))
    rank.run("actor_update")
    rank.leave()

    assert len(rank.backend.recorded) == 1
    assert rank.last(asked.id).reason == "actor_update was cut short by its limit of 1000 bytes, at 1200"


@pytest.mark.parametrize("fails", ["start", "stop"])
def test_a_full_disk_fails_the_request_and_the_next_one_is_tried(fails: str, world: World, rank: Rank) -> None:
    rank.advance(1)
    asked, other = world.ask(steps=3), world.ask(occasion="again")
    rank.advance(2)
    rank.backend.fails = fails
    rank.run("actor_update")
    rank.backend.fails = ""
    world.pass_s(QUICK.cooldown_s)

    assert rank.state(asked.id) == "failed"
    assert "the disk is full; 0 of 3 steps recorded" in rank.last(asked.id).reason
    assert rank.backend.light
    assert rank.state(other.id) == "armed"


PASSED_OVER = "an occurrence was passed over: the disk had not answered in time"


def test_an_occurrence_that_is_passed_over_does_not_count(world: World, rank: Rank) -> None:
    asked = world.ask(occurrences=2)
    for is_late in (True, False, True, False, False):
        rank.backend.fails = "late" if is_late else ""
        rank.run("actor_update")

    assert rank.stages_recorded() == [("actor_update", None)] * 2
    assert (rank.state(asked.id), rank.last(asked.id).reason) == ("done", PASSED_OVER)
    assert rank.backend.light


def test_a_window_of_steps_begins_with_the_first_that_is_not_passed_over(world: World, rank: Rank) -> None:
    asked = world.ask(steps=2)
    for step in (4, 5, 6, 7):
        rank.backend.fails = "late" if step == 4 else ""
        rank.advance(step)
        rank.run("actor_update")

    last = rank.last(asked.id)
    assert rank.stages_recorded() == [("actor_update", 5), ("actor_update", 6)]
    assert (last.state, last.first_step, last.last_step, last.reason) == ("done", 5, 6, PASSED_OVER)


def test_a_window_is_over_where_steps_begin_anew_after_it_and_keeps_nobody_waiting(world: World, rank: Rank) -> None:
    """As where each epoch counts from 0: the step after its last one never comes, and its own come again and again."""
    rank.advance(98)
    asked, other = world.ask(), world.ask(occasion="again")
    rank.advance(99)
    rank.run("actor_update")
    rank.advance(0)
    world.pass_s(QUICK.cooldown_s)
    for step in (98, 99):
        rank.advance(step)
        rank.run("actor_update")

    assert (rank.state(asked.id), rank.last(asked.id).recorded) == ("done", 1)
    assert (rank.state(other.id), rank.last(other.id).recorded_steps) == ("done", (98,))


def test_a_window_that_has_begun_goes_on_past_an_occurrence_without_a_session_and_says_so(
    world: World, rank: Rank
) -> None:
    asked = world.ask(steps=3)
    for step in (4, 5, 6, 7):
        rank.backend.fails = "late" if step == 5 else ""
        rank.advance(step)
        rank.run("actor_update")

    last = rank.last(asked.id)
    assert (last.state, last.first_step, last.last_step, last.recorded_steps) == ("done", 4, 6, (4, 6))
    assert last.reason == PASSED_OVER


@pytest.mark.parametrize(
    ("late", "recorded", "window"),
    [
        (("actor_generate", 2), [("actor_generate", 3), ("actor_update", 3)], (3, 3)),
        (("actor_update", 2), [("actor_generate", 2), ("actor_generate", 3), ("actor_update", 3)], (2, 3)),
    ],
)
def test_of_several_stages_each_is_recorded_though_one_is_passed_over(
    late: tuple[str, int], recorded: list[tuple[str, int]], window: tuple[int, int], world: World, rank: Rank
) -> None:
    rank.advance(1)
    asked = world.ask(stage=["actor_generate", "actor_update"])
    for step in (2, 3, 4):
        rank.advance(step)
        for stage in ("actor_generate", "actor_update"):
            rank.backend.fails = "late" if late == (stage, step) else ""
            rank.run(stage)

    last = rank.last(asked.id)
    assert rank.stages_recorded() == recorded
    assert (last.state, (last.first_step, last.last_step)) == ("done", window)


def test_a_sample_that_is_passed_over_is_one_of_the_next_occurrence(world: World, rank: Rank) -> None:
    asked = world.ask(occurrences=1, sample={"per": "micro_batch", "skip": 0, "record": 1})
    sessions = []
    for fails in ("late", ""):
        rank.backend.fails = fails
        rank.enter("actor_update")
        for _ in range(2):
            rank.tell(moves.BoundaryEntered("micro_batch", UPDATES))
            sessions.append(rank.backend.open is not None)
            rank.backend.fails = ""
            rank.tell(moves.BoundaryLeft("micro_batch", UPDATES))
        rank.leave()

    assert sessions == [False, False, True, False]
    assert rank.state(asked.id) == "done"


def test_a_rank_that_passes_over_the_agreed_step_is_too_late_and_the_others_record() -> None:
    world = World(2)
    world.has_long_been_in(1)
    asked = world.ask(ranks="all", steps=2)
    world.ranks[1].backend.fails = "late"
    for step in range(2, 7):
        for rank in world.ranks:
            rank.advance(step)
            rank.run("actor_update")
        world.ranks[1].backend.fails = "" if step >= 3 else "late"
    first, late = (rank.last(asked.id) for rank in world.ranks)

    assert (first.state, first.recorded_steps, first.first_step) == ("done", (3, 4), late.first_step)
    assert (late.state, late.recorded) == ("expired", 0)
    assert late.reason == "the agreed step 3 had begun here: the disk had not answered in time"


@pytest.mark.parametrize("stage", [("actor_update",), ("actor_generate", "actor_update"), (WHOLE_STEPS,)])
def test_ranks_of_one_device_record_what_was_agreed_one_after_another(stage: tuple[str, ...]) -> None:
    """Whose step has come while another process has the device has its turn when that window is over."""
    world = World(3)
    world.has_long_been_in(1)
    asked = world.ask(stage=list(stage), ranks="all", steps=2)
    waits: list[str] = []
    for step in range(2, 12):
        for number, rank in enumerate(world.ranks):
            has_it = any(not other.last(asked.id).has_ended for other in world.ranks[:number])
            rank.backend.fails = "taken" if has_it else ""
            rank.advance(step)
            for name in stage:
                rank.run("actor_update" if name == WHOLE_STEPS else name)
            waits += [rank.last(asked.id).reason] if step == 3 else []
    reports = [rank.last(asked.id) for rank in world.ranks]

    assert [(report.state, report.recorded_steps) for report in reports] == [
        ("done", (3, 4)), ("done", (5, 6)), ("done", (7, 8))
    ]  # fmt: skip
    passed_over = "an occurrence was passed over: device 0 is taken by process 7 on here"
    assert waits == ["", *2 * [f"its turn begins with step 5; {passed_over}"]]
    assert [report.reason for report in reports] == ["", passed_over, passed_over]


def test_a_window_that_was_agreed_on_stays_as_it_is_whatever_is_passed_over_in_it() -> None:
    world = World(2)
    world.has_long_been_in(1)
    asked = world.ask(ranks="all", steps=2)
    for step in range(2, 7):
        for rank in world.ranks:
            rank.advance(step)
            rank.backend.fails = "late" if step == 4 and rank.number == 1 else ""
            rank.run("actor_update")
    last = world.ranks[1].last(asked.id)

    assert (last.state, last.first_step, last.last_step, last.recorded_steps) == ("done", 3, 4, (3,))
    assert last.reason == PASSED_OVER


def test_a_cancel_while_a_session_is_put_off_ends_the_request(world: World, rank: Rank) -> None:
    asked = world.ask()
    rank.backend.fails = "late"
    rank.run("actor_update")
    world.publish(moves.CancelReceived(asked.id))
    world.deliver()

    assert rank.state(asked.id) == "cancelled"


def test_what_was_put_off_counts_as_begun_after_a_restart(world: World, rank: Rank) -> None:
    """Whether it began after its memory was saved, nobody knows."""
    asked = world.ask()
    rank.backend.fails = "late"
    rank.run("actor_update")
    rank.kill()
    rank.restart()
    world.pass_s(QUICK.cooldown_s)
    rank.run("actor_update")

    assert (rank.state(asked.id), rank.backend.recorded) == ("failed", [])


def test_a_session_that_somebody_else_ended_fails(world: World, rank: Rank) -> None:
    asked = world.ask()
    rank.enter("actor_update")
    rank.backend.open = None
    rank.tell(moves.SessionStopped())

    assert (rank.state(asked.id), rank.backend.light) == ("failed", True)


def test_pieces_of_another_stage_and_of_another_kind_are_none_of_the_sample(world: World, rank: Rank) -> None:
    """A micro-batch of a whole step is none of the update that begins in it."""
    rank.advance(1)
    world.ask(occurrences=1, sample={"per": "micro_batch", "skip": 1, "record": 1})
    rank.enter("actor_update")
    seen = []
    for stages in (("train_step",), UPDATES, ("train_step",), (*UPDATES, "train_step"), ("train_step",)):
        rank.tell(moves.BoundaryEntered("mini_batch", stages))
        rank.tell(moves.BoundaryEntered("micro_batch", stages))
        seen.append(rank.backend.open is not None)
        rank.tell(moves.BoundaryLeft("micro_batch", stages))
    rank.leave()

    assert seen == [False, False, False, True, False]


def test_an_occurrence_that_is_too_short_for_its_sample_is_told(world: World, rank: Rank) -> None:
    rank.advance(1)
    asked = world.ask(sample={"per": "decode_step", "skip": 8})
    rank.advance(2)
    rank.run("actor_update")
    rank.advance(3)

    assert rank.state(asked.id) == "failed"
    assert "actor_update was not recorded in steps 2 to 2" in rank.last(asked.id).reason
    assert "actor_update was too short for its sample: 0 decode_step, skip 8" in rank.last(asked.id).reason


def test_a_sample_that_found_fewer_pieces_than_asked_says_how_many_there_were(world: World, rank: Rank) -> None:
    rank.advance(1)
    asked = world.ask(occurrences=1, sample={"per": "micro_batch", "skip": 1, "record": 5})
    rank.enter("actor_update")
    for _ in range(2):
        rank.tell(moves.BoundaryEntered("micro_batch", UPDATES))
        rank.tell(moves.BoundaryLeft("micro_batch", UPDATES))
    rank.leave()
    rank.advance(2)

    assert rank.state(asked.id) == "done"
    words = "its sample found 1 of 5 micro_batch: actor_update had 2 micro_batch and skip=1; record or skip fewer"
    assert rank.last(asked.id).reason == words


def test_a_request_expires_and_a_set_clock_neither_hastens_nor_delays_that(world: World, rank: Rank) -> None:
    asked = world.ask(expires_ns=world.wall_ns + 100 * NS)
    world.wall_ns += 10**6 * NS
    world.pass_s(99)
    before = rank.state(asked.id)
    world.wall_ns -= 10**6 * NS
    world.pass_s(1)

    assert (before, rank.state(asked.id)) == ("armed", "expired")


def test_a_last_step_that_no_other_follows_is_done_when_the_request_expires(world: World, rank: Rank) -> None:
    rank.advance(1)
    asked = world.ask()
    rank.advance(2)
    rank.run("actor_update")
    world.pass_s(3600)

    assert rank.state(asked.id) == "done"


def test_an_asker_whose_clock_is_ahead_gets_no_longer_life(world: World, rank: Rank) -> None:
    world.wall_ns += 10**5 * NS
    asked = world.made(expires_ns=world.wall_ns + 100 * NS)
    world.wall_ns -= 10**5 * NS
    rank.tell(moves.RequestReceived(asked))
    world.pass_s(100)

    assert rank.state(asked.id) == "expired"


def test_the_hour_s_budget_makes_wait_and_the_run_s_refuses() -> None:
    world = World(policy=QUICK._replace(hour_s=10, run_s=20))
    (rank,) = world.ranks
    states = []
    for occasion in "abc":
        world.pass_s(3600)
        asked = world.ask(occurrences=1, occasion=occasion)
        states.append(rank.state(asked.id))
        rank.enter("actor_update")
        world.pass_s(10)
        rank.leave()
        waits = world.ask(occasion=f"{occasion} at once")
        world.pass_s(QUICK.cooldown_s)
        states.append(rank.last(waits.id).reason)
        rank.tell(moves.CancelReceived(waits.id))

    assert states[0] == "armed"
    assert states[1] == "waits: 10 s of sessions in an hour are used up"
    assert states[3] == "the run's budget of 20 s of sessions is used up"
    assert states[4] == "refused"


def test_an_orderly_end_closes_the_session_and_says_what_became_of_all(world: World, rank: Rank) -> None:
    rank.advance(1)
    running, waiting = world.ask(), world.ask(occasion="again")
    rank.advance(2)
    rank.enter("actor_update")
    rank.tell(moves.Ending())

    assert rank.backend.open is None
    assert rank.state(running.id) == "done"
    assert (rank.state(waiting.id), rank.last(waiting.id).reason) == (
        "failed",
        "the process ended; 0 of 1 occurrences recorded",
    )


def test_ranks_agree_on_a_step_ahead_of_all_and_record_the_same() -> None:
    world = World(3)
    world.has_long_been_in(10, 11, 10)
    asked = world.ask(ranks="all", steps=2)
    for step in range(12, 17):
        for rank in world.ranks:
            rank.advance(step)
            rank.run("actor_update")

    assert [rank.stages_recorded() for rank in world.ranks] == [[("actor_update", 13), ("actor_update", 14)]] * 3
    assert {rank.state(asked.id) for rank in world.ranks} == {"done"}


def test_where_steps_are_short_the_agreed_one_is_as_far_ahead_as_messages_take() -> None:
    world = World(2)
    for step in (1, 2):
        for rank in world.ranks:
            rank.advance(step)
        world.pass_s(0.01)
    asked = world.ask(ranks="all")

    assert world.ranks[1].last(asked.id).first_step == 2 + 20


def test_while_nobody_knows_how_long_a_step_takes_none_is_agreed() -> None:
    """The agreeing rank has just come, as after a restart: two steps ahead may be over before anybody hears of it."""
    world = World(2)
    for rank in world.ranks:
        rank.advance(1)
    asked = world.ask(ranks="all")
    too_early = [rank.last(asked.id).first_step for rank in world.ranks]
    world.pass_s(0.01)
    for rank in world.ranks:
        rank.advance(2)
    world.deliver()

    assert too_early == [None, None]
    assert [rank.last(asked.id).first_step for rank in world.ranks] == [2 + 20] * 2


def test_a_step_that_outlasts_the_messages_is_long_enough_to_be_agreed_in() -> None:
    world = World(2)
    for rank in world.ranks:
        rank.advance(1)
    asked = world.ask(ranks="all")
    world.pass_s(2 * QUICK.transport_s)
    world.deliver()

    assert [rank.last(asked.id).first_step for rank in world.ranks] == [3, 3]


def test_a_rank_that_does_not_answer_lets_the_request_expire_for_all() -> None:
    world = World(3)
    world.has_long_been_in(1)
    world.ranks[2].kill()
    asked = world.ask(ranks="all")
    world.pass_s(QUICK.agreement_s + 1)
    world.deliver()

    assert [rank.state(asked.id) for rank in world.ranks[:2]] == ["expired"] * 2
    reason = world.ranks[1].last(asked.id).reason
    assert reason.startswith("no step was agreed: rank 2 was not ready within 20 s, nothing is known of it there")
    assert reason.endswith("ask for ranks that do, or by occurrences")


def test_a_rank_that_is_only_busy_is_waited_for_longer_and_its_reason_told() -> None:
    world = World(2)
    world.has_long_been_in(1)
    world.ask(ranks=[1], occurrences=9)
    asked = world.ask(ranks="all")
    world.pass_s(QUICK.agreement_s + 1)
    world.deliver()
    waiting = world.ranks[0].state(asked.id)
    world.pass_s(QUICK.agreement_s / 2)
    world.deliver()

    assert (waiting, world.ranks[0].state(asked.id)) == ("queued", "expired")
    assert "rank 1 was not ready within 30 s (waits" in world.ranks[0].last(asked.id).reason


def test_a_lost_rank_s_end_is_stated_for_it() -> None:
    world = World(2)
    asked = world.ask(ranks=[1])
    world.ranks[1].kill()
    world.pass_s(3600 + QUICK.session_s + 2 * QUICK.agreement_s)

    assert world.ended(asked.id, 1)
    assert world.reports[-1].reason == "rank lost: its last word was armed"


def test_requests_on_which_different_ranks_agree_run_one_after_the_other() -> None:
    """All begin to wait at once, for an earlier request's cooldown: rank 1 is asked by both."""
    world = World(3)
    world.has_long_been_in(1)
    requests = [world.ask(ranks=ranks) for ranks in ("all", [0, 1], [1, 2])]
    for step in range(2, 20):
        world.deliver()
        for rank in world.ranks:
            rank.advance(step)
            rank.run("actor_update")
        world.deliver()
        world.pass_s(3)

    states = [[rank.state(asked.id) for rank in world.ranks if asked.id in rank.states()] for asked in requests]
    assert states == [["done"] * 3, ["done"] * 2, ["done"] * 2]


def test_of_two_processes_of_one_rank_the_second_does_not_agree() -> None:
    machine = Machine(0, 2, QUICK, agrees=False)
    asked = request(2, ranks="all")
    actions = machine.handle(moves.RequestReceived(asked), Now(0, 0))

    assert not machine.awaited()
    assert all(isinstance(action, moves.Acknowledge) for action in actions)


def test_a_rank_that_hears_of_the_step_too_late_says_so_and_records_no_other() -> None:
    world = World(2)
    world.has_long_been_in(1)
    world.publish(moves.RequestReceived(asked := world.made(ranks="all")))
    world.deliver_one(world.ranks[1])
    world.deliver_one(world.ranks[0])
    world.deliver_one(world.ranks[0])
    world.ranks[1].advance(3)
    world.deliver()
    world.ranks[1].run("actor_update")

    assert world.ranks[1].state(asked.id) == "expired"
    assert world.ranks[1].last(asked.id).reason == "the agreed step 3 had begun here: it is step 3"
    assert world.ranks[1].backend.recorded == []


def test_requests_of_several_ranks_run_one_after_the_other_whatever_order_they_came_in() -> None:
    world = World(2)
    world.has_long_been_in(1)
    first, second = world.made(ranks="all"), world.made(ranks="all", occasion="again")
    world.ranks[0].inbox += [moves.RequestReceived(first), moves.RequestReceived(second)]
    world.ranks[1].inbox += [moves.RequestReceived(second), moves.RequestReceived(first)]
    world.deliver()
    for step in range(2, 12):
        for rank in world.ranks:
            rank.advance(step)
            rank.run("actor_update")
        world.deliver()
        world.pass_s(3)
        world.deliver()

    assert [rank.state(asked.id) for rank in world.ranks for asked in (first, second)] == ["done"] * 4
    assert world.ranks[0].stages_recorded() == world.ranks[1].stages_recorded()


def test_two_requests_that_all_are_ready_for_do_not_get_the_same_step() -> None:
    """The agreeing rank takes part in neither."""
    world = World(3)
    world.has_long_been_in(1)
    requests = [world.made(ranks=[1, 2], occasion=occasion) for occasion in "ab"]
    for asked in requests:
        world.publish(moves.RequestReceived(asked))
    world.deliver()
    for step in range(2, 9):
        for rank in world.ranks:
            rank.advance(step)
            rank.run("actor_update")
        world.deliver()
        world.pass_s(3)
        world.deliver()

    assert [world.ranks[number].state(asked.id) for number in (1, 2) for asked in requests] == ["done"] * 4


def test_a_step_is_agreed_once_also_by_an_agreeing_rank_that_was_restarted() -> None:
    world = World(3)
    world.has_long_been_in(1)
    asked = world.ask(ranks=[1, 2])
    agreeing = world.ranks[1]
    agreeing.kill()
    agreeing.restart()
    ready = next(report for report in world.ranks[2].said if report.ready)
    agreeing.tell(moves.Acknowledged(ready))

    assert [action for action in agreeing.did if isinstance(action, moves.Commit)] == [moves.Commit(asked.id, 3)]


def test_what_is_not_the_memory_of_a_machine_is_no_crash(world: World) -> None:
    world.ask()
    whole = json.loads(world.ranks[0].saved)
    damaged = [{}, {**whole, "ended": [{"id": 1}]}, {**whole, "tasks": [{"request": {}}]}, {**whole, "spending": None}]

    for memory in damaged:
        with pytest.raises(ConfigError, match="memory"):
            Machine(0, 1).restore(memory, world.now())


def test_a_rank_that_goes_on_with_an_older_mstxkit_remembers_what_it_has_done(world: World, rank: Rank) -> None:
    """Of what the newer one wrote it leaves out what it does not know, and no more."""
    done = world.ask()
    rank.run("actor_update")
    world.ask(occasion="again")
    memory = json.loads(rank.saved)
    memory["ended"][0]["of_a_newer_version"] = memory["tasks"][0]["request"]["of_a_newer_version"] = 1
    rank.saved = json.dumps(memory)
    rank.kill()
    rank.restart()
    rank.tell(moves.RequestReceived(done))
    rank.run("actor_update")

    assert rank.backend.recorded == [(done.id, "actor_update", None)]
