"""A rank on duty gives way to somebody else's profiler: on the thread that begins it, and never longer than 50 ms."""

from __future__ import annotations

import threading

import pytest
from builders.rank_on_duty import UPDATE, Rank

from mstxkit import faults
from mstxkit.escalation.duty import duty as duties
from mstxkit.profiling import theirs


def begins(who: str = "verl") -> None:
    """As the entry points tell it."""
    for give_way in tuple(theirs._give_way):
        give_way(who)


def test_what_is_open_on_this_thread_is_ended_first_and_its_request_is_done(rank: Rank) -> None:
    request = rank.ask(stage=UPDATE, steps=3)
    rank.engine.step(1)
    with rank.engine.stage(UPDATE):
        begins()
        at_once = list(rank.session.did)

    report = rank.last(request)
    assert at_once == ["+actor_update", "-actor_update"]
    assert rank.session.ends[0][0] == "cut short by verl's profile"
    assert (report.state, report.reason, report.recorded) == ("done", "cut short by verl's profile", 1)


def test_what_another_thread_has_open_is_waited_for_a_moment_and_said(rank: Rank) -> None:
    request = rank.ask(stage=UPDATE)
    rank.engine.step(1)
    with rank.engine.stage(UPDATE):
        thread = threading.Thread(target=begins)
        thread.start()
        thread.join()
    report = rank.last(request)

    assert (report.state, rank.session.did) == ("done", ["+actor_update", "-actor_update"])
    assert "verl's profile began on another thread" in report.reason
    assert faults.counts == {"another thread's profiler": 1}
    faults.reset_counts()


def test_a_session_is_not_begun_beside_theirs_but_after_it(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    request = rank.ask(stage=UPDATE)
    rank.engine.step(1)
    monkeypatch.setattr(duties.profilers, "in_the_way", lambda: "verl's profile, step 1")
    rank.once(UPDATE)
    waits = rank.last(request)
    monkeypatch.setattr(duties.profilers, "in_the_way", lambda: "")
    rank.engine.step(2)
    rank.once(UPDATE)
    rank.engine.step(3)
    done = rank.last(request)

    assert (waits.state, waits.reason.split(";")[0]) == ("armed", "waits for verl's profile, step 1")
    assert (rank.session.did, done.state) == (["+actor_update", "-actor_update"], "done")
    assert done.reason == "an occurrence was passed over: verl's profile, step 1 came first"


def test_a_request_that_comes_meanwhile_is_queued_and_says_why(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties.profilers, "list_coming", lambda thread: (("verl's profile, steps 0 to 1", 0),))
    request = rank.ask(stage=UPDATE)
    waits = rank.last(request)
    monkeypatch.setattr(duties.profilers, "list_coming", lambda thread: ())

    assert (waits.state, waits.reason) == ("queued", "waits for verl's profile, steps 0 to 1")
    assert rank.last(request).state == "armed"


def test_the_first_session_begins_once_what_the_profiler_imports_is_there(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thread that trains would wait for it."""
    begun: list[bool] = []
    monkeypatch.setattr(duties, "import_ahead", lambda begins=True: begun.append(begins) or True)
    request = rank.ask(stage=UPDATE)
    waits = rank.last(request)
    monkeypatch.setattr(duties, "import_ahead", lambda begins=True: False)

    assert (waits.state, waits.reason, any(begun)) == ("queued", "waits for what the profiler imports", True)
    assert rank.last(request).state == "armed"


def test_off_duty_it_is_told_nothing(rank: Rank) -> None:
    on_duty = rank.duty._give_way in theirs._give_way
    rank.duty.stop()

    assert (on_duty, rank.duty._give_way in theirs._give_way) == (True, False)
