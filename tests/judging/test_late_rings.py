"""Entries that come after their steps were closed: the steps come once more, with their collectives."""

from __future__ import annotations

import numpy as np
import pytest

from mstxkit.judging import late_rings, lateness
from mstxkit.judging.evidence import Peer, RoleStep, Work
from mstxkit.judging.late_rings import LateRings
from mstxkit.store.collectives import CollectiveEntry

S = 1_000_000_000
STAGES = ("forward", "backward")


def step(number: int, members: int = 2, role: str = "") -> RoleStep:
    """From its number's second on: half a second forward, half a second backward."""
    entered = np.tile([number, number + 0.5], (members, 1))
    unknown = np.full(entered.shape, np.nan)
    took = np.full(entered.shape, 0.5)
    peers = tuple(Peer(rank, "host", f"host-{rank}") for rank in range(members))
    return RoleStep(
        role, number, peers, STAGES, entered, entered + 0.5, took, unknown, took, took, Work(unknown, unknown, unknown),
        np.zeros(members),
    )  # fmt: skip


def put(rings: LateRings, rank: int, late_s: float, numbers: range, now_s: float, role: str = "") -> None:
    """One entry a step, in backward."""
    data = b"".join(CollectiveEntry(7, number, 0, 0, 1, 0, 1).pack() for number in numbers)
    entered_s = np.array([number + 0.6 + late_s for number in numbers])
    rings.put(role, f"host-{rank}", lateness.rows_in(data), entered_s, now_s)


def begin(rings: LateRings, numbers: range) -> None:
    rings.learn_groups({"groups": {"7": {"ranks": "0-1"}}})
    for number in numbers:
        rings.closed(step(number))


def test_once_nothing_more_comes_closed_steps_are_given_with_their_collectives() -> None:
    rings = LateRings()
    begin(rings, range(5))
    put(rings, 0, 0.0, range(1, 9), now_s=10.0)
    put(rings, 1, 0.02, range(1, 9), now_s=11.0)
    too_early = list(rings.due(12.0))
    given = list(rings.due(14.0))

    assert too_early == []
    assert [each.step for each in given] == [1, 2, 3, 4]
    assert given[0].collectives is not None
    late = lateness.late_in(given[0].collectives, given[0].error_s)
    assert np.round(late.late_s, 6).tolist() == [0.0, 0.02]
    assert given[0].collectives.groups == {7: (0, 1)}
    assert {STAGES[at] for at in given[0].collectives.stage} == {"backward"}
    assert list(rings.due(99.0)) == []


def test_at_the_end_nobody_is_waited_for() -> None:
    rings = LateRings()
    begin(rings, range(3))
    put(rings, 0, 0.0, range(3), 10.0)
    put(rings, 1, 0.0, range(3), 10.0)

    assert len(list(rings.due(10.0, at_once=True))) == 3


def test_what_only_one_has_entered_tells_nothing() -> None:
    rings = LateRings()
    begin(rings, range(3))
    put(rings, 0, 0.0, range(3), 10.0)

    assert list(rings.due(20.0)) == []


def test_steps_of_other_members_are_not_mixed_with_these() -> None:
    rings = LateRings()
    rings.closed(step(0, members=3))
    begin(rings, range(1, 3))
    put(rings, 0, 0.0, range(3), 10.0)
    put(rings, 1, 0.0, range(3), 10.0)

    assert [each.step for each in rings.due(20.0)] == [1, 2]


def test_roles_are_kept_apart() -> None:
    rings = LateRings()
    for role in ("actor", "critic"):
        rings.closed(step(1, role=role))
    put(rings, 0, 0.0, range(1, 2), 10.0, role="critic")
    put(rings, 1, 0.0, range(1, 2), 10.0, role="critic")

    assert [each.role for each in rings.due(20.0)] == ["critic"]


def test_where_the_rings_of_many_are_too_much_each_keeps_its_newest_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 10,240 ranks with 512 entries each the last 2,048 were left out: a slow one of these was nobody's fault."""
    monkeypatch.setattr(late_rings, "ROWS_AT_MOST", 16 * 20)
    rings = LateRings()
    rings.learn_groups({"groups": {"7": {"ranks": "0-19"}}})
    for number in range(32):
        rings.closed(step(number, members=20))
    for rank in range(20):
        put(rings, rank, 0.1 * (rank == 19), range(32), now_s=10.0)
    given = list(rings.due(20.0))

    entered = given[-1].collectives
    assert given[-1].step == 31 and entered is not None
    assert sorted(entered.member) == list(range(20))
    assert len(given) >= 8


def test_memory_is_bounded_by_whatever_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_rings, "ROWS_AT_MOST", 64)
    rings = LateRings()
    for rank in range(500):
        put(rings, rank, 0.0, range(5), now_s=10.0)

    assert sum(len(rows) for _, rows in rings._roles[""].waiting) <= 64


def test_whoever_sends_on_and_on_is_judged_all_the_same_and_memory_is_bounded() -> None:
    rings = LateRings()
    begin(rings, range(2))
    seen = 0
    for second in range(40):
        put(rings, 0, 0.0, range(2), float(second + 1))
        put(rings, 1, 0.0, range(2), float(second + 1))
        seen += len(list(rings.due(second + 1.0)))
    for number in range(2000):
        rings.closed(step(number))

    assert seen >= 2
    assert len(rings._roles[""].steps) <= late_rings.STEPS_AT_MOST
