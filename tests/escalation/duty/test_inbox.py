"""What comes in waits for its stage; what cannot be done here is refused before the machine hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
from builders.escalation_world import request

from mstxkit import faults
from mstxkit.escalation.duty.inbox import Inbox
from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.escalation.machine import moves
from mstxkit.store import messages
from mstxkit.store.control_folder import ControlFolder
from mstxkit.store.report import Report, Standing

RUN = "0" * 32


@pytest.fixture(autouse=True)
def no_faults_left() -> Iterator[None]:
    yield
    faults.reset_counts()


def test_a_request_waits_until_its_stage_has_run_here() -> None:
    inbox, message = Inbox(0, 4), messages.of_request(request())

    assert not list(inbox.events([message], {"train_step"}))
    assert not list(inbox.events([], set()))

    assert list(inbox.events([], {"actor_update"})) == [moves.RequestReceived(request())]
    assert not list(inbox.events([], {"actor_update"})), "once"


def test_a_request_for_whole_steps_waits_until_any_stage_has_run_here() -> None:
    inbox, asked = Inbox(0, 4), request(stage="all")

    assert not list(inbox.events([messages.of_request(asked)], set()))
    assert list(inbox.events([], {"reward"})) == [moves.RequestReceived(asked)]


@pytest.mark.parametrize(
    ("asked", "own", "is_heard"),
    [
        ("a/b", "a_b", True),
        ("actor", "rollout", False),
        ("actor", "actor_123", False),
        ("actor", "", True),
        ("", "actor", True),
    ],
)
def test_a_request_for_a_role_is_heard_by_that_role_and_by_who_has_none(asked: str, own: str, is_heard: bool) -> None:
    message = messages.of_request(request(role=asked))

    assert len(list(Inbox(0, 4, own).events([message], {"actor_update"}))) == is_heard


def test_what_is_said_of_a_request_comes_after_it() -> None:
    asked = request()
    told = [messages.of_request(asked), messages.of_cancel(asked.id)]

    events = list(Inbox(0, 4).events(told, {"actor_update"}))

    assert [type(event) for event in events] == [moves.RequestReceived, moves.CancelReceived]


def test_a_message_that_is_none_is_refused_in_public_and_the_others_go_on() -> None:
    inbox = Inbox(2, 4)
    hostile = {**messages.of_request(request()), "request": {"stages": ["actor_update"], "ranks": "everyone"}}

    events = list(inbox.events([hostile, messages.of_cancel("ab")], {"actor_update"}))

    assert events == [moves.CancelReceived("ab")]
    refused = inbox.refused[hostile["id"]]
    assert (refused.rank, refused.state) == (2, "refused") and "everyone" in refused.reason
    assert inbox.has_refused


@pytest.mark.parametrize(("ranks", "is_refused"), [([0], True), ([1], False)])
def test_a_sample_that_cannot_be_counted_here_is_refused_by_the_ranks_asked(ranks: list[int], is_refused: bool) -> None:
    inbox, asked = Inbox(0, 4), request(ranks=ranks, sample={"per": "decode_step"})

    events = list(inbox.events([messages.of_request(asked)], {"actor_update"}))

    assert bool(events) is not is_refused
    assert not is_refused or "decode_step" in inbox.refused[asked.id].reason


def standing(*reports: Report) -> dict[str, Any]:
    return Standing(4, 3, None, ("actor_update",), "idle", None, {}, reports).as_json()


def test_other_ranks_are_heard_once_and_only_of_what_matters(tmp_path: Path) -> None:
    control = ControlFolder(tmp_path, RUN)
    box = Mailbox(control, tmp_path)
    box.acknowledge(1, standing(Report("ab", 1, "queued"), Report("other", 1, "done"), Report("ab", 2, "done")))
    box.flush()
    inbox = Inbox(0, 4)

    assert list(inbox.heard_from(control, {"ab": [0, 1, 2]})) == [Report("ab", 1, "queued")]

    inbox = Inbox(0, 4)
    assert not list(inbox.heard_from(control, {}))
    assert not list(inbox.heard_from(control, {"ab": [2]}))


def test_a_document_of_another_making_says_nothing(tmp_path: Path) -> None:
    control = ControlFolder(tmp_path, RUN)
    box = Mailbox(control, tmp_path)
    box.acknowledge(1, {"reports": "all done"})
    box.flush()

    assert not list(Inbox(0, 4).heard_from(control, {"ab": [1]}))
