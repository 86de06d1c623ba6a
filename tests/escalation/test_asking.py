"""Asking: what is wrong is told at once with what there is, what is right lies in the control folder exactly once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from builders import lives
from builders.escalated_run import GONE, STAGES, control, empty_run, left, run_of, say
from builders.threads import on_threads

from mstxkit.errors import ConfigError, MstxkitError
from mstxkit.escalation import asking
from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.recorder import adopt
from mstxkit.store import control_folder, fate
from mstxkit.store.fate import Asked
from mstxkit.store.report import Report
from mstxkit.store.request import Known, Request

SYNCS = """
    import sys, time, mstxkit
    mstxkit.identify(rank=3, world_size=4, role=sys.argv[2])
    with mstxkit.capture(sys.argv[1]):
        while True:
            with mstxkit.stage("weight_sync"):
                time.sleep(0.1)
"""
RIGHT: dict[str, Any] = {"stage": "actor_update", "ranks": [1]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run")


def ids(run: Path) -> list[str]:
    return [one.request.id for one in fate.read_asked(control(run))]


def reported(request: Request, rank: int, state: str, **more: Any) -> Report:
    return Report(request.id, rank, state, **more)


def test_of_two_roles_with_the_same_ranks_the_one_that_is_asked_answers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ranks = [lives.start(SYNCS, run, role) for role in ("trainer", "rollout")]
    fields = {"stage": "weight_sync", "ranks": [3]}

    def answered(request: Request) -> set[str]:
        told = fate.read_heard(asking.control_of(run))
        return {
            each.acknowledgement.role for each in told for report in each.standing.reports if report.id == request.id
        }

    try:
        assert lives.wait_until(
            lambda: (run / "run.json").exists() and len(fate.read_heard(asking.control_of(run))) == 2
        )
        for_one = asking.ask_ranks(run, {**fields, "role": "trainer"})
        for_both = asking.ask_ranks(run, fields)
        assert lives.wait_until(lambda: answered(for_both) == {"trainer", "rollout"})

        assert answered(for_one) == {"trainer"}
    finally:
        for process in ranks:
            lives.killed(process)
        adopt.collect_dead(run)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"stage": "actor_updat"}, ["actor_updat", "did you mean actor_update", *STAGES]),
        ({"ranks": [4]}, ["no rank of this run", "0 to 3"]),
        ({"preset": "fulll"}, ["no preset", "did you mean full", "kernels", "light"]),
        ({"ranks": "suspect+peer"}, ["nobody is suspected"]),
    ],
)
def test_unknown_things_are_refused_with_those_that_there_are(
    run: Path, wrong: dict[str, Any], told: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        asking.ask_ranks(run, {**RIGHT, **wrong})

    assert all(word in str(caught.value) for word in told), str(caught.value)
    assert not (run / "control" / "requests.json").exists()


def test_a_rank_that_was_not_heard_of_is_known_by_the_size_of_the_run(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 0, world_size=64)

    assert asking.ask_ranks(run, {**RIGHT, "ranks": [63]}).ranks == (63,)


def test_stages_of_all_ranks_are_known(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 0, stages=("reward",))
    say(run, 1, stages=("my_stage",))

    assert asking.find_nameable(control(run)).stages == ["my_stage", "reward"]


def test_a_run_in_which_nobody_listens_yet_is_told_when_somebody_does(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")

    with pytest.raises(ConfigError, match=r"listens yet.*first stage.*poll_every_s=0"):
        asking.ask_ranks(run, RIGHT)
    assert sorted(os.listdir(run)) == ["run.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to somebody else")
def test_a_run_of_another_user_is_not_said_to_be_one_in_which_nobody_listens(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 0)
    os.chown(run / "control/acks", 12345, -1)

    with pytest.raises(ConfigError, match=r"acks belongs to user 12345, not to 0"):
        asking.ask_ranks(run, RIGHT)


def test_a_run_whose_ranks_are_of_a_newer_version_says_to_upgrade(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 0)
    (file,) = (run / "control/acks").iterdir()
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))

    with pytest.raises(ConfigError, match="written by a newer mstxkit: upgrade this one"):
        asking.ask_ranks(run, RIGHT)


def test_a_run_in_which_nobody_is_left_refuses(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 0, process=GONE)

    with pytest.raises(ConfigError, match="is left"):
        asking.ask_ranks(run, RIGHT)


def test_a_process_on_a_host_that_cannot_be_seen_from_here_counts_as_there(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    say(run, 0, process={"host": "elsewhere", "boot": "another"})

    assert asking.ask_ranks(run, {**RIGHT, "ranks": [0]}).ranks == (0,)


def test_nothing_is_written_into_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a run: it has neither run\.json"):
        asking.ask_ranks(tmp_path, RIGHT)
    with pytest.raises(ConfigError, match="not a run"):
        asking.cancel_request(tmp_path, "0")

    assert os.listdir(tmp_path) == []


def test_many_threads_that_ask_for_the_same_leave_one_request(run: Path) -> None:
    on_threads(8, lambda _: asking.ask_ranks(run, RIGHT))

    assert len(ids(run)) == 1


def test_a_process_of_the_run_may_be_the_first_to_say_anything(tmp_path: Path) -> None:
    run = empty_run(tmp_path / "run")
    also = Known(("my_stage",), range(2), ())

    request = asking.ask_ranks(run, {"stage": "my_stage", "ranks": [1]}, also=also)

    assert request.stages == ("my_stage",)
    with pytest.raises(ConfigError, match="no stage of this run"):
        asking.ask_ranks(run, {"stage": "another", "ranks": [1]}, also=also)


def test_a_process_that_knows_enough_reads_no_other_s_word(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand ranks that ask at once would read a million files."""
    monkeypatch.setattr(fate, "read_heard", lambda control: pytest.fail("read"))

    assert asking.ask_ranks(run, RIGHT, also=Known(STAGES, range(4), ())).ranks == (1,)


def test_what_is_there_already_needs_no_lock(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = asking.ask_ranks(run, RIGHT)
    monkeypatch.setattr(control_folder, "_SEND_WITHIN_S", 0.0)

    assert asking.ask_ranks(run, RIGHT).id == first.id
    with pytest.raises(MstxkitError, match="locked"):
        asking.ask_ranks(run, {**RIGHT, "occasion": "another"})


def test_suspects_lie_beside_the_request_and_are_ranks_of_the_run(run: Path) -> None:
    asking.ask_ranks(run, {**RIGHT, "ranks": "suspect+peer"}, suspects=[3, 1])

    assert fate.read_asked(control(run))[0].suspects == (1, 3)
    with pytest.raises(ConfigError, match=r"suspects=\[9\]"):
        asking.ask_ranks(run, {**RIGHT, "ranks": "suspect+peer"}, suspects=[9])


def test_a_control_folder_of_somebody_else_s_making_is_an_error_that_names_it(run: Path) -> None:
    os.chmod(run / "control", 0o777)

    with pytest.raises(MstxkitError, match="control"):
        asking.ask_ranks(run, RIGHT, also=Known(STAGES, range(4), ()))


def test_a_request_is_cancelled_by_the_beginning_of_its_id(run: Path) -> None:
    request = left(run)

    before = asking.cancel_request(run, request.id[:5], "not needed")

    assert before.asked.request == request
    assert fate.read_asked(control(run))[0].cancelled == "not needed"


def test_cancelling_twice_is_once(run: Path) -> None:
    request = left(run)
    asking.cancel_request(run, request.id, "first")
    asking.cancel_request(run, request.id, "second")

    assert fate.read_asked(control(run))[0].cancelled == "first"


def test_an_unknown_id_is_told_those_that_are_open(run: Path) -> None:
    ended, still_open = left(run, occasion="1"), left(run, occasion="2")
    say(run, 1, reported(ended, 1, "done"))

    with pytest.raises(ConfigError) as caught:
        asking.cancel_request(run, "zzz")

    assert still_open.id in str(caught.value)
    assert ended.id not in str(caught.value)


def test_a_beginning_that_several_have_cancels_none(run: Path) -> None:
    requests = [left(run, occasion=str(n)) for n in range(40)]
    firsts = [request.id[0] for request in requests]
    shared = next(first for first in firsts if firsts.count(first) > 1)

    with pytest.raises(ConfigError, match="several"):
        asking.cancel_request(run, shared)
    assert all(one.cancelled is None for one in fate.read_asked(control(run)))


def test_an_empty_id_names_no_request(run: Path) -> None:
    left(run)

    with pytest.raises(ConfigError, match="no request of this run"):
        asking.cancel_request(run, "")


def stands(run: Path, request: Request, **more: Any) -> dict[int, tuple[str, str]]:
    found = fate.Fates(fate.read_heard(control(run))).progress(Asked(request, **more))
    return {report.rank: (report.state, report.reason) for report in found.reports}


def test_a_rank_that_says_nothing_is_queued_and_in_the_end_expired(run: Path) -> None:
    assert stands(run, left(run)) == {1: ("queued", "no answer yet")}
    assert stands(run, left(run, created_ns=1, expires_ns=2)) == {1: ("expired", "it never answered")}


def test_a_cancelled_request_is_cancelled_on_ranks_that_say_nothing(run: Path) -> None:
    assert stands(run, left(run), cancelled="no need") == {1: ("cancelled", "no need")}


def test_progress_counts_the_ranks_in_each_state(run: Path) -> None:
    request = left(run, ranks="all")
    for rank, state in enumerate(("armed", "done", "armed")):
        say(run, rank, reported(request, rank, state))

    found = fate.Fates(fate.read_heard(control(run))).progress(Asked(request))

    assert str(found) == "queued 1, armed 2, done 1 of 4"
    assert not found.has_ended


def test_a_lost_rank_is_what_the_agreeing_rank_says_unless_it_said_its_end_itself(run: Path) -> None:
    request = left(run, ranks="all")
    lost = [reported(request, rank, "failed", reason="rank lost") for rank in (1, 2)]
    say(run, 0, *lost, reported(request, 0, "done"))
    say(run, 1, reported(request, 1, "armed"))
    say(run, 2, reported(request, 2, "done"))

    assert [state for state, _ in stands(run, request).values()] == ["done", "failed", "done", "queued"]


def test_a_process_killed_in_a_session_has_failed(run: Path) -> None:
    request = left(run, ranks=[1, 2])
    say(run, 1, reported(request, 1, "running"), process=GONE)
    say(run, 2, reported(request, 2, "armed"), process=GONE)

    found = stands(run, request)

    assert found[1] == ("failed", "its process ended in the middle of a session")
    assert found[2] == ("armed", "its process has ended")


def test_a_process_that_ended_before_it_recorded_anything_has_expired_with_its_request(run: Path) -> None:
    request = left(run, ranks=[1], created_ns=1, expires_ns=2)
    say(run, 1, reported(request, 1, "armed"), process=GONE)

    assert stands(run, request)[1] == ("expired", "its process has ended")


def test_of_processes_with_one_rank_that_one_counts_which_runs_the_stage(run: Path) -> None:
    request = left(run)
    say(run, 1, reported(request, 1, "done"), role="actor")
    say(run, 1, reported(request, 1, "expired"), role="rollout", stages=("actor_generate",))
    say(run, 1, stages=())

    assert stands(run, request)[1][0] == "done"


def test_what_processes_of_one_rank_have_recorded_is_told_together(run: Path) -> None:
    request = left(run, stage=["actor_update", "critic_update"], occurrences=1)
    say(run, 1, reported(request, 1, "done", recorded=1, bytes=100), role="actor", stages=("actor_update",))
    say(run, 1, reported(request, 1, "done", recorded=1, bytes=20), role="critic", stages=("critic_update",))

    (word,) = asking.fates_of(control(run)).progress(Asked(request)).reports
    assert (word.state, word.recorded, word.bytes) == ("done", 2, 120)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"world_size": "many", "stages": 5},
        {"world_size": float("inf"), "step": None, "step_ns": None},
        {"world_size": 4, "step": None, "step_ns": None, "stages": [], "phase": "", "backend": None,
         "why_no_backend": {}, "reports": [{"id": 1, "rank": "x", "state": "done"}, 7, None]},
    ],
)  # fmt: skip
def test_what_makes_no_sense_in_an_acknowledgement_is_left_out(run: Path, document: dict[str, Any]) -> None:
    request = left(run)
    mailbox = Mailbox(control(run), run.parent / "host")
    mailbox.acknowledge(1, document)
    mailbox.flush()

    assert stands(run, request) == {1: ("queued", "no answer yet")}
    assert asking.find_nameable(control(run)).ranks == range(4)
