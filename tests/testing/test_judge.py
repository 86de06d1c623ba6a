"""Tables of occurrences and hand-overs are judged as what the processes themselves hand over."""

from __future__ import annotations

import doctest
import sys
from typing import Any, Iterable, Iterator

import pytest

np = pytest.importorskip("numpy")

from builders.simulated_job import SimulatedJob  # noqa: E402

from mstxkit.errors import MstxkitError  # noqa: E402
from mstxkit.judging.evidence import RECEIVE, SEND, RoleStep  # noqa: E402
from mstxkit.judging.judge import JobJudge  # noqa: E402
from mstxkit.store.verdicts import Verdict  # noqa: E402
from mstxkit.testing import judge  # noqa: E402
from mstxkit.testing.simulator import InjectedFault, JobShape  # noqa: E402
from mstxkit.testing.simulator.shape import ALWAYS  # noqa: E402

MS = 1_000_000


def in_ms(**columns: Any) -> dict[str, Any]:
    """Times are given in milliseconds."""
    return {
        name: value * MS if name.endswith("_ns") and value is not None else value for name, value in columns.items()
    }


def inside(rank: int, step: int, stage: str, entered: float, left: float | None, **more: Any) -> dict[str, Any]:
    return in_ms(rank=rank, step=step, stage=stage, entered_ns=entered, left_ns=left, **more)


def only_step(rows: Iterable[dict[str, Any]], **more: Any) -> RoleStep:
    (judged,) = judge(list(rows), **more).steps
    return judged.step


def occurrences(steps: Iterable[RoleStep]) -> Iterator[dict[str, Any]]:
    """What these steps are made of, where each stage has one occurrence."""
    for step in steps:
        for at, peer in enumerate(step.members):
            for number, stage in enumerate(step.stages):
                work = zip(("tokens", "responses", "longest_response"), step.work)
                known = {name: float(values[at, number]) for name, values in work if np.isfinite(values[at, number])}
                yield {
                    "role": step.role, "rank": peer.rank, "host": peer.host, "process": peer.process, "step": step.step,
                    "stage": stage, "entered_ns": round(step.entered_s[at, number] * 1e9),
                    "left_ns": round(step.left_s[at, number] * 1e9), "error_ns": step.error_s[at] * 1e9, **known,
                }  # fmt: skip


def entries(steps: Iterable[RoleStep]) -> Iterator[dict[str, Any]]:
    for step in steps:
        rings = step.collectives
        assert rings is not None
        for at in range(len(rings.member)):
            yield {
                "role": step.role, "rank": step.members[rings.member[at]].rank, "group": int(rings.group[at]),
                "sequence": int(rings.sequence[at]), "entered_ns": round(rings.entered_s[at] * 1e9),
                "left_ns": round(rings.left_s[at] * 1e9),
            }  # fmt: skip


def lines(verdicts: Iterable[Verdict]) -> list[tuple[Any, ...]]:
    return [(v.step, v.kind, v.rank, v.stage, round(v.impact_ratio, 3), v.withdrawn) for v in verdicts]


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault("before", "actor_generate", rank=3, factor=1.5, since=30),
        InjectedFault("inside", "actor_update", rank=1, factor=1.5, since=30),
    ],
)
def test_verdicts_are_those_of_the_steps_that_the_processes_hand_over(fault: InjectedFault) -> None:
    steps = list(SimulatedJob(JobShape(ranks=4, rings=ALWAYS, step_s=2.0), 3, [fault]).steps(60))
    itself = JobJudge()
    directly = [verdict for step in steps for verdict in itself.close(step).verdicts]

    from_tables = judge(occurrences(steps), collectives=entries(steps), groups={0: (0, 1, 2, 3)})
    told = [verdict for judged in from_tables.steps for verdict in judged.verdicts]

    assert any(verdict.rank == fault.rank for verdict in from_tables.verdicts)
    assert lines(told) == lines(directly)


def test_several_occurrences_of_a_stage_are_summed_up() -> None:
    """Those that overlap count once; what was done in them is added up, but for the longest response."""
    step = only_step(
        [
            inside(0, 7, "generate", 0, 10, tokens=5, longest_response=3),
            inside(0, 7, "generate", 4, 6, tokens=1),
            inside(0, 7, "generate", 8, 14, tokens=2, longest_response=9),
            inside(0, 7, "generate", 20, 21),
        ]
    )

    (entered,), (left,) = step.entered_s, step.left_s
    assert (step.step, entered.item(), left.item()) == (7, 0.0, pytest.approx(0.021))
    assert step.total_s.item() == pytest.approx(0.015)
    assert step.occurrences.item() == 4
    assert [part.item() for part in (step.work.tokens, step.work.longest_response)] == [8, 9]
    assert np.isnan(step.work.responses).all()


def test_who_was_not_in_a_stage_and_who_never_left_one() -> None:
    step = only_step([inside(0, 1, "a", 0, 1), inside(1, 1, "a", 0, None), inside(1, 1, "b", 5, 6)])

    assert step.stages == ("a", "b")
    assert np.isnan(step.entered_s[0, 1]) and np.isnan(step.left_s[1, 0])
    assert step.occurrences.tolist() == [[1, 0], [0, 1]]


def test_members_are_what_the_rows_say_of_them() -> None:
    rows = [
        inside(3, 0, "a", 0, 1, role="actor", place="pp1", host="h9"),
        inside(2, 0, "a", 0, 1, role="actor", process="worker-2"),
    ]
    step = only_step(rows, hosts={2: "h0", 3: "h1"})

    assert [(peer.rank, peer.host, peer.process, peer.place) for peer in step.members] == [
        (2, "h0", "worker-2", ""), (3, "h9", "actor3", "pp1"),
    ]  # fmt: skip


def test_steps_are_judged_in_the_order_in_which_they_are_over() -> None:
    rows = [
        inside(0, step, "a", 10 * step, 10 * step + late, role=role)
        for role, late in (("slow", 35), ("quick", 1))
        for step in range(3)
    ]

    assert [(one.step.role, one.step.step) for one in judge(rows).steps] == [
        ("quick", 0), ("quick", 1), ("quick", 2), ("slow", 0), ("slow", 1), ("slow", 2),
    ]  # fmt: skip


def test_a_stage_that_only_waits_says_for_whom_and_a_controller_is_none_of_the_members() -> None:
    rows = [
        inside(0, 0, "get", 0, 1, waits_for="rollout"), inside(0, 0, "put", 1, 2, waits_for=""),
        inside(0, 0, "train", 2, 3), in_ms(role="controller", step=0, stage="train", entered_ns=0, left_ns=4),
    ]  # fmt: skip
    steps = {judged.step.role: judged.step for judged in judge(rows).steps}

    assert steps[""].waits_for == {"get": "rollout", "put": ""}
    assert [peer.is_controller for peer in steps["controller"].members] == [True]


def test_a_collective_is_of_the_innermost_stage_that_was_open_and_of_its_step() -> None:
    rows = [
        inside(0, 0, "outer", 0, 10), inside(0, 0, "inner", 2, 4), inside(0, 1, "outer", 20, 30),
        inside(1, 0, "outer", 0, 10),
    ]  # fmt: skip
    entered = [in_ms(rank=0, group="g", entered_ns=at, left_ns=None) for at in (1, 3, 6, 15, 22)]
    first, second = (judged.step for judged in judge(rows, collectives=entered, groups={"g": (0, 1)}).steps)

    assert first.collectives is not None and second.collectives is not None
    names = [*first.stages, None]
    assert [names[at] for at in first.collectives.stage] == ["outer", "inner", "outer", None]
    assert first.collectives.sequence.tolist() == [0, 1, 2, 3]
    assert second.collectives.sequence.tolist() == [4]
    assert set(first.collectives.groups.values()) == {(0, 1)}
    assert first.collectives.kind is None


def test_what_is_sent_and_received_has_a_group_for_each_pair_and_direction() -> None:
    rows = [inside(rank, 0, "forward", 0, 10) for rank in range(2)]
    hand_overs = [
        in_ms(from_rank=0, to_rank=1, sent_ns=1, entered_ns=0, left_ns=2),
        in_ms(from_rank=0, to_rank=1, sent_ns=3, entered_ns=2.5, left_ns=4),
        in_ms(from_rank=1, to_rank=0, sent_ns=6, entered_ns=5, left_ns=7),
    ]
    passed = only_step(rows, hand_overs=hand_overs).collectives

    assert passed is not None and passed.kind is not None
    seen = sorted(
        (passed.groups[group], sequence, kind, member)
        for group, sequence, kind, member in zip(passed.group, passed.sequence, passed.kind, passed.member)
    )
    assert seen == [
        ((0, 1), 0, SEND, 0), ((0, 1), 0, RECEIVE, 1), ((0, 1), 1, SEND, 0), ((0, 1), 1, RECEIVE, 1),
        ((1, 0), 0, SEND, 1), ((1, 0), 0, RECEIVE, 0),
    ]  # fmt: skip


def test_columns_are_as_good_as_rows() -> None:
    columns = {
        "rank": [0, 1], "step": [0, 0], "stage": ["a", "a"], "entered_ns": np.array([0, 5]), "left_ns": [10, 20],
    }  # fmt: skip
    (judged,) = judge(columns).steps

    assert judged.step.total_s[:, 0].tolist() == pytest.approx([10e-9, 15e-9])


def test_attempts_are_kept_apart_and_another_judge_takes_over() -> None:
    rows = [
        inside(rank, step, "a", 1000 * attempt + 10 * step, 1000 * attempt + 10 * step + 5, attempt=attempt)
        for attempt in range(2)
        for step in range(5)
        for rank in range(3)
    ]
    judged = judge(rows)

    assert [one.step.step for one in judged.steps] == [0, 1, 2, 3, 4] * 2
    assert judged.judge.judged_steps()[""][0] == 5


def test_a_setting_that_there_is_not_is_refused() -> None:
    with pytest.raises(MstxkitError, match="no setting"):
        judge([], settings={"slow_rank.nothing": 1})


def test_no_rows_are_no_steps() -> None:
    assert judge([]).steps == []


def test_the_example_holds() -> None:
    assert doctest.testmod(sys.modules["mstxkit.testing.judge"]).failed == 0
