"""Lateness is what the rows say: of each collective, who came first and how much later the others."""

from __future__ import annotations

import random

import numpy as np
from builders import soak

from mstxkit.judging import lateness
from mstxkit.judging.evidence import FLIGHT_RECORDER, Collectives, Peer, RoleStep, Work
from mstxkit.store.collectives import DISTURBED, CollectiveEntry

MS = 1_000_000
STAGES = ("forward", "backward")


def rows(*entries: tuple[int, int, int], group: int = 7, flags: int = 0) -> np.ndarray:
    """(sequence, entered, left) of each, in ms."""
    return lateness.rows_in(
        b"".join(CollectiveEntry(group, at, in_ms * MS, out * MS, 1, flags, 4).pack() for at, in_ms, out in entries)
    )


def intervals(*stages: tuple[int, int, int, int]) -> np.ndarray:
    """(step, stage, entered, left), in ms."""
    return np.array([(step, at, a * MS, b * MS) for step, at, a, b in stages], dtype=lateness.INTERVAL)


def step_of(entered_s: list[list[float]], error_s: float = 0.0) -> RoleStep:
    entered = np.array(entered_s, dtype=float)
    unknown = np.full(entered.shape, np.nan)
    peers = tuple(Peer(10 + rank) for rank in range(len(entered)))
    took = np.ones(entered.shape)
    return RoleStep(
        "", 3, peers, STAGES, entered, entered + 1, took, unknown, took, took, Work(unknown, unknown, unknown),
        np.full(len(entered), error_s),
    )  # fmt: skip


def collectives(*entries: tuple[int, int, int, float]) -> Collectives:
    """(member, group, sequence, entered) of each."""
    member, group, sequence, entered = (np.array(column) for column in zip(*entries))
    unknown = np.full(len(entries), np.nan)
    return Collectives(member, group, sequence, entered.astype(float), unknown, np.ones(len(entries), int), {})


def test_an_entry_is_in_the_shortest_stage_around_it() -> None:
    stages = intervals((4, 0, 0, 100), (4, 1, 40, 60), (5, 0, 110, 200))
    entries = lateness.located(2, rows((1, 50, 0), (2, 70, 0), (3, 105, 0), (4, 150, 0)), stages)

    assert entries.step.tolist() == [4, 4, lateness.NO_STEP, 5]
    assert entries.stage.tolist() == [1, 0, -1, 0]
    assert entries.member.tolist() == [2, 2, 2, 2]


def test_between_the_stages_of_a_step_it_is_in_the_step_alone() -> None:
    entries = lateness.located(0, rows((1, 15, 0)), intervals((4, 0, 0, 10), (4, 1, 20, 30)))

    assert (entries.step[0], entries.stage[0]) == (4, -1)


def test_times_are_on_the_aligned_clock_and_an_unknown_end_stays_unknown() -> None:
    entries = lateness.located(0, rows((1, 5, 0), (2, 6, 8)), intervals((0, 0, 0, 10)), offset_ns=100 * MS)

    assert entries.entered_ns.tolist() == [105 * MS, 106 * MS]
    assert entries.left_ns.tolist() == [0, 108 * MS]


def test_where_one_has_not_handed_over_its_stages_a_collective_is_in_the_step_of_the_others() -> None:
    stages = intervals((4, 0, 0, 10))
    parts = [lateness.located(0, rows((1, 5, 0)), stages), lateness.located(1, rows((1, 7, 0)), stages[:0])]
    entered = lateness.of_step(lateness.joined(parts), 4, {7: (0, 1)})

    assert entered is not None
    assert entered.member.tolist() == [0, 1]
    assert (entered.source, entered.groups) == (FLIGHT_RECORDER, {7: (0, 1)})


def test_a_collective_that_a_reading_held_up_in_anybody_is_left_out() -> None:
    stages = intervals((4, 0, 0, 10))
    parts = [
        lateness.located(0, rows((1, 5, 0), (2, 6, 0)), stages),
        lateness.located(1, np.concatenate([rows((1, 9, 0), flags=DISTURBED), rows((2, 6, 0))]), stages),
    ]

    assert set(lateness.joined(parts).sequence.tolist()) == {2}


def test_the_last_collective_of_a_stage_was_over_when_the_first_member_left_it() -> None:
    parts = [
        lateness.located(0, rows((1, 5, 0), (2, 8, 0)), intervals((4, 0, 0, 30))),
        lateness.located(1, rows((1, 6, 0), (2, 9, 0)), intervals((4, 0, 0, 12))),
    ]
    entered = lateness.of_step(lateness.joined(parts), 4, {})

    assert entered is not None
    left = {(int(m), int(s)): seconds for m, s, seconds in zip(entered.member, entered.sequence, entered.left_s)}
    assert (left[0, 2], left[1, 2]) == (0.012, 0.012)
    assert np.isnan([left[0, 1], left[1, 1]]).all()


def test_nobody_is_late_for_what_nobody_entered() -> None:
    nothing = lateness.joined([lateness.located(0, rows(), intervals())])

    assert lateness.of_step(nothing, 4, {}) is None
    assert lateness.of_step(lateness.joined([]), 4, {}) is None


def test_each_is_late_by_what_it_came_after_the_first_with_the_bounds_of_both() -> None:
    late = lateness.late_in(
        collectives((0, 7, 1, 5.0), (1, 7, 1, 5.25), (0, 7, 2, 6.5), (1, 7, 2, 6.0)), np.array([0.5, 0.25])
    )

    by_entry = {int(at): (seconds, bound) for at, seconds, bound in zip(*late)}
    assert by_entry == {0: (0.0, 0.0), 1: (0.25, 0.75), 3: (0.0, 0.0), 2: (0.5, 0.75)}


def test_who_entered_alone_is_not_judged() -> None:
    assert len(lateness.late_in(collectives((0, 7, 1, 5.0), (1, 7, 2, 5.0)), np.zeros(2)).at) == 0


def test_the_table_has_the_latest_entry_of_each_group_rank_and_stage() -> None:
    step = step_of([[0, 0], [0, 0]])
    table = lateness.table(step, collectives((0, 7, 1, 5.0), (1, 7, 1, 5.5), (0, 7, 2, 6.0), (1, 7, 2, 6.25)))

    assert tuple(table) == lateness.COLUMNS
    assert sorted(zip(table["rank"], table["late_ns"])) == [(10, 0), (11, 500_000_000)]
    assert set(table["stage"]) == {"backward"}
    assert (set(table["step"]), set(table["source"])) == ({3}, {FLIGHT_RECORDER})


def test_it_agrees_with_the_plain_way_on_any_rows() -> None:
    draw = random.Random(soak.seed())
    for _ in range(soak.rounds(500, 40)):
        entries = [
            (draw.randrange(4), draw.randrange(2), draw.randrange(3), draw.randrange(100) / 4) for _ in range(20)
        ]
        entries = list({entry[:3]: entry for entry in entries}.values())
        late = lateness.late_in(collectives(*entries), np.zeros(4))

        of = {at: [e[3] for e in entries if e[1:3] == entries[at][1:3]] for at in range(len(entries))}
        assert {int(at): seconds for at, seconds in zip(late.at, late.late_s)} == {
            at: entries[at][3] - min(times) for at, times in of.items() if len(times) > 1
        }
