"""What becomes of requests, in a real control folder: each state of all ranks together once, and nothing old."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from builders.escalated_run import GONE, NS, control, left, run_of, say
from builders.run_files import RUN_ID

from mstxkit.judging import acting, request_news
from mstxkit.judging.request_news import RequestNews
from mstxkit.store import messages
from mstxkit.store.report import ARMED, DONE, EXPIRED, FAILED, QUEUED, RUNNING, EscalationNews, Report
from mstxkit.store.verdicts import Verdict


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four ranks; it is looked at as often as somebody looks."""
    monkeypatch.setattr(request_news, "_LOOKS_EVERY_S", 0.0)
    return run_of(tmp_path / "run")


def look(news: RequestNews, after_s: int = 0) -> list[EscalationNews]:
    return news.look(time.time_ns() + after_s * NS)


def states(news: RequestNews, after_s: int = 0) -> list[str]:
    return [one.state for one in look(news, after_s)]


def test_each_state_of_all_ranks_together_is_told_once(run: Path) -> None:
    news, request = RequestNews(run, RUN_ID), left(run, ranks=[1, 2])
    told = states(news)
    for first, second in ((ARMED, QUEUED), (ARMED, ARMED), (RUNNING, ARMED), (DONE, RUNNING), (DONE, DONE)):
        say(run, 1, Report(request.id, 1, first))
        say(run, 2, Report(request.id, 2, second))
        told += [*states(news), *states(news)]

    assert told == [QUEUED, ARMED, RUNNING, DONE]


def test_it_says_what_was_asked_for_of_whom_for_which_verdict_and_why_it_failed(run: Path) -> None:
    verdict = Verdict("0123456789abcdef", 5, 40, "compute", "actor_update", 1)
    occasion = f"verdict {verdict.id} {acting.cause_of(verdict)}"
    news, request = RequestNews(run, RUN_ID), left(run, ranks=[1, 2], occasion=occasion)
    look(news)
    say(run, 1, Report(request.id, 1, DONE))
    say(run, 2, Report(request.id, 2, FAILED, reason="no space left"))
    (told,) = look(news)

    assert (told.state, told.counts, told.reason) == (FAILED, "done 1, failed 1 of 2", "no space left")
    assert (told.request, told.stages, told.ranks) == (request.id, ("actor_update",), (1, 2))
    assert (told.asked_ns, told.verdict) == (request.created_ns, verdict.id)


def test_one_that_is_cancelled_or_expires_unanswered_is_told(run: Path) -> None:
    news, cancelled, expired = RequestNews(run, RUN_ID), left(run), left(run, occasion="another")
    assert states(news) == [QUEUED, QUEUED]
    control(run).send(messages.of_cancel(cancelled.id, "the verdict was withdrawn: it is fast again"))
    (told,) = look(news)

    assert (told.request, told.state) == (cancelled.id, "cancelled")
    assert told.reason == "the verdict was withdrawn: it is fast again"
    assert [(one.request, one.state) for one in look(news, after_s=10**6)] == [(expired.id, EXPIRED)]


def test_a_rank_that_dies_in_its_session_makes_it_failed(run: Path) -> None:
    news, request = RequestNews(run, RUN_ID), left(run)
    say(run, 1, Report(request.id, 1, RUNNING))
    look(news)
    say(run, 1, Report(request.id, 1, RUNNING), process=GONE)

    assert states(news) == [FAILED]


def test_who_judges_from_now_on_does_not_tell_of_what_had_ended(run: Path) -> None:
    request = left(run)
    say(run, 1, Report(request.id, 1, DONE))
    news = RequestNews(run, RUN_ID)

    assert look(news) == look(news) == []


def test_what_is_no_file_of_requests_says_nothing_until_it_is_one(run: Path) -> None:
    news, file = RequestNews(run, RUN_ID), run / "control" / "requests.json"
    file.write_bytes(b"[[")
    assert look(news) == []
    file.unlink()
    left(run)

    assert states(news) == [QUEUED]
