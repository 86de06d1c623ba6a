"""Profiles that verdicts ask for, in a real control folder: once each, by whichever judge, and taken back with them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from builders import soak
from builders.escalated_run import control, empty_run, say
from builders.run_files import RUN_ID

from mstxkit.judging import escalations, speakers
from mstxkit.judging.acting import Acting
from mstxkit.judging.escalations import Escalations
from mstxkit.store import fate, messages, verdicts
from mstxkit.store.report import ARMED, DONE, EXPIRED, FAILED, QUEUED, RUNNING, Report
from mstxkit.store.request import Request
from mstxkit.store.verdicts import Verdict

NS = 10**9
VERDICT = Verdict(
    "0123456789abcdef", 5, 40, "compute", "actor_update", 1, "actor", impact_ratio=0.24, next="mstxkit escalate …"
)
OTHER = VERDICT._replace(id="f" * 16, rank=3, stage="actor_generate", impact_ratio=0.1)
USUAL, AGAIN = Acting(), Acting(every_s=0.0, same_s=0.0)


def asked(run: Path) -> list[Request]:
    return [each.request for each in fate.read_asked(control(run))]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four ranks that let verdicts act."""
    folder = empty_run(tmp_path / "run")
    for rank in range(4):
        say(folder, rank, role="actor", act="escalate")
    return folder


@pytest.fixture
def judge(run: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Escalations]:
    """A judge of the run, started anew; it looks again at once."""
    monkeypatch.setattr(escalations, "_LOOKS_EVERY_S", 0.0)
    return lambda said=(): Escalations(run, RUN_ID, said)


def consider(judge: Escalations, *holding: Verdict, limits: Acting = USUAL, now_ns: int | None = None) -> list[Any]:
    return judge.consider(holding, limits, time.time_ns() if now_ns is None else now_ns)


def test_a_verdict_asks_for_its_stage_on_the_suspect_and_a_peer_and_says_by_which_request(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    (said,) = consider(judge(), VERDICT)

    (request,) = asked(run)
    assert (request.stages, request.ranks, request.preset, request.steps) == (("actor_update",), (1, 2), "full", 1)
    assert (said.request, request.role) == (request.id, "actor")
    assert said.next == f"mstxkit status {run}", "to ask again is not what is to be done next"
    assert said.no_request == ""


def test_who_costs_next_to_nothing_elsewhere_is_a_healthy_peer(tmp_path: Path) -> None:
    """Of two ranks one is slow, and the other one a little slower than that one in another stage."""
    run = empty_run(tmp_path / "two")
    for rank in range(2):
        say(run, rank, role="actor", act="escalate")
    a_little = VERDICT._replace(id="e" * 16, rank=0, stage="actor_generate", impact_ratio=0.017)

    consider(Escalations(run, RUN_ID, ()), VERDICT, a_little)

    (request,) = asked(run)
    assert request.ranks == (0, 1)


def test_a_verdict_never_asks_to_get_around_what_ranks_allow(run: Path, judge: Callable[..., Escalations]) -> None:
    consider(judge(), VERDICT)

    (request,) = asked(run)
    assert (request.force, request.planned, request.limits.seconds, request.limits.bytes) == (False, None, None, None)


def test_what_is_said_later_of_the_verdict_names_the_request_too(judge: Callable[..., Escalations]) -> None:
    one = judge()
    (said,) = consider(one, VERDICT)

    assert one.noted(VERDICT._replace(step=99)).request == said.request


def test_by_default_nothing_is_asked_for_and_the_command_stays(run: Path, judge: Callable[..., Escalations]) -> None:
    for rank in range(4):
        say(run, rank, role="actor")
    one = judge()
    said = consider(one, VERDICT, VERDICT._replace(id="e" * 16, kind="imbalance"))

    assert (said, asked(run)) == ([], [])
    assert one.noted(VERDICT) == VERDICT


def test_where_the_blamed_rank_alone_observes_it_is_left_alone(run: Path, judge: Callable[..., Escalations]) -> None:
    say(run, 1, role="actor", act="observe")

    assert consider(judge(), VERDICT) == []
    assert asked(run) == []


def test_what_costs_most_asks_first_and_the_other_one_says_that_it_waits(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    first, second = consider(judge(), OTHER, VERDICT)

    assert (first.id, second.id) == (VERDICT.id, OTHER.id)
    assert [request.ranks for request in asked(run)] == [(1, 2)]
    assert second.no_request == f"request {first.request}, of another verdict, comes first"


@pytest.mark.parametrize("other", [OTHER, OTHER._replace(kind="all_slow", rank=None, impact_ratio=0.9)])
def test_nothing_cheaper_goes_first_while_a_rank_has_not_said_yet_that_it_is_in_the_stage(
    run: Path, judge: Callable[..., Escalations], other: Verdict
) -> None:
    say(run, 1, role="actor", act="escalate", stages=("reward",))
    one = judge()
    first, second = consider(one, other, VERDICT)
    assert first.no_request == "rank 1 cannot be asked: it says nothing of actor_update"
    assert second.no_request == f"verdict {VERDICT.id}, which costs more, comes first"
    assert asked(run) == []

    say(run, 1, role="actor", act="escalate")
    said, _ = consider(one, other, VERDICT)

    assert (said.id, said.no_request) == (VERDICT.id, "")
    assert [request.ranks for request in asked(run)] == [(1, 2)]


def test_what_nobody_could_be_profiled_for_asks_once_it_is_known_that_all_are_slow(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    one, hidden = judge(), OTHER._replace(kind="not_enough_evidence", rank=None)
    consider(one, hidden)
    assert asked(run) == []

    consider(one, hidden._replace(kind="all_slow"))

    assert len(asked(run)) == 1


def test_a_profile_of_everybody_being_slow_holds_up_none_that_blames_a_rank_also_once_it_was_read_from_the_run(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    one, all_slow = judge(), OTHER._replace(kind="all_slow", rank=None)
    (said,) = consider(one, all_slow)
    (request,) = asked(run)
    for rank in request.ranks:
        say(run, rank, Report(request.id, rank, DONE), role="actor", act="escalate")
    consider(one, said, OTHER._replace(id="e" * 16, kind="imbalance"))  # another look at what was asked for
    (second,) = consider(one, said, VERDICT)

    assert (second.id, second.no_request) == (VERDICT.id, "")
    assert len(asked(run)) == 2


@pytest.mark.parametrize(("impact", "asks"), [(0.05, True), (0.1, False)])
def test_what_costs_little_does_not_take_the_turn_of_what_costs_several_times_as_much(
    run: Path, judge: Callable[..., Escalations], impact: float, asks: bool
) -> None:
    one = judge()
    (said,) = consider(one, OTHER._replace(impact_ratio=impact))
    (request,) = asked(run)
    for rank in request.ranks:
        say(run, rank, Report(request.id, rank, DONE), role="actor", act="escalate")
    consider(one, said, VERDICT)

    assert len(asked(run)) == 1 + asks


def test_it_waits_no_longer_than_it_may_for_a_rank_that_never_says_it(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    say(run, 1, role="actor", act="escalate", stages=("reward",))
    said = consider(judge(), OTHER, VERDICT, limits=Acting(peer_s=0.0))

    assert [bool(verdict.request) for verdict in said] == [False, True]
    assert [request.stages for request in asked(run)] == [("actor_generate",)]


def test_the_same_why_is_said_once(judge: Callable[..., Escalations]) -> None:
    one = judge()
    consider(one, VERDICT, OTHER)

    assert consider(one, VERDICT, OTHER) == []


def test_once_the_first_request_has_ended_the_next_verdict_asks(run: Path, judge: Callable[..., Escalations]) -> None:
    one = judge()
    first, _ = consider(one, VERDICT, OTHER, limits=AGAIN)
    for rank in (1, 2):
        say(run, rank, Report(first.request, rank, DONE), role="actor", act="escalate")
    (second,) = consider(one, VERDICT, OTHER, limits=AGAIN)

    assert (second.id, second.no_request) == (OTHER.id, "")
    assert [request.ranks for request in asked(run)] == [(1, 2), (0, 3)]


def test_a_profile_that_recorded_nothing_is_said_with_the_verdict_that_asked_for_it(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    one = judge()
    (said,) = consider(one, VERDICT)
    say(run, 1, Report(said.request, 1, FAILED, reason="nothing was written"), role="actor", act="escalate")
    say(run, 2, Report(said.request, 2, DONE), role="actor", act="escalate")
    (failed,) = consider(one, VERDICT)
    next_judge = judge([failed])

    assert (failed.request, failed.no_request) == (said.request, "rank 1 failed: nothing was written")
    assert next_judge.noted(VERDICT) == failed
    assert consider(one, VERDICT) == consider(next_judge, failed) == [], "it is said once"


def test_of_a_profile_that_came_nothing_more_is_said(run: Path, judge: Callable[..., Escalations]) -> None:
    one = judge()
    (said,) = consider(one, VERDICT)
    for rank in (1, 2):
        say(run, rank, Report(said.request, rank, DONE), role="actor", act="escalate")

    assert consider(one, VERDICT) == []
    assert one.noted(VERDICT).no_request == ""


def test_a_judge_that_is_started_again_does_not_ask_again(run: Path, judge: Callable[..., Escalations]) -> None:
    (said,) = consider(judge(), VERDICT, limits=AGAIN)
    by_its_line = consider(judge([said]), VERDICT, limits=AGAIN)
    by_the_request = consider(judge(), VERDICT, limits=AGAIN)

    assert len(asked(run)) == 1
    assert by_its_line == []
    assert [verdict.request for verdict in by_the_request] == [said.request], "it may have died before it said so"


def test_two_judges_make_one_request_of_one_verdict(run: Path, judge: Callable[..., Escalations]) -> None:
    actor, watch = judge(), judge()
    said = [consider(one, VERDICT, limits=AGAIN)[0].request for one in (actor, watch)]

    assert len(asked(run)) == 1
    assert said[0] == said[1]


def test_budgets_hold_for_all_judges_of_a_run_together(run: Path, judge: Callable[..., Escalations]) -> None:
    limits, now_ns = Acting(every_s=0.0, same_s=0.0, a_day=5), time.time_ns()
    for number in range(40):
        verdict = VERDICT._replace(id=f"{number:016x}", rank=number % 4)
        for request in asked(run):
            for rank in request.ranks:
                say(run, rank, *(Report(each.id, rank, DONE) for each in asked(run)), role="actor", act="escalate")
        said = consider(judge(), verdict, limits=limits, now_ns=now_ns + number * NS)

    assert len(asked(run)) == 5
    assert said[0].no_request == "verdicts may ask for 5 profiles in 24 hours (acting.a_day)"


def test_thousands_of_verdicts_in_a_row_leave_a_bounded_number_of_requests_and_nothing_grows(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    one, now_ns, steps = judge(), time.time_ns(), soak.rounds(10_000, 2_000)
    for step in range(steps):
        verdict = VERDICT._replace(id=f"{step:016x}", step=step)
        one.noted(verdict)
        consider(one, verdict, now_ns=now_ns + step * NS)
        one.noted(verdict._replace(withdrawn="not seen any more"))

    limits = Acting()
    assert len(asked(run)) <= steps / limits.same_s + 1
    assert sum(map(len, (one._why, one._final, one._cancels))) <= 5
    assert len(one._earlier) == len(one._request_of) == len(asked(run))


def test_a_verdict_that_is_withdrawn_before_its_request_ran_cancels_it(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    one = judge()
    (said,) = consider(one, VERDICT)
    say(run, 1, Report(said.request, 1, ARMED), role="actor", act="escalate")
    say(run, 2, Report(said.request, 2, QUEUED), role="actor", act="escalate")
    one.noted(VERDICT._replace(withdrawn="not seen any more up to step 60"))
    consider(one)

    (cancelled,) = fate.read_asked(control(run))
    assert cancelled.cancelled == "the verdict was withdrawn: not seen any more up to step 60"


@pytest.mark.parametrize("report", [Report("", 1, RUNNING), Report("", 1, ARMED, recorded=1), Report("", 1, DONE)])
def test_a_request_that_has_begun_is_left_to_end(report: Report, run: Path, judge: Callable[..., Escalations]) -> None:
    one = judge()
    (said,) = consider(one, VERDICT)
    say(run, 1, report._replace(id=said.request), role="actor", act="escalate")
    one.noted(VERDICT._replace(withdrawn="gone"))
    consider(one)

    assert [each.cancelled for each in fate.read_asked(control(run))] == [None]


def test_a_judge_that_takes_over_takes_back_what_the_last_one_had_no_time_to(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    (said,) = consider(judge(), VERDICT)
    consider(judge([said._replace(withdrawn="gone")]))

    assert [each.cancelled for each in fate.read_asked(control(run))] == ["the verdict was withdrawn: gone"]


def test_a_peer_whose_host_is_slow_to_say_that_it_is_there_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speakers, "_LISTED_FOR_S", 0.0)
    monkeypatch.setattr(escalations, "_LOOKS_EVERY_S", 0.0)
    slow = empty_run(tmp_path / "slow")
    say(slow, 1, role="actor", act="escalate", world_size=2)
    one = Escalations(slow, RUN_ID)
    (waits,) = consider(one, VERDICT)
    assert "waits for a healthy peer: rank 0 said nothing yet" in waits.no_request
    assert consider(one, VERDICT) == asked(slow) == []
    say(slow, 0, role="actor", act="escalate", world_size=2)

    (said,) = consider(one, VERDICT)
    assert (said.no_request, asked(slow)[0].ranks) == ("", (0, 1))


def test_it_is_waited_for_so_long_and_then_the_suspect_is_profiled_alone_which_is_said(tmp_path: Path) -> None:
    slow = empty_run(tmp_path / "slow")
    say(slow, 1, role="actor", act="escalate", world_size=2)
    consider(Escalations(slow, RUN_ID), VERDICT, limits=Acting(peer_s=0.0))

    (request,) = asked(slow)
    assert request.ranks == (1,)
    assert request.reason.endswith("without a peer: rank 0 said nothing yet")


def test_where_the_peer_never_answers_the_request_is_taken_back_and_another_peer_is_asked(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    one, limits = judge(), Acting(every_s=0.0)
    (first,) = consider(one, VERDICT, limits=limits)
    say(run, 1, Report(first.request, 1, EXPIRED, reason="rank 2 said nothing"), role="actor", act="escalate")
    (second,) = consider(one, VERDICT, limits=limits)

    taken_back, now = fate.read_asked(control(run))
    assert (taken_back.request.ranks, taken_back.cancelled) == ((1, 2), "rank 2 never answered")
    assert (now.request.ranks, now.request.id) == ((1, 3), second.request)
    assert consider(one, VERDICT, limits=limits) == []


def test_while_it_is_not_its_turn_again_it_says_who_never_answered(
    run: Path, judge: Callable[..., Escalations]
) -> None:
    one = judge()
    (first,) = consider(one, VERDICT)
    say(run, 1, Report(first.request, 1, EXPIRED), role="actor", act="escalate")
    (said,) = consider(one, VERDICT)

    assert said.request == ""
    assert said.no_request.startswith(f"rank 2 never answered request {first.request}; verdicts may ask for one")


def test_a_person_s_request_is_never_taken_back(run: Path, judge: Callable[..., Escalations]) -> None:
    one = judge()
    (said,) = consider(one, VERDICT)
    control(run).send(messages.of_cancel(said.request, "by hand"))
    one.noted(VERDICT._replace(withdrawn="gone"))
    consider(one)

    assert [each.cancelled for each in fate.read_asked(control(run))] == ["by hand"]


def test_a_run_that_is_gone_or_full_of_anything_raises_nothing(run: Path, judge: Callable[..., Escalations]) -> None:
    (run / "control/requests.json").write_text("{")
    (run / "control/acks/rank1-actor.json").write_text('{"format": 1}')
    (run / "control/acks/rank2-actor.json").unlink()
    (run / "control/acks/rank2-actor.json").symlink_to("/dev/zero")
    damaged = consider(judge(), VERDICT)
    gone = consider(Escalations(run.parent / "gone", RUN_ID), VERDICT)

    assert ["nothing was heard yet of rank 1" in verdict.no_request for verdict in damaged] == [True]
    assert gone == []


def test_the_table_and_the_lines_keep_why_nothing_was_asked_for() -> None:
    said = VERDICT._replace(no_request="it costs less than 2.0% of a step (acting.impact)")

    again = verdicts.Verdict.read(json.loads(said.line()))
    assert again is not None and again.no_request == said.no_request
