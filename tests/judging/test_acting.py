"""What a verdict asks for, and why it does not: from values alone."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit.judging import acting
from mstxkit.judging.acting import OBSERVES, Acting, Earlier, NotAsked, Peers, Wish
from mstxkit.store.fate import Heard
from mstxkit.store.report import Acknowledgement, Standing
from mstxkit.store.request import WHOLE_STEPS
from mstxkit.store.verdicts import ALL_SLOW, KINDS, Verdict

NS = 10**9
VERDICT = Verdict(
    "0123456789abcdef", 5, 40, "compute", "actor_update", 1, "actor", impact_ratio=0.24, evidence={"where": "in"}
)


def heard(
    rank: int, act: str = "escalate", host: str = "a", backend: str | None = "torch", is_alive: bool | None = True,
    role: str = "actor", stages: tuple[str, ...] = ("actor_update",), **groups: tuple[int, int],
) -> Heard:  # fmt: skip
    standing = Standing(4, 7, NS, stages, "idle", backend, {"torch_npu": "no NPU"}, (), groups, act=act)
    return Heard(Acknowledgement(rank, role, host, 1, 0, {}), standing, is_alive)


def wish(speakers: list[Heard], **changes: Any) -> Any:
    return acting.wish_of(VERDICT._replace(**changes), speakers, 0)


FOUR = [heard(rank) for rank in (1, 2, 3, 0)]


def test_the_suspect_and_a_healthy_peer_are_profiled_in_the_stage_that_was_named() -> None:
    asked = wish(FOUR)

    assert asked[1:4] == ("actor_update", (1, 2), "full")
    assert asked.reason == "compute of rank 1: by step 40 it cost 24% of each"


@pytest.mark.parametrize(
    ("kind", "preset"),
    [("compute", "full"), ("input", "full"), ("all_slow", "full"), ("link", "comm"), ("communication", "comm")],
)
def test_each_kind_has_the_preset_that_shows_its_cause(kind: str, preset: str) -> None:
    assert wish(FOUR, kind=kind).preset == preset


def test_every_kind_has_a_preset_or_a_reason_why_no_profile_would_show_more() -> None:
    assert sorted([*acting.PRESETS, *acting.NO_PROFILE]) == sorted(KINDS)


@pytest.mark.parametrize("kind", sorted(acting.NO_PROFILE))
def test_a_kind_that_no_profile_explains_is_refused_for_good(kind: str) -> None:
    assert acting.refused_by_itself(VERDICT._replace(kind=kind), Acting()) == NotAsked(acting.NO_PROFILE[kind], True)


def test_a_blamed_rank_is_no_healthy_peer() -> None:
    asked = acting.wish_of(VERDICT, FOUR, 0, peers=Peers(blamed={1, 2}))

    assert isinstance(asked, Wish)
    assert asked.ranks == (1, 3)


def test_a_peer_has_the_same_part_of_the_model_and_is_of_another_host_where_there_is_one() -> None:
    speakers = [
        heard(1, dp=(0, 4), tp=(1, 2)), heard(2, dp=(1, 4), tp=(0, 2), host="b"), heard(3, dp=(1, 4), tp=(1, 2)),
        heard(5, dp=(2, 4), tp=(1, 2), host="b"),
    ]  # fmt: skip

    assert wish(speakers).ranks == (1, 5)


def test_a_peer_is_of_the_group_that_the_verdict_names() -> None:
    assert wish(FOUR, group=(1, 3), kind="link").ranks == (1, 3)


def test_where_nobody_alone_is_the_cause_some_of_the_group_are_profiled() -> None:
    many = [heard(rank) for rank in range(20)]

    assert wish(many, kind="communication", rank=None, group=tuple(range(4, 20))).ranks == tuple(range(4, 12))
    assert wish(many, kind="all_slow", rank=None).ranks == (0, 1)


def test_a_suspect_without_a_healthy_peer_is_profiled_alone_and_that_is_said() -> None:
    asked = wish([heard(1), heard(2, is_alive=False)])

    assert asked.ranks == (1,)
    assert "no healthy one is there" in asked.reason


def test_a_peer_that_has_said_nothing_yet_is_waited_for_and_no_longer_than_there_is_time() -> None:
    waits, alone = (
        acting.wish_of(VERDICT, [heard(1)], 0, peers=Peers(unheard=(2, 3), may_wait=may_wait))
        for may_wait in (True, False)
    )

    assert waits == NotAsked("it waits for a healthy peer: ranks 2-3 said nothing yet (acting.peer_s)", may_soon=True)
    assert isinstance(alone, Wish)
    assert alone.ranks == (1,)
    assert alone.reason.endswith("without a peer: ranks 2-3 said nothing yet")


def test_where_a_peer_is_there_nobody_else_is_waited_for() -> None:
    asked = acting.wish_of(VERDICT, FOUR[:2], 0, peers=Peers(unheard=(3,), may_wait=True))

    assert isinstance(asked, Wish)
    assert asked.ranks == (1, 2)


@pytest.mark.parametrize("where", ["before", "behind_gap"])
def test_time_that_is_lost_between_stages_is_looked_for_in_the_whole_step(where: str) -> None:
    assert wish(FOUR, evidence={"where": where}).stage == WHOLE_STEPS


def test_where_several_processes_have_the_rank_its_stage_alone_is_profiled() -> None:
    verdict = VERDICT._replace(evidence={"where": "before"})
    asked = acting.wish_of(verdict, FOUR, 0, shared={1})

    assert isinstance(asked, Wish)
    assert asked.stage == "actor_update"


def test_a_rank_that_only_observes_is_not_asked_and_nothing_is_said() -> None:
    assert wish([heard(rank, act="observe") for rank in range(4)]) is OBSERVES


@pytest.mark.parametrize(
    ("suspect", "why"),
    [
        (heard(1, backend=None), "no profiler can record there: torch_npu: no NPU"),
        (heard(1, is_alive=False), "it has ended"),
        (heard(1, stages=("reward",)), "it says nothing of actor_update"),
        (heard(1, role="critic"), "it is of the role critic"),
    ],
)
def test_why_a_suspect_cannot_be_asked_is_said(suspect: Heard, why: str) -> None:
    answer = wish([suspect, heard(2)])

    assert isinstance(answer, NotAsked)
    assert why in answer.why


def test_ranks_of_another_host_that_say_nothing_any_more_are_not_asked() -> None:
    """As of a run that was copied: each living rank speaks once a minute."""
    answers = [acting.wish_of(VERDICT, [heard(1, is_alive=None)], age_s * NS) for age_s in (170, 200)]

    assert isinstance(answers[0], Wish)
    assert isinstance(answers[1], NotAsked)
    assert "nothing is heard of it any more" in answers[1].why


def test_a_suspect_of_whom_nothing_is_heard_is_not_replaced_by_another() -> None:
    answer = wish([heard(0), heard(2)])

    assert isinstance(answer, NotAsked)
    assert "nothing was heard yet of rank 1" in answer.why


@pytest.mark.parametrize("changes", [{"stage": None}, {"id": "no id\n"}, {"id": ""}])
def test_what_no_judge_of_ours_has_said_asks_for_nothing(changes: dict[str, Any]) -> None:
    assert acting.refused_by_itself(VERDICT._replace(**changes), Acting()) is not None


def test_what_costs_little_is_no_reason_to_profile() -> None:
    refused = acting.refused_by_itself(VERDICT._replace(impact_ratio=0.01), Acting())

    assert refused is not None
    assert "less than 2.0% of a step" in refused.why
    assert not refused.is_final, "it may come to cost more"


def earlier(*ages_s: float, cause: str = "f" * 8, is_open: bool = False) -> list[Earlier]:
    return [Earlier(f"r{age_s}", "e" * 16, cause, int(-age_s * NS), is_open) for age_s in ages_s]


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (earlier(299), "one profile in 300 s"),
        (earlier(-50), "one profile in 300 s"),  # a clock that was set back
        (earlier(4000, is_open=True), "comes first"),
        (earlier(3599, cause=acting.cause_of(VERDICT)), "the same cause"),
        (earlier(*range(4000, 4012)), "12 profiles in 24 hours"),
        (earlier(*range(100_000, 100_048)), "48 profiles in a job"),
    ],
)
def test_it_waits_for_its_turn_and_says_why(before: list[Earlier], why: str) -> None:
    refused = acting.refused_by_others(VERDICT, before, Acting(), 0)

    assert refused is not None
    assert why in refused.why
    assert not refused.is_final


def test_a_verdict_on_everybody_does_not_hold_up_one_that_blames_a_rank() -> None:
    everybody, now_ns = VERDICT._replace(kind=ALL_SLOW, rank=None, stage="reward"), 0
    ended = acting.asked_by(everybody, "r", -NS)._replace(is_open=False)

    assert acting.refused_by_others(VERDICT, [ended], Acting(), now_ns) is None
    assert acting.refused_by_others(VERDICT, [ended._replace(is_open=True)], Acting(), now_ns) is not None
    of_another_stage = everybody._replace(stage="resharding")
    assert "one profile in 300 s" in str(acting.refused_by_others(of_another_stage, [ended], Acting(), now_ns))


def test_it_may_ask_where_nothing_is_in_its_way() -> None:
    before = [*earlier(3601, cause=acting.cause_of(VERDICT)), *earlier(*range(90_000, 90_040))]

    assert acting.refused_by_others(VERDICT, before, Acting(), 0) is None


def test_ten_thousand_steps_with_a_new_verdict_each_ask_no_more_often_than_the_budgets_say() -> None:
    limits, asked, step_s = Acting(), list[Earlier](), 20
    for step in range(10_000):
        verdict, now_ns = VERDICT._replace(id=f"{step:016x}", rank=step), step * step_s * NS
        if acting.refused_by_others(verdict, asked, limits, now_ns) is None:
            asked.append(Earlier(f"{step}", verdict.id, acting.cause_of(verdict), now_ns))

    days = [sum(day <= each.asked_ns // (86_400 * NS) < day + 1 for each in asked) for day in range(3)]
    assert days == [limits.a_day] * 2 + [days[2]]
    assert len(asked) <= 3 * limits.a_day


def test_a_request_says_of_which_verdict_and_cause_it_is() -> None:
    assert acting.verdict_in(wish(FOUR).occasion) == (VERDICT.id, acting.cause_of(VERDICT))
    assert acting.verdict_in("step 7") is None


def test_the_same_cause_is_the_same_in_another_verdict() -> None:
    again = VERDICT._replace(id="f" * 16, since_step=99, impact_ratio=0.5)

    assert acting.cause_of(again) == acting.cause_of(VERDICT)
    assert acting.cause_of(VERDICT._replace(rank=2)) != acting.cause_of(VERDICT)
