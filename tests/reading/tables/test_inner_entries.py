"""Ranges around collectives: which are taken for such, of whom, when; and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.judged_runs import BEHIND, recorded, stage_times

np = pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.judging.evidence import Collectives, RoleStep  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.tables import inner_entries  # noqa: E402


def steps_of(run: Path) -> list[RoleStep]:
    opened = open_run(run)
    return opened.roles.steps_inside


def collectives_of(step: RoleStep) -> Collectives:
    assert step.collectives is not None
    return step.collectives


def test_a_range_that_all_leave_together_is_an_entry_of_each_member_with_its_stage(tmp_path: Path) -> None:
    rows = stage_times(BEHIND, ranks=3, steps=12)
    steps = steps_of(recorded(tmp_path / "run", rows, around_collectives=True))

    entered = {row[1]: row[3] for row in rows if row[0] == 7 and row[2] == "all_reduce"}
    first_ns = min(row[3] for row in rows)
    told = collectives_of(steps[7])
    assert sorted(told.member.tolist()) == [0, 1, 2]
    assert {steps[7].stages[stage] for stage in told.stage.tolist()} == {"actor_update"}
    assert told.groups == {0: (0, 1, 2)}
    for member, entered_s in zip(told.member.tolist(), told.entered_s.tolist()):
        assert entered_s == pytest.approx((entered[member] - first_ns) / 1e9, abs=1e-6)


def test_own_work_is_no_collective_and_a_range_around_one_is_not_counted_beside_it(tmp_path: Path) -> None:
    rows = stage_times(BEHIND, ranks=2, steps=12)
    around = [(*row[:2], "forward_backward", row[3] + 1000, row[4]) for row in rows if row[2] == "actor_update"]
    rows = [row for row in rows if row[2] != "forward_backward"] + around
    run = recorded(tmp_path / "run", rows, around_collectives=True, outer=("forward_backward",))

    assert all(len(collectives_of(step).member) == 2 for step in steps_of(run))


@pytest.mark.parametrize("changed", ["missing", "often"])
def test_what_not_all_call_or_call_all_the_time_is_left_out(tmp_path: Path, changed: str) -> None:
    rows = stage_times(BEHIND, ranks=2, steps=12)
    inner = [row for row in rows if row[2] == "all_reduce"]
    if changed == "missing":
        rows = [row for row in rows if row not in inner or row[1] == 0]
    else:
        rows += [(*row[:3], row[3] + nth, row[4]) for row in inner for nth in range(80)]

    run = recorded(tmp_path / "run", rows, around_collectives=True)

    assert all(step.collectives is None for step in steps_of(run))


def test_of_a_long_run_the_last_steps_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_entries, "STEPS_AT_MOST", 10)
    steps = steps_of(recorded(tmp_path / "run", stage_times(BEHIND, steps=30), around_collectives=True))

    assert [step.step for step in steps] == list(range(30))
    assert [step.step for step in steps if step.collectives is not None] == list(range(20, 30))


def test_a_run_without_such_ranges_is_as_it_was(tmp_path: Path) -> None:
    assert all(step.collectives is None for step in steps_of(recorded(tmp_path / "run", stage_times(BEHIND, steps=12))))


def test_one_rank_alone_has_nobody_to_leave_with(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", stage_times(BEHIND, ranks=1, steps=12), around_collectives=True)

    assert all(step.collectives is None for step in steps_of(run))
