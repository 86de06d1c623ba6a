"""`mstxkit.escalate()`: one call is one request, wherever and by however many ranks it is made; errors raise."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
from builders import lives
from builders.escalated_run import control, empty_run, run_of
from builders.peers import MakePeer, make_peer  # noqa: F401
from builders.run_files import BankFiles, ProcessFiles

import mstxkit
from mstxkit.engine.choose import engine
from mstxkit.errors import ConfigError, MstxkitError
from mstxkit.escalation import asking
from mstxkit.escalation.duty.mailbox import Mailbox
from mstxkit.host import identity
from mstxkit.store import documents, fate
from mstxkit.store.control_folder import ControlFolder
from mstxkit.store.request import Request

RANK_OF_A_JOB = """
import os
import mstxkit
capture = mstxkit.capture(os.environ["AT"], poll_every_s=0)
def answer(word, *more):
    if word == "step":
        return str(mstxkit.step(int(more[0])))
    if word == "stop":
        return str(capture.stop())
    try:
        ranks = {"ranks": "all"} if word == "all" else {}
        return mstxkit.escalate("update_actor", reason=str(os.getpid()), **ranks).id
    except mstxkit.errors.MstxkitError as exc:
        return f"{type(exc).__name__} {exc}".replace(chr(10), " ")
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def captured(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process captures, as rank 1 of 4, and nobody has said anything yet."""
    monkeypatch.setattr(identity, "_learnt", {"rank": 1, "world_size": 4})
    clock = engine.clock_kind()
    with mstxkit.capture(run, poll_every_s=0):
        yield run
    engine.set_clock(clock)


def filed(run: Path) -> list[Request]:
    return [one.request for one in fate.read_asked(asking.control_of(run))]


def test_the_first_call_of_a_run_asks_for_this_rank(captured: Path) -> None:
    request = mstxkit.escalate("update_actor")

    assert filed(captured) == [request]
    assert (request.stages, request.ranks, request.steps, request.preset) == (("actor_update",), (1,), 1, "full")


def test_every_argument_reaches_the_request(captured: Path) -> None:
    request = mstxkit.escalate(
        ["reward", "actor_generate"], ranks=range(2), occurrences=3, preset="kernels", limit_s=5, limit_bytes=1 << 20,
        sample={"per": "decode_step", "skip": 10, "record": 2}, reason="slow tail",
    )  # fmt: skip

    assert (request.stages, request.ranks) == (("actor_generate", "reward"), (0, 1))
    assert (request.steps, request.occurrences, request.preset) == (None, 3, "kernels")
    assert (request.sample, request.limits, request.reason) == (("decode_step", 10, 2), (5.0, 1 << 20), "slow tail")


def test_a_rank_may_be_a_number_of_any_kind(captured: Path) -> None:
    numpy = pytest.importorskip("numpy")

    assert mstxkit.escalate("reward", ranks=2).ranks == (2,)
    assert mstxkit.escalate("reward", ranks=[numpy.int64(3)]).ranks == (3,)


def test_a_call_in_another_step_is_another_request(captured: Path) -> None:
    ids = []
    for step in (5, 5, 6):
        mstxkit.step(step)
        ids.append(mstxkit.escalate("reward").id)

    assert ids[0] == ids[1] != ids[2]
    assert len(filed(captured)) == 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"stage": "actor_updat"}, "did you mean actor_update"),
        ({"stage": 5}, "no stage of this run"),
        ({"stage": []}, "must be a stage's name"),
        ({"stage": None}, "no stage of this run"),
        ({"ranks": [7]}, "0 to 3"),
        ({"ranks": [True]}, "no rank of this run"),
        ({"ranks": "everybody"}, "all, suspect+peer"),
        ({"ranks": 1.5}, "no rank of this run"),
        ({"ranks": "dp:0"}, "no process of the run that could say so has spoken yet"),
        ({"options": {"levle": 1}}, "did you mean level"),
        ({"preset": "kernels", "options": {"shapes": True}}, "they need the activity cpu"),
        ({"sample": {"per": "batch"}}, "micro_batch"),
        ({"reason": "a\nb"}, "printable"),
    ],
)
def test_what_is_wrong_raises_and_nothing_is_asked_for(captured: Path, wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mstxkit.escalate(**{"stage": "reward", **wrong})

    assert told in str(caught.value)
    assert filed(captured) == []


def test_a_stage_of_one_s_own_is_known_once_it_was_entered(captured: Path) -> None:
    with pytest.raises(ConfigError, match="no stage of this run"):
        mstxkit.escalate("my_stage")
    with mstxkit.stage("my_stage"):
        request = mstxkit.escalate("my_stage")

    assert request.stages == ("my_stage",)


def test_a_stage_that_another_rank_has_entered_is_known(captured: Path) -> None:
    run_id = asking.control_of(captured).run_id
    host = captured.parent / "host"
    host.mkdir()
    mailbox = Mailbox(ControlFolder(captured, run_id), host)
    told = {"world_size": 4, "step": 1, "step_ns": None, "stages": ["their_stage"], "phase": "idle", "backend": None}
    mailbox.acknowledge(0, {**told, "why_no_backend": {}, "reports": []})
    mailbox.flush()

    assert mstxkit.escalate("their_stage", ranks=[0]).stages == ("their_stage",)


def test_the_same_call_from_every_rank_is_one_request_also_a_moment_apart(
    run: Path, make_peer: MakePeer  # noqa: F811
) -> None:  # fmt: skip
    ranks = [make_peer(RANK_OF_A_JOB, AT=str(run), RANK=str(n), WORLD_SIZE="3", MSTXKIT_CLOCK="") for n in range(3)]
    for rank in ranks:
        rank.ask("step", 7)

    ids = [rank.ask("all") for rank in ranks]

    assert len(set(ids)) == 1
    assert [request.id for request in filed(run)] == ids[:1]
    for rank in ranks:
        rank.ask("stop")


def test_stages_that_every_system_has_are_known_to_each_rank_at_once(captured: Path) -> None:
    """Whatever it has entered by now: else some ranks of one program would be refused what others are not."""
    assert mstxkit.escalate("weight_sync", ranks="all").stages == ("weight_sync",)


def test_without_ranks_each_rank_asks_for_itself(run: Path, make_peer: MakePeer) -> None:  # noqa: F811
    ranks = [make_peer(RANK_OF_A_JOB, AT=str(run), RANK=str(n), WORLD_SIZE="2") for n in range(2)]
    for rank in ranks:
        rank.ask("own")
        rank.ask("stop")

    assert sorted(request.ranks for request in filed(run)) == [(0,), (1,)]


def test_outside_of_any_run_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"mstxkit\.capture\(\) first, or give run="):
        mstxkit.escalate("reward")


def test_a_run_named_by_the_environment_is_asked_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "run")
    monkeypatch.setenv("MSTXKIT_RUN", str(run))

    with pytest.raises(ConfigError, match="no stage of this run"):
        mstxkit.escalate("reward")
    assert mstxkit.escalate("actor_update", ranks=[2]).ranks == (2,)


def test_a_run_named_by_the_caller_comes_first(captured: Path, tmp_path: Path) -> None:
    other = run_of(tmp_path / "other")

    request = mstxkit.escalate("actor_update", run=other)

    assert filed(captured) == []
    assert [one.request for one in fate.read_asked(control(other))] == [request]


def test_a_worker_of_ray_without_a_rank_has_to_say_which_it_is(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_learnt", {})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))

    with pytest.raises(ConfigError, match=r"identify\(rank="):
        mstxkit.escalate("reward")


def test_a_program_of_one_process_is_rank_0(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_learnt", {})

    assert mstxkit.escalate("reward").ranks == (0,)


def test_a_full_disk_is_an_error_for_the_asker(captured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(documents, "replace_file", full)

    with pytest.raises(MstxkitError, match="No space left"):
        mstxkit.escalate("reward")


def test_suspects_are_found_in_the_run_s_tables_by_another_process(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    run = run_of(tmp_path / "run")
    for name in ("live", "sealed"):
        (run / name).mkdir()
    for rank in range(4):
        bank = BankFiles()
        for step in range(3):
            took_ns = 900 if rank == 2 else 100 + rank
            bank.range("u", step * 10_000, step * 10_000 + took_ns, stage="actor_update", own=True, step=step)
        ProcessFiles(run, 200 + rank, rank=rank).seal(bank, ended=None)

    mstxkit.escalate("actor_update", ranks="suspect+peer", run=run)

    (asked,) = fate.read_asked(control(run))
    assert asked.suspects == (1, 2)
    by_time = "rank 2 is slowest in actor_update, +791% over rank 1"
    assert asked.request.reason == f"{by_time}; by its time alone: no verdict blames a rank there"


def test_a_frozen_program_is_not_started_again_to_find_suspects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = empty_run(tmp_path / "run")
    monkeypatch.setattr(sys, "frozen", True, raising=False)

    with pytest.raises(ConfigError, match="which would be started again, and no Python"):
        mstxkit.escalate("actor_update", ranks="suspect+peer", run=run)


def test_switched_off_it_asks_for_nothing_and_does_not_fail(run: Path) -> None:
    program = """
        import mstxkit
        print(mstxkit.escalate("whatever", run="/nowhere").stages, mstxkit.escalate("x", ranks="all").ranks)
    """

    assert lives.run(program, MSTXKIT_OFF="1") == "('whatever',) all\n"
