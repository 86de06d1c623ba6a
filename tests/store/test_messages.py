"""Messages of the control folder become events of the machine; what is no message is refused with what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from builders.escalation_world import request

from mstxkit.errors import ConfigError
from mstxkit.escalation.machine import moves
from mstxkit.store import messages
from mstxkit.store.report import Report, Standing

PRESETS = ("full", "light")


def test_a_request_arrives_as_it_was_sent() -> None:
    sent = request(ranks="suspect+peer", reason="slow since step 40", sample={"per": "micro_batch", "skip": 2})

    event = messages.read_message(messages.of_request(sent, suspects=[3, 1]), PRESETS)

    assert event == moves.RequestReceived(sent, (1, 3))


@pytest.mark.parametrize("decided", [moves.Commit("ab", 12), moves.Drop("ab", "rank 2 is out")], ids=["commit", "drop"])
def test_a_decision_arrives_as_it_was_sent(decided: Any) -> None:
    assert messages.read_message(messages.of_decision(decided), PRESETS) == decided


def test_a_cancellation_arrives_as_it_was_sent() -> None:
    assert messages.read_message(messages.of_cancel("ab", "wrong rank"), PRESETS) == moves.CancelReceived(
        "ab", "wrong rank"
    )


def test_what_is_said_of_one_request_has_ids_of_its_own() -> None:
    sent = request()
    told = [
        messages.of_request(sent),
        messages.of_cancel(sent.id),
        messages.of_decision(moves.Commit(sent.id, 1)),
        messages.of_decision(moves.Drop(sent.id, "late")),
    ]

    assert len({message["id"] for message in told}) == len(told)


WRONG = {
    "of no kind": ({"id": "x"}, "kind="),
    "of an unknown kind": ({"id": "x", "kind": "exec", "request": "y"}, "kind='exec'"),
    "without its request": ({"id": "x", "kind": "request"}, "JSON object"),
    "with another id": ({"kind": "request", "id": "0" * 16}, "not the id"),
    "with suspects that are no ranks": ({"kind": "request", "suspects": [-1]}, "suspects=-1"),
    "with suspects that are no list": ({"kind": "request", "suspects": "all"}, "suspects='all'"),
    "with a preset that is not there": ({"kind": "request", "request": {"preset": "huge"}}, "no preset"),
    "with a stage that is no text": ({"kind": "request", "request": {"stages": [1]}}, "no stage"),
    "a cancellation of nothing": ({"id": "x", "kind": "cancel", "reason": ""}, "request="),
    "a step that is none": ({"id": "x", "kind": "commit", "request": "y", "first_step": "3"}, "first_step='3'"),
    "words of a terminal": ({"id": "x", "kind": "drop", "request": "y", "reason": "\x1b[2J"}, "reason="),
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG.keys())
def test_what_is_no_message_is_refused(given: tuple[dict[str, Any], str]) -> None:
    told, expected = given
    message = messages.of_request(request()) if told.get("kind") == "request" and told.get("id") != "x" else {}
    changes = {**told, "request": {**message["request"], **told["request"]}} if message and "request" in told else told

    with pytest.raises(ConfigError, match=expected):
        messages.read_message({**message, **changes}, PRESETS)


def test_what_a_rank_says_of_itself_comes_back() -> None:
    report = Report("ab", 3, "done", step=7, recorded_steps=(5, 6))
    said = Standing(4, 7, 10**9, ("actor_update",), "cooldown", None, {"torch": "not imported"}, (report,))

    assert Standing.read(said.as_json()) == said


def test_a_report_that_is_none_is_left_out() -> None:
    said = Standing(4, None, None, (), "idle", "torch", {}, ()).as_json()
    said["reports"] = [{"id": "ab"}, {"state": "elsewhere"}, 3, Report("cd", 0, "armed")._asdict()]

    assert [report.id for report in Standing.read(said).reports] == ["cd"]


def test_a_report_of_a_newer_version_that_says_more_is_read() -> None:
    said = Standing(4, None, None, (), "idle", "torch", {}, ()).as_json()
    said["reports"] = [{**Report("ab", 3, "running")._asdict(), "of_a_newer_version": 1}]

    assert Standing.read(said).reports == (Report("ab", 3, "running"),)


@pytest.mark.parametrize("damage", [{"world_size": None}, {"stages": 3}, {"why_no_backend": []}])
def test_what_no_rank_says_is_refused(damage: dict[str, Any]) -> None:
    said = Standing(4, None, None, (), "idle", None, {}, ()).as_json()

    with pytest.raises(ConfigError):
        Standing.read({**said, **damage})
