"""The one judge: a request that nobody can answer any more ends, whatever host asks; every reader gives its answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Mapping

import pytest
from builders.escalated_run import GONE, NS, STAGES, control, left, run_of, say, session

from mstxkit.escalation import asking
from mstxkit.host import identity, life
from mstxkit.store import fate
from mstxkit.store.fate import LATE_S, Asked, Fates
from mstxkit.store.limits import SESSION_S
from mstxkit.store.report import Report
from mstxkit.store.request import Request
from mstxkit.store.session_file import read_sessions

ELSEWHERE = {"host": "elsewhere"}  # nobody here can tell whether a process of that host lives


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run")


def judged(run: Path, request: Request, after_s: float = 0.0, is_alive: Any = life.is_alive) -> tuple[str, str]:
    """State and reason of the only rank that is asked, so many seconds from now."""
    said = fate.read_heard(control(run), is_alive)
    judge = Fates(said, lambda: read_sessions(run, ""), is_alive, time.time_ns() + int(after_s * NS))
    report = judge.progress(Asked(request)).reports[0]
    return report.state, report.reason


def test_a_rank_of_another_host_that_died_in_a_session_has_failed_when_its_limit_is_over(run: Path) -> None:
    request = left(run, limits={"seconds": 20})
    say(run, 1, Report(request.id, 1, "running"), process=ELSEWHERE)

    assert judged(run, request, 20 + LATE_S - 5)[0] == "running"
    assert judged(run, request, 20 + LATE_S + 5) == (
        "failed", "nothing is heard of it any more, and the 20 s of its session are over",
    )  # fmt: skip


@pytest.mark.parametrize(("limits", "limit_s"), [({}, SESSION_S), ({"seconds": 50}, 50.0)])
def test_where_the_request_has_no_limit_that_of_its_session_counts(
    run: Path, limits: dict[str, Any], limit_s: float
) -> None:
    request = left(run)
    say(run, 1, Report(request.id, 1, "draining"), process=ELSEWHERE)
    session(run, request.id, state="recording", limits=limits)

    assert judged(run, request, limit_s + LATE_S - 5)[0] == "draining"
    assert judged(run, request, limit_s + LATE_S + 5)[0] == "failed"


@pytest.mark.parametrize("state", ["queued", "armed"])
def test_a_rank_of_another_host_that_is_not_heard_of_any_more_expires_after_its_request(run: Path, state: str) -> None:
    request = left(run, expires_ns=time.time_ns() + 10 * NS)
    say(run, 1, Report(request.id, 1, state, reason="waits"), process=ELSEWHERE)

    assert judged(run, request, 15) == (state, "waits")
    assert judged(run, request, 15 + LATE_S) == ("expired", "waits; nothing is heard of it any more")


def test_a_rank_that_is_known_to_live_may_take_its_time(run: Path) -> None:
    request = left(run, limits={"seconds": 20}, expires_ns=time.time_ns() + 10 * NS)
    say(run, 1, Report(request.id, 1, "running"))

    assert judged(run, request, 10**6)[0] == "running"


def test_whoever_is_told_that_a_process_has_ended_does_not_wait(run: Path) -> None:
    """A reader of the run's files knows what the host cannot tell."""
    request = left(run)
    say(run, 1, Report(request.id, 1, "running"), process=ELSEWHERE)

    def is_alive(who: Mapping[str, Any]) -> bool | None:
        return False if who["host"] == "elsewhere" else None

    assert judged(run, request, is_alive=is_alive) == ("failed", "its process ended in the middle of a session")


@pytest.mark.parametrize("state", ["recorded", "recording", "failed"])
def test_whose_process_ended_right_after_its_session_has_done_what_the_session_says(run: Path, state: str) -> None:
    """A job that ends ends its workers: what they last had to say may be lost, and the profile is there."""
    request = left(run)
    say(run, 1, Report(request.id, 1, "draining"), process=GONE)
    session(run, request.id, state=state, start_ns=time.time_ns(), **{**identity.of_life(), **GONE})

    assert judged(run, request)[0] == ("done" if state == "recorded" else "failed")


def test_a_silent_rank_is_what_its_session_says(run: Path) -> None:
    request = left(run)
    session(run, request.id)

    assert judged(run, request)[0] == "done"


@pytest.mark.parametrize(("who", "state"), [(GONE, "failed"), (ELSEWHERE, "running"), ({}, "running")])
def test_a_silent_rank_whose_session_still_records_is_as_its_process(
    run: Path, who: dict[str, Any], state: str
) -> None:
    request = left(run)
    told = {**identity.of_life(), **who}
    session(run, request.id, state="recording", start_ns=time.time_ns(), **told)

    assert judged(run, request)[0] == state
    assert judged(run, request, SESSION_S + LATE_S + 5)[0] == ("running" if not who else "failed")


PLANNED = {"planned": {"first_step": 3}}


def test_a_planned_window_is_queued_until_its_step_and_expires_with_the_last_process(run: Path) -> None:
    request = left(run, **PLANNED)
    waiting, later = judged(run, request), judged(run, request, 3000)
    nobody_lives = judged(run, request, is_alive=lambda _: False)

    assert waiting == later == ("queued", "planned for step 3")
    assert nobody_lives == ("expired", "planned for step 3: the processes ended before that")


def test_a_window_that_a_killed_process_waited_for_expires_where_no_other_is_left(run: Path) -> None:
    request = left(run, **PLANNED)
    say(run, 1, Report(request.id, 1, "queued", reason="planned for step 3"))

    assert judged(run, request, is_alive=lambda _: False) == ("expired", "planned for step 3; its process has ended")


def test_a_plan_for_a_rank_that_does_not_exist_is_refused_and_one_that_nobody_can_answer_yet_is_open(
    run: Path, tmp_path: Path
) -> None:
    request, for_all = left(run, ranks=[9], **PLANNED), left(run, ranks="all", **PLANNED)
    nobody = Fates([]).progress(Asked(for_all))

    assert judged(run, request) == ("refused", "this run has the ranks 0 to 3")
    assert (str(nobody), nobody.has_ended) == ("queued", False)


def test_what_others_say_of_a_rank_counts_only_where_it_is_an_end(run: Path) -> None:
    """Else a request would wait for ever for a rank that another one once saw waiting."""
    request = left(run, created_ns=1, expires_ns=2)
    say(run, 0, Report(request.id, 1, "armed"))

    assert judged(run, request) == ("expired", "it never answered")


def test_every_host_and_every_reader_gives_the_same_answer(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("polars")
    from typer.testing import CliRunner

    import mstxkit.cli
    from mstxkit.reading.run import open_run

    def answers() -> set[str]:
        shown = CliRunner().invoke(mstxkit.cli.build_application(), ["status", str(run), "--json"]).output
        return {
            json.loads(shown)["requests"][0]["ranks"][0]["state"],
            open_run(run).escalations().to_dicts()[0]["state"],
            asking.fates_of(control(run)).progress(Asked(request)).reports[0].state,
        }

    request = left(run, limits={"seconds": 20})
    say(run, 1, Report(request.id, 1, "running"), process=GONE)
    assert answers() == {"failed"}

    monkeypatch.setattr(identity, "name_host", lambda: "another")
    assert answers() == {"running"}
    spoken_before(run, 20 + LATE_S + 5)
    assert answers() == {"failed"}


def spoken_before(run: Path, seconds: float) -> None:
    """Rank 1's last word is so old by now."""
    file = run / "control" / "acks" / "rank1.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "written_ns": time.time_ns() - int(seconds * NS)}))


@pytest.mark.parametrize("order", [1, -1])
def test_what_each_process_of_a_rank_says_of_a_common_end_is_told(run: Path, order: int) -> None:
    """A trainer and a rollout on one device: one of them knows who has it."""
    request = left(run)
    reasons = ["actor_update was not recorded in steps 5 to 6", "device 0 is taken by process 7", ""]
    for pid, reason in list(enumerate(reasons))[::order]:
        say(run, 1, Report(request.id, 1, "failed", reason=reason), role=f"role{pid}", process=ELSEWHERE)

    state, reason = judged(run, request)
    assert state == "failed"
    assert sorted(reason.split("; ")) == reasons[:2]


UPDATED, GENERATED = (f"{stage} was not recorded in steps 7 to 8" for stage in reversed(STAGES))


@pytest.mark.parametrize(("steps", "told"), [
    ((7, 8), ("done", "recorded: actor_generate in 2 of 2 steps, actor_update in 2 of 2 steps")),
    ((7,), ("failed", "recorded: actor_generate in 1 of 2 steps, actor_update in 2 of 2 steps")),
    ((), ("failed", "recorded: actor_generate in 0 of 2 steps, actor_update in 2 of 2 steps")),
])  # fmt: skip
def test_what_the_processes_of_a_rank_recorded_together_is_told(
    run: Path, steps: tuple[int, ...], told: tuple[str, str]
) -> None:
    """Each has failed by itself: it never runs the other's stage."""
    request = left(run, stage=list(STAGES), steps=2)
    for role, stage, lacks in zip(("rollout", "actor"), STAGES, (UPDATED, GENERATED)):
        about = Report(request.id, 1, "failed", reason=lacks)
        say(run, 1, about, role=role, stages=(stage,), process=ELSEWHERE)
    for nth, (stage, step) in enumerate(
        [*(("actor_generate", step) for step in steps), *(("actor_update", n) for n in (7, 8))]
    ):
        session(run, request.id, stage=stage, step=step, start_ns=nth)
    session(run, request.id, state="failed", stage="actor_generate", step=9)

    state, reason = judged(run, request)
    assert (state, reason.partition("; ")[0]) == told
    assert (UPDATED in reason and GENERATED in reason) is (state == "failed")
