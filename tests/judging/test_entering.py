"""Entries and their steps: what was called is there when a step is closed; of what rings tell later it comes again."""

from __future__ import annotations

import numpy as np
import pytest

from mstxkit.judging import entering, meeting
from mstxkit.judging.entering import EnteredSteps
from mstxkit.judging.evidence import CALL, FLIGHT_RECORDER, MEET, RECEIVE, SEND, Collectives, Peer, RoleStep, Work
from mstxkit.store import collectives
from mstxkit.store.collectives import CALLED, DISTURBED, HOST_ALONE, CollectiveEntry

S = 1_000_000_000
STAGES = ("forward", "backward")


def step(number: int, members: int = 2, role: str = "") -> RoleStep:
    """From its number's second on: half a second forward, half a second backward."""
    entered = np.tile([number, number + 0.5], (members, 1))
    unknown = np.full(entered.shape, np.nan)
    took = np.full(entered.shape, 0.5)
    peers = tuple(Peer(rank, "host", f"host-{rank}") for rank in range(members))
    return RoleStep(
        role, number, peers, STAGES, entered, entered + 0.5, took, took, Work(unknown, unknown, unknown),
        np.zeros(members),
    )  # fmt: skip


def put(rings: EnteredSteps, rank: int, late_s: float, numbers: range, now_s: float, role: str = "") -> None:
    """One entry a step, in backward."""
    data = b"".join(CollectiveEntry(7, number, 0, 0, 1, 0, 1).pack() for number in numbers)
    entered_s = np.array([number + 0.6 + late_s for number in numbers])
    rings.put(role, f"host-{rank}", entering.rows_in(data), entered_s, np.full(len(numbers), -1), now_s)


def begin(rings: EnteredSteps, numbers: range) -> None:
    rings.learn_groups({"groups": {"7": {"ranks": "0-1"}}})
    for number in numbers:
        rings.closed(step(number), (0, 1))


def test_once_nothing_more_comes_closed_steps_are_given_with_their_collectives() -> None:
    rings = EnteredSteps()
    begin(rings, range(5))
    put(rings, 0, 0.0, range(1, 9), now_s=10.0)
    put(rings, 1, 0.02, range(1, 9), now_s=11.0)
    too_early = list(rings.due(12.0))
    given = list(rings.due(14.0))

    assert too_early == []
    assert [each.step for each in given] == [1, 2, 3, 4]
    assert given[0].collectives is not None
    late = meeting.late_in(given[0].collectives, given[0].error_s)
    assert np.round(late.late_s, 6).tolist() == [0.0, 0.02]
    assert given[0].collectives.groups == {7: (0, 1)}
    assert {STAGES[at] for at in given[0].collectives.stage} == {"backward"}
    assert list(rings.due(99.0)) == []


def test_at_the_end_nobody_is_waited_for() -> None:
    rings = EnteredSteps()
    begin(rings, range(3))
    put(rings, 0, 0.0, range(3), 10.0)
    put(rings, 1, 0.0, range(3), 10.0)

    assert len(list(rings.due(10.0, at_once=True))) == 3


def test_what_only_one_has_entered_tells_nothing() -> None:
    rings = EnteredSteps()
    begin(rings, range(3))
    put(rings, 0, 0.0, range(3), 10.0)

    assert list(rings.due(20.0)) == []


def test_steps_of_other_members_are_not_mixed_with_these() -> None:
    rings = EnteredSteps()
    rings.closed(step(0, members=3), (0, 1))
    begin(rings, range(1, 3))
    put(rings, 0, 0.0, range(3), 10.0)
    put(rings, 1, 0.0, range(3), 10.0)

    assert [each.step for each in rings.due(20.0)] == [1, 2]


def test_roles_are_kept_apart() -> None:
    rings = EnteredSteps()
    for role in ("actor", "critic"):
        rings.closed(step(1, role=role), (0, 1))
    put(rings, 0, 0.0, range(1, 2), 10.0, role="critic")
    put(rings, 1, 0.0, range(1, 2), 10.0, role="critic")

    assert [each.role for each in rings.due(20.0)] == ["critic"]


def test_where_the_rings_of_many_are_too_much_each_keeps_its_newest_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 10,240 ranks with 512 entries each the last 2,048 were left out: a slow one of these was nobody's fault."""
    monkeypatch.setattr(entering, "ROWS_AT_MOST", 16 * 20)
    rings = EnteredSteps()
    rings.learn_groups({"groups": {"7": {"ranks": "0-19"}}})
    for number in range(32):
        rings.closed(step(number, members=20), (0, 1))
    for rank in range(20):
        put(rings, rank, 0.1 * (rank == 19), range(32), now_s=10.0)
    given = list(rings.due(20.0))

    entered = given[-1].collectives
    assert given[-1].step == 31 and entered is not None
    assert sorted(entered.member) == list(range(20))
    assert len(given) >= 8


def test_memory_is_bounded_by_whatever_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "ROWS_AT_MOST", 64)
    rings = EnteredSteps()
    for rank in range(500):
        put(rings, rank, 0.0, range(5), now_s=10.0)

    assert rings._rows <= 64
    assert sum(len(rows) for _, rows, *_ in rings._roles[""].new) <= 64
    assert sum(len(rows) for rows in rings._roles[""].ringed) <= 64


def test_whoever_sends_on_and_on_is_judged_all_the_same_and_memory_is_bounded() -> None:
    rings = EnteredSteps()
    begin(rings, range(2))
    seen = 0
    for second in range(40):
        put(rings, 0, 0.0, range(2), float(second + 1))
        put(rings, 1, 0.0, range(2), float(second + 1))
        seen += len(list(rings.due(second + 1.0)))
    for number in range(2000):
        rings.closed(step(number), (0, 1))

    assert seen >= 2
    assert len(rings._roles[""].steps) <= entering.STEPS_AT_MOST


def enter(
    entered: EnteredSteps, rank: int, at_s: float, left_s: float = 0.0, sequence: int = 0, group: int = 7,
    does: str = "all_reduce", stage: int = -1, flags: int = CALLED, waited_us: int = 0,
) -> None:  # fmt: skip
    """One entry, on the clock of the steps; `left_s` 0: not known."""
    ns = (round(at_s * S), round(left_s * S))
    row = CollectiveEntry(group, sequence, *ns, collectives.OPERATIONS.index(does), flags, waited_us)
    rows = entering.rows_in(row.pack())
    entered.put("", f"host-{rank}", rows, np.array([at_s]), np.array([stage]), 10.0)


def told(step: RoleStep) -> set[tuple[int, int, int, str | None]]:
    """Member, group, sequence, stage of each entry."""
    found = step.collectives
    if found is None:
        return set()
    stages = [step.stages[at] if at >= 0 else None for at in found.stage.tolist()]
    return set(zip(found.member.tolist(), found.group.tolist(), found.sequence.tolist(), stages))


def given(entered: EnteredSteps) -> Collectives:
    """Of step 1, when it is closed."""
    found = entered.closed(step(1), (0, 1)).collectives
    assert found is not None
    return found


def test_what_was_called_is_there_when_its_step_is_closed_in_the_stage_in_which_it_was_called() -> None:
    """Though another stage is as near: stages that alternate lie around each other."""
    entered = EnteredSteps()
    for rank in (0, 1):
        enter(entered, rank, 1.7, 1.9, stage=5, waited_us=150_000)
    closed = entered.closed(step(1), (5, 4))

    assert told(closed) == {(0, 7, 0, "forward"), (1, 7, 0, "forward")}
    assert closed.collectives is not None and closed.collectives.waited_s is not None
    assert (closed.collectives.source, closed.collectives.waited_s.round(3).tolist()) == (CALL, [0.15, 0.15])
    assert closed.collectives.left_s.round(3).tolist() == [1.9, 1.9]


def test_who_sends_and_who_receives_are_told_apart() -> None:
    entered = EnteredSteps()
    entered.learn_groups({"groups": {"9": {"ranks": "1>0"}, "7": {"ranks": "0-1"}}})
    enter(entered, 1, 1.1, group=9, does="send")
    enter(entered, 0, 1.2, group=9, does="recv")
    enter(entered, 0, 1.3)
    found = given(entered)

    assert found.kind is not None
    assert dict(zip(found.entered_s.round(1).tolist(), found.kind.tolist())) == {1.1: SEND, 1.2: RECEIVE, 1.3: MEET}
    assert found.groups[9] == (1, 0), "who sends comes first"


def test_what_tells_of_a_host_alone_says_so() -> None:
    entered = EnteredSteps()
    enter(entered, 0, 1.1, flags=CALLED | HOST_ALONE)
    enter(entered, 1, 1.2)
    found = given(entered)

    assert found.is_of_host is not None
    assert dict(zip(found.member.tolist(), found.is_of_host.tolist())) == {0: True, 1: False}


def test_between_two_steps_it_is_of_the_second_and_what_was_before_the_first_is_of_none() -> None:
    entered = EnteredSteps()
    enter(entered, 0, 0.5)  # as the program was set up
    enter(entered, 0, 2.1, sequence=1)
    first = entered.closed(step(1), (0, 1))
    second = entered.closed(step(3), (0, 1))

    assert told(first) == set()
    assert told(second) == {(0, 7, 1, None)}


def test_what_another_one_comes_to_after_the_step_is_of_the_next_for_both() -> None:
    entered = EnteredSteps()
    enter(entered, 0, 1.9, stage=1)
    enter(entered, 1, 2.2)
    first = entered.closed(step(1), (0, 1))
    second = entered.closed(step(3), (0, 1))

    assert told(first) == set()
    assert told(second) == {(0, 7, 0, "backward"), (1, 7, 0, None)}


def test_who_is_no_member_of_a_step_holds_nobody_up() -> None:
    """It has ended, or does nothing in this one."""
    entered = EnteredSteps()
    enter(entered, 0, 1.5, stage=1)
    enter(entered, 9, 1.8)
    closed = entered.closed(step(1), (0, 1))

    assert told(closed) == {(0, 7, 0, "backward")}


def test_what_a_ring_tells_later_comes_beside_what_was_called() -> None:
    entered = EnteredSteps()
    for rank in (0, 1):
        enter(entered, rank, 1.1, stage=0)
        enter(entered, rank, 1.7 + rank / 100, group=8, sequence=4, flags=0)
    closed = entered.closed(step(1), (0, 1))
    (again,) = entered.due(20.0)

    called = {(rank, 7, 0, "forward") for rank in (0, 1)}
    assert told(closed) == called
    assert told(again) == called | {(rank, 8, 4, "backward") for rank in (0, 1)}


def test_an_entry_of_a_ring_is_in_the_shortest_stage_around_it_or_in_its_step_alone() -> None:
    entered, of_step = EnteredSteps(), step(1)
    of_step.entered_s[:], of_step.left_s[:] = (1.0, 1.2), (1.9, 1.4)
    for sequence, at_s in enumerate((1.1, 1.3)):
        for rank in (0, 1):
            enter(entered, rank, at_s, sequence=sequence, flags=0)
    entered.closed(of_step, (0, 1))
    (again,) = entered.due(20.0)

    assert told(again) == {(rank, 7, at, STAGES[at]) for rank in (0, 1) for at in (0, 1)}
    assert again.collectives is not None and again.collectives.source == FLIGHT_RECORDER


def test_a_collective_that_a_reading_held_up_in_anybody_is_left_out() -> None:
    entered = EnteredSteps()
    for sequence in (0, 1):
        for rank in (0, 1):
            flags = DISTURBED if (sequence, rank) == (0, 1) else 0
            enter(entered, rank, 1.6, sequence=sequence, flags=flags)
    entered.closed(step(1), (0, 1))
    (again,) = entered.due(20.0)

    assert told(again) == {(0, 7, 1, "backward"), (1, 7, 1, "backward")}


def test_where_a_ring_does_not_say_it_the_last_of_a_stage_was_over_when_the_first_left_that() -> None:
    entered, of_step = EnteredSteps(), step(1)
    of_step.left_s[1, 1] = 1.95
    for sequence, at_s in enumerate((1.6, 1.8)):
        for rank in (0, 1):
            enter(entered, rank, at_s, sequence=sequence, flags=0)
    entered.closed(of_step, (0, 1))
    (again,) = entered.due(20.0)

    assert again.collectives is not None
    left = again.collectives.left_s[again.collectives.sequence == 1]
    assert left.tolist() == [1.95, 1.95]
    assert np.isnan(again.collectives.left_s[again.collectives.sequence == 0]).all()
