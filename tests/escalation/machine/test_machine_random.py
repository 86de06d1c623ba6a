"""Random lives of a run of three ranks (1,000 in `make soak`): come what may, escalation keeps its promises.

The world itself fails on a second session, one beside light capture, one off the training thread, one after the end of
its request or after the restart of a process that had begun it (escalation_world.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import soak
from builders.escalation_world import LAST, QUICK, STAGES, Rank, World
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mstxkit.escalation.machine import moves
from mstxkit.escalation.machine.moves import NS
from mstxkit.store.request import BOUNDARIES, WHOLE_STEPS, Request

SIZE = 3
# So far at most a life goes back, and whatever it was in the middle of is over after as many.
STEPS_AT_MOST = 100
GROUPS = ("suspect+peer", "dp:1")
a_rank = st.integers(0, SIZE - 1)
a_stage = st.sampled_from(STAGES)
some_ranks = st.one_of(
    st.just("all"), st.sampled_from(GROUPS), st.lists(a_rank, min_size=1, max_size=SIZE, unique=True)
)
a_plan = st.builds(
    dict, first_step=st.integers(1, 8), counted_from=st.sampled_from(["training", "process"]), framework=st.just("")
)
a_window = st.one_of(
    st.builds(dict, steps=st.integers(1, 3)),
    st.builds(dict, occurrences=st.integers(1, 3)),
    st.builds(
        dict,
        occurrences=st.just(1),
        sample=st.builds(dict, per=st.just("micro_batch"), skip=st.integers(0, 1), record=st.integers(1, 2)),
    ),
    st.builds(dict, steps=st.just(1), limits=st.just({"seconds": 4, "bytes": 150})),
    st.builds(dict, steps=st.integers(1, 3), planned=a_plan),
    st.builds(dict, steps=st.integers(1, 3), planned=a_plan, stage=st.just(WHOLE_STEPS)),
)


class RunOfThree(RuleBasedStateMachine):
    """Training, askers, and everything that can go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SIZE)
        self.asked: dict[str, tuple[Request, tuple[int, ...]]] = {}

    @initialize(
        counts_steps=st.sampled_from([True, True, True, False]), without_0=st.sampled_from([False, False, True])
    )
    def begin(self, counts_steps: bool, without_0: bool) -> None:
        """`without_0`: rank 0 never runs what is asked for, and is not asked."""
        self.world.elsewhere = {0} if without_0 else set()
        for rank in self.world.ranks if counts_steps else ():
            rank.advance(1)

    def alive(self) -> list[Rank]:
        return [rank for rank in self.world.ranks if rank.machine is not None]

    # Askers.

    @rule(
        stage=st.lists(a_stage, min_size=1, max_size=2, unique=True),
        ranks=some_ranks,
        window=a_window,
        lives_s=st.sampled_from([3600, 3600, 3600, 60, 1]),
        occasion=st.sampled_from(["", "again"]),
        arrives=st.sampled_from([True, True, False]),
    )
    def ask(
        self, stage: list[str], ranks: Any, window: dict[str, Any], lives_s: int, occasion: str, arrives: bool
    ) -> None:
        world = self.world
        suspects: tuple[int, ...] = (0, 2) if ranks in GROUPS else ()
        if world.elsewhere:
            ranks = ranks if suspects else [1, 2]
            suspects = suspects and (1, 2)
        until_ns = world.wall_ns + lives_s * NS
        made = world.made(**{"stage": stage, **window}, ranks=ranks, occasion=occasion, expires_ns=until_ns)
        self.asked.setdefault(made.id, (made, suspects))
        world.publish(moves.RequestReceived(made, suspects))
        if arrives:
            world.deliver()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.asked)))
        self.world.publish(moves.CancelReceived(id))

    # Messages, time.

    @rule(number=a_rank, index=st.integers(0, 5))
    def deliver_one_out_of_order(self, number: int, index: int) -> None:
        self.world.deliver_one(self.world.ranks[number], index)

    @rule()
    def deliver_all(self) -> None:
        self.world.deliver()

    @rule(seconds=st.sampled_from([0.1, 3, 6, 6, 25, 700]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_s(seconds)

    @rule(seconds=st.sampled_from([-100_000, -5, 5, 100_000]))
    def somebody_sets_the_clock(self, seconds: int) -> None:
        self.world.wall_ns += seconds * NS

    # Training.

    @precondition(lambda self: self.asked)
    @rule(
        steps=st.integers(1, 4),
        inside=st.sampled_from(
            [
                None,
                "error",
                "kill",
                "restart",
                "thread",
                "cancel",
                "slow",
                "end",
                "start",
                "stop",
                "late",
                "taken",
                "watcher",
                "theirs",
            ]
        ),
        again=st.booleans(),
    )
    def all_train(self, steps: int, inside: str | None, again: bool = False) -> None:
        """Whole steps, as a trainer has them, and one thing that happens in the middle of the first session."""
        for made, suspects in self.asked.values() if again else ():
            self.world.publish(moves.RequestReceived(made, suspects))  # everybody reads the folder again
        for _ in range(steps):
            self.world.deliver()
            for rank in self.alive():
                if rank.machine is not None and rank.machine.step is not None:
                    rank.advance(rank.machine.step + 1)
                for stage in STAGES:
                    if not self._one_stage(rank, stage, inside):
                        inside = None
            self.world.pass_s(QUICK.cooldown_s / 2)

    def _one_stage(self, rank: Rank, stage: str, inside: str | None) -> bool:
        """Was what was to happen inside of it left undone, for there was no session?"""
        before = len(rank.inside)
        if inside in ("late", "taken", "start", "stop"):
            rank.backend.fails = inside
        rank.enter(stage)
        is_undone = True
        for _ in range(3):
            rank.tell(moves.BoundaryEntered("micro_batch", (stage,)))
            if rank.backend.open is not None and is_undone:
                is_undone = False
                self._in_the_middle(rank, inside)
            rank.tell(moves.BoundaryLeft("micro_batch", (stage,)))
        while len(rank.inside) > before:
            rank.leave(inside == "error")
        return is_undone

    def _in_the_middle(self, rank: Rank, what: str | None) -> None:
        if what in ("kill", "restart"):
            rank.kill()
            if what == "restart":
                rank.restart()
        elif what == "end":
            rank.tell(moves.Ending(LAST))
            assert rank.backend.open is None
            rank.kill()
        elif what == "cancel" and rank.backend.open is not None:
            rank.tell(moves.CancelReceived(rank.backend.open.id))
        elif what == "thread" and rank.backend.open is not None:
            rank.enter(rank.backend.open.stage, thread=1)
            rank.leave()
            rank.tell(moves.Tick(1))
            assert rank.backend.open is not None
        elif what == "slow":
            self.world.pass_s(60)
            rank.tell(moves.Tick(0, 500))
        elif what == "watcher":
            rank.watched = False
        elif what == "theirs":
            rank.their_profile(True)
            rank.their_profile(False)

    @rule(
        number=a_rank,
        stage=a_stage,
        thread=st.sampled_from([0, 0, 0, 1]),
        may_move=st.sampled_from([False] * 9 + [True]),
    )
    def enter(self, number: int, stage: str, thread: int, may_move: bool) -> None:
        rank = self.world.ranks[number]
        if rank.machine is not None and len(rank.inside) < 4:
            rank.enter(stage, thread, may_move)

    @rule(number=a_rank, error=st.booleans())
    def leave(self, number: int, error: bool) -> None:
        self.world.ranks[number].leave(error)

    @rule(stage=a_stage, error=st.booleans())
    def all_run(self, stage: str, error: bool) -> None:
        for rank in self.alive():
            rank.run(stage, error)

    @rule(number=a_rank, per=st.sampled_from(BOUNDARIES[:2]), size_bytes=st.sampled_from([None, 100, 200]))
    def one_piece_of_a_stage(self, number: int, per: str, size_bytes: int | None) -> None:
        rank = self.world.ranks[number]
        stage, thread = rank.inside[-1] if rank.inside else (STAGES[0], 0)
        rank.tell(moves.BoundaryEntered(per, (stage,), thread))
        rank.tell(moves.Tick(thread, size_bytes))
        rank.tell(moves.BoundaryLeft(per, (stage,), thread))

    @rule(by=st.sampled_from([1, 1, 1, 2, -3]))
    def all_advance(self, by: int) -> None:
        for rank in self.alive():
            assert rank.machine is not None
            rank.advance(max(0, (rank.machine.step or 0) + by))

    @rule(number=a_rank)
    def one_advances(self, number: int) -> None:
        rank = self.world.ranks[number]
        if rank.machine is not None:
            rank.advance((rank.machine.step or 0) + 1)

    # What goes wrong.

    @rule(number=a_rank, fails=st.sampled_from(["late", "taken", "start", "stop", "kill", "", "", ""]))
    def the_disk_is_full_or_has_room_again(self, number: int, fails: str) -> None:
        self.world.ranks[number].backend.fails = fails

    @rule(number=a_rank)
    def somebody_else_ends_the_session(self, number: int) -> None:
        rank = self.world.ranks[number]
        if rank.backend.open is not None:
            rank.backend.open = None
            rank.tell(moves.SessionStopped())

    @rule(number=a_rank, begins=st.booleans(), is_elsewhere=st.sampled_from([False, False, True]))
    def their_profiler_begins_or_ends(self, number: int, begins: bool, is_elsewhere: bool) -> None:
        rank = self.world.ranks[number]
        if begins and is_elsewhere:
            rank.tell(moves.GiveWay("verl", 7))
        elif rank.machine is not None:
            rank.their_profile(begins)

    @rule(number=a_rank, begins_in=st.integers(0, 5))
    def their_profile_is_planned(self, number: int, begins_in: int) -> None:
        self.world.ranks[number].tell(moves.TheirProfiles((("verl's profile", begins_in),)))

    @rule(number=a_rank)
    def a_watcher_dies_or_comes_back(self, number: int) -> None:
        self.world.ranks[number].watched = not self.world.ranks[number].watched

    @rule(number=a_rank, in_order=st.booleans())
    def a_process_ends_or_comes_back(self, number: int, in_order: bool) -> None:
        rank = self.world.ranks[number]
        if rank.machine is None:
            rank.restart()
            return
        if in_order:
            rank.tell(moves.Ending(LAST))
            assert rank.backend.open is None
        rank.kill()

    # What holds at any time, and at the end.

    @invariant()
    def a_session_is_open_only_inside_its_stage_and_where_the_machine_knows(self) -> None:
        for rank in self.world.ranks:
            is_open = rank.backend.open is not None
            assert is_open == (rank.machine is not None and rank.machine._session is not None)
            assert rank.backend.light != is_open
            if rank.backend.open is not None:
                covers_steps = rank.backend.open.stage == WHOLE_STEPS
                assert covers_steps or (rank.backend.open.stage, rank.backend.thread) in rank.inside

    @invariant()
    def nobody_ends_twice_or_goes_on_after_its_end(self) -> None:
        for rank in self.world.ranks:
            ended = [report.id for report in rank.said if report.has_ended]
            assert len(ended) == len(set(ended))

    def teardown(self) -> None:
        """Training goes on for a while and ends; one rank is never seen again. Then everything has an end."""
        world = self.world
        for rank in world.ranks:
            rank.backend.fails, rank.watched, rank.backend.theirs = "", True, False
            rank.tell(moves.TheirProfiles())
            while rank.inside:
                rank.leave()
            assert rank.backend.open is None or rank.backend.open.stage == WHOLE_STEPS
        for rank in world.ranks[:2]:
            if rank.machine is None:
                rank.restart()
        if self.asked:
            self.all_train(4, None)
        for _ in range(STEPS_AT_MOST):
            if any(rank.backend.open is not None for rank in world.ranks):
                self.all_advance(1)  # a session of whole steps ends with the step after them
        assert [rank.backend.open for rank in world.ranks if rank.backend.open is not None] == []
        for _ in range(3):
            world.deliver()
            world.pass_s(3600 + QUICK.session_s + 2 * QUICK.agreement_s)
        self._every_request_has_ended()
        self._together_is_at_the_same_steps()

    def _every_request_has_ended(self) -> None:
        for made, suspects in self.asked.values():
            for number in made.ranks_in(SIZE, suspects):
                rank = self.world.ranks[number]
                # Of a lost rank's planned windows nobody speaks: the judge of words concludes it (store/fate.py).
                is_lost = made.planned is not None and rank.machine is None
                assert is_lost or self.world.ended(made.id, number), (made.id, number)
                told = [report for report in rank.said if report.id == made.id]
                assert rank.machine is None or (told and told[-1].has_ended), (made.id, number)
                recorded = [one for one in rank.backend.recorded if one[0] == made.id]
                assert not told or rank.machine is None or told[-1].recorded <= len(recorded)

    def _together_is_at_the_same_steps(self) -> None:
        """But for ranks that had to take turns."""
        took_turns = set().union(*(rank.backend.took_turns for rank in self.world.ranks))
        for made, suspects in (asked for id, asked in self.asked.items() if id not in took_turns):
            ranks = made.ranks_in(SIZE, suspects)
            windows = {
                (report.first_step, report.last_step)
                for report in self.world.reports
                if report.id == made.id and report.first_step is not None
            }
            assert made.occurrences is not None or len(ranks) == 1 or len(windows) <= 1
            for number in ranks if windows and len(ranks) > 1 else ():
                ((first, last),) = windows
                told = [report for report in self.world.reports if (report.id, report.rank) == (made.id, number)]
                armed = next((report for report in told if report.state == "armed"), None)
                # Planned windows are armed in their own steps, all others before: they have to be agreed on.
                assert armed is None or armed.step is None or armed.step < (last + 1 if made.planned else first)
                steps = [step for id, _, step in self.world.ranks[number].backend.recorded if id == made.id]
                assert all(step is None or first <= step <= last for step in steps)


def lives(count: int) -> settings:
    too_slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=count, stateful_step_count=25, deadline=None, suppress_health_check=too_slow)


TestRunOfThree = pytest.mark.timeout(1200)(RunOfThree.TestCase)
TestRunOfThree.settings = lives(soak.rounds(1000, 60))
