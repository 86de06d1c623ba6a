"""Lateness is what the rows say: of each collective, who came first and how much later the others."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from builders import soak

from mstxkit.judging import meeting
from mstxkit.judging.evidence import FLIGHT_RECORDER, MEET, RECEIVE, SEND, Collectives, Peer, RoleStep, Work
from mstxkit.testing import judge

STAGES = ("forward", "backward")


def step_of(entered_s: list[list[float]], error_s: float = 0.0) -> RoleStep:
    entered = np.array(entered_s, dtype=float)
    unknown = np.full(entered.shape, np.nan)
    peers = tuple(Peer(10 + rank) for rank in range(len(entered)))
    took = np.ones(entered.shape)
    return RoleStep(
        "", 3, peers, STAGES, entered, entered + 1, took, took, Work(unknown, unknown, unknown),
        np.full(len(entered), error_s),
    )  # fmt: skip


def collectives(*entries: tuple[int, int, int, float]) -> Collectives:
    """(member, group, sequence, entered) of each."""
    member, group, sequence, entered = (np.array(column) for column in zip(*entries))
    unknown = np.full(len(entries), np.nan)
    return Collectives(member, group, sequence, entered.astype(float), unknown, np.ones(len(entries), int), {})


def test_each_is_late_by_what_it_came_after_the_first_with_the_bounds_of_both() -> None:
    late = meeting.late_in(
        collectives((0, 7, 1, 5.0), (1, 7, 1, 5.25), (0, 7, 2, 6.5), (1, 7, 2, 6.0)), np.array([0.5, 0.25])
    )

    by_entry = {int(at): (seconds, bound) for at, seconds, bound in zip(*late)}
    assert by_entry == {0: (0.0, 0.0), 1: (0.25, 0.75), 3: (0.0, 0.0), 2: (0.5, 0.75)}


def test_who_entered_alone_is_not_judged() -> None:
    assert len(meeting.late_in(collectives((0, 7, 1, 5.0), (1, 7, 2, 5.0)), np.zeros(2)).at) == 0


def test_who_sends_and_who_receives_are_not_late_to_each_other() -> None:
    entered = collectives((0, 7, 1, 5.0), (1, 7, 1, 5.5), (0, 8, 1, 6.0), (1, 8, 1, 6.25))
    late = meeting.late_in(entered._replace(kind=np.array([MEET, MEET, SEND, RECEIVE])), np.zeros(2))

    assert sorted(zip(late.at.tolist(), late.late_s.tolist())) == [(0, 0.0), (1, 0.5)]


def test_the_table_has_the_latest_entry_of_each_group_rank_and_stage() -> None:
    pytest.importorskip("polars")
    from mstxkit.reading.tables.lateness import rows_of

    entries = collectives((0, 7, 1, 5.0), (1, 7, 1, 5.5), (0, 7, 2, 6.0), (1, 7, 2, 6.25))
    rows = list(rows_of(step_of([[0, 0], [0, 0]])._replace(collectives=entries)))

    late_ns = {10: 0, 11: 500_000_000}
    assert rows == [(3, "7", rank, "backward", late_ns[rank], 0, FLIGHT_RECORDER, "") for rank in late_ns]


def test_it_agrees_with_the_plain_way_on_any_rows() -> None:
    draw = random.Random(soak.seed())
    for _ in range(soak.rounds(500, 40)):
        entries = [
            (draw.randrange(4), draw.randrange(2), draw.randrange(3), draw.randrange(100) / 4) for _ in range(20)
        ]
        entries = list({entry[:3]: entry for entry in entries}.values())
        late = meeting.late_in(collectives(*entries), np.zeros(4))

        of = {at: [e[3] for e in entries if e[1:3] == entries[at][1:3]] for at in range(len(entries))}
        assert {int(at): seconds for at, seconds in zip(late.at, late.late_s)} == {
            at: entries[at][3] - min(times) for at, times in of.items() if len(times) > 1
        }


@pytest.mark.parametrize("seed", range(2))
def test_who_leaves_together_has_waited_also_where_nothing_varies_but_wake_ups(seed: int) -> None:
    """Rank 1 generates for 75 ms of 150, the other for 45. Who wakes up late is late in all of its step."""
    late, rows = random.Random(seed), list[dict[str, Any]]()
    for step in range(200):
        for rank, generates_ms in enumerate((45, 75)):
            who, began = {"rank": rank, "step": step}, step * 150_000_000 + late.randrange(160) * 1000
            done, left = began + generates_ms * 1_000_000, began + 135_000_000
            rows.append({**who, "stage": "actor_generate", "entered_ns": began, "left_ns": done, "tokens": 100})
            rows.append({**who, "stage": "actor_update", "entered_ns": done, "left_ns": left})
    (verdict,) = judge(rows).verdicts

    assert (verdict.rank, verdict.stage) == (1, "actor_generate")
    assert verdict.impact_ratio == pytest.approx(30 / 150, abs=0.02)
