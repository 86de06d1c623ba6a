"""Going on duty: when a process does, when it never does, and what it may be told. Real capture, stand-in session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from builders import lives
from builders.escalated_run import control as control_of_run
from builders.rank_on_duty import Recording

import mstxkit
from mstxkit import capturing, faults
from mstxkit.engine.choose import engine
from mstxkit.errors import CaptureError, ConfigError
from mstxkit.escalation import asking
from mstxkit.escalation.duty import beginning
from mstxkit.escalation.duty import duty as duties
from mstxkit.store import fate
from mstxkit.store.control_folder import ControlFolder

WITHIN_S = 20


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """The session that the next process on duty makes; a busy machine does not put it off."""
    monkeypatch.setattr(beginning, "WAITS_AT_MOST_S", WITHIN_S)
    session = Recording()
    monkeypatch.setattr(duties, "OneSession", lambda: session)
    return session


def control(run: Path) -> ControlFolder:
    return asking.control_of(run)


def listens(run: Path) -> bool:
    return bool(control(run).acknowledgements())


def is_armed(run: Path, request: Any) -> bool:
    said = fate.read_heard(control(run))
    return any(one.id == request.id and one.state == "armed" for each in said for one in each.standing.reports)


def test_a_process_listens_from_its_first_stage_on_and_says_what_it_records(run: Path, session: Recording) -> None:
    with mstxkit.capture(run, poll_every_s=0.02, cooldown_s=0):
        with mstxkit.stage("standby_first"):
            pass
        assert lives.wait_until(lambda: listens(run))
        request = mstxkit.escalate("standby_first", ranks=[0], occurrences=1)
        assert lives.wait_until(lambda: is_armed(run, request))
        with mstxkit.stage("standby_first"):
            inside = mstxkit.status().session
        outside = mstxkit.status().session

    assert (inside, outside) == (f"full of standby_first for request {request.id}", None)
    assert session.did == ["+standby_first", "-standby_first"]
    found = control(run).acknowledgement(0)
    assert found is not None and found.document["reports"][-1]["state"] == "done"
    assert faults.counts == {}


def test_the_end_of_a_capture_inside_a_stage_ends_its_session(run: Path, session: Recording) -> None:
    stage = mstxkit.stage("standby_cut")
    with mstxkit.capture(run, poll_every_s=0.02):
        with mstxkit.stage("standby_cut"):
            pass
        assert lives.wait_until(lambda: listens(run))
        request = mstxkit.escalate("standby_cut", ranks=[0], occurrences=2)
        assert lives.wait_until(lambda: is_armed(run, request))
        stage.__enter__()
    stage.__exit__(None, None, None)

    assert session.did == ["+standby_cut", "-standby_cut"]
    assert not engine.is_on(engine.intern("standby_cut", "standby_cut"))


def test_a_process_that_takes_no_requests_writes_nothing(run: Path, session: Recording) -> None:
    with mstxkit.capture(run, poll_every_s=0):
        with mstxkit.stage("standby_never"):
            pass
        capturing._beside.standby.consider()
        is_there = (run / "control").exists()

    assert not is_there and not (run / "control").exists()


def test_a_process_without_a_stage_writes_nothing(
    run: Path, session: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mstxkit.capture(run):
        monkeypatch.setattr("mstxkit.escalation.duty.standby.engine.stages_seen", list, raising=False)
        with mstxkit.mstx_range("no stage"):
            pass
        capturing._beside.standby.consider()

        assert not (run / "control").exists()


def test_a_capture_after_another_begins_anew(run: Path, session: Recording) -> None:
    for _ in range(2):
        with mstxkit.capture(run, poll_every_s=0.02), mstxkit.stage("standby_again"):
            capturing._beside.standby.consider()
            assert lives.wait_until(lambda: listens(run))

    assert control_of_run(run).path == control(run).path
    assert faults.counts == {}


@pytest.mark.parametrize(("given", "words"), [
    ({"poll_every_s": "x"}, "poll_every_s='x'"),
    ({"poll_every_s": 0.001}, "seconds from 0.02 to 60"),
    ({"poll_every_s": -1}, "0 for never"),
    ({"poll_every_s": float("nan")}, "poll_every_s=nan"),
    ({"poll_every_s": None}, "poll_every_s=None"),
    ({"cooldown_s": -1}, "cooldown_s=-1"),
    ({"session_s": "60"}, "session_s='60'"),
    ({"run_bytes": float("inf")}, "run_bytes=inf"),
    ({"agreement_s": float("nan")}, "agreement_s=nan"),
    ({"cooldown": 1}, "cooldown_s"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(run: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(CaptureError, match=".*".join(words.split("|"))) as raised:
        mstxkit.capture(run, **given)

    assert words in str(raised.value)
    assert not run.exists()
    assert not mstxkit.status().on


@pytest.mark.parametrize("light", ["sometimes", "", "every 0 steps, 1 step", "every 2 steps, 3 steps", 5])
def test_a_schedule_that_is_none_is_refused(run: Path, light: Any) -> None:
    with pytest.raises(ConfigError, match="every 100 steps, 1 step"):
        mstxkit.capture(run, light=light)

    assert not run.exists()


@pytest.mark.parametrize(("variable", "text"), [
    ("MSTXKIT_COOLDOWN_S", "abc"), ("MSTXKIT_RUN_BYTES", "1.5"), ("MSTXKIT_POLL_EVERY_S", "never"),
    ("MSTXKIT_HOUR_S", "-3"), ("MSTXKIT_SESSION_S", "nan"), ("MSTXKIT_LIGHT", "sometimes"),
])  # fmt: skip
def test_the_environment_is_held_to_the_same(
    run: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises((CaptureError, ConfigError)) as raised:
        mstxkit.capture(run)
    monkeypatch.delenv(variable)

    assert variable.split("_", 1)[1].lower() in str(raised.value).lower() and text in str(raised.value)
    assert not run.exists()


def test_an_argument_counts_above_the_environment(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_COOLDOWN_S", "7")
    monkeypatch.setenv("MSTXKIT_HOUR_S", "8")
    with mstxkit.capture(run, cooldown_s=1, light="every 3 steps, 1 step"):
        settings = capturing._beside.settings
    monkeypatch.delenv("MSTXKIT_COOLDOWN_S")
    monkeypatch.delenv("MSTXKIT_HOUR_S")

    assert (settings.cooldown_s, settings.hour_s, settings.light) == (1, 8.0, "every 3 steps, 1 step")


FORKS = """
    import os, sys, time, mstxkit
    from mstxkit.escalation import asking
    from mstxkit.escalation.duty import beginning, duty
    from builders.rank_on_duty import Recording
    beginning.WAITS_AT_MOST_S = 20  # a busy machine puts no session off
    sessions = []
    def new_session():
        sessions.append(Recording())
        return sessions[-1]
    duty.OneSession = new_session
    run = sys.argv[1]
    def until(is_so):
        deadline = time.monotonic() + 20
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.01)
    def once():
        with mstxkit.stage("actor_update"): time.sleep(0.002)
    def roles(): return {one.role for one in asking.control_of(run).acknowledgements()}
    mstxkit.capture(run, poll_every_s=0.02, cooldown_s=0)
    once()
    until(lambda: roles() == {""})
    request = mstxkit.escalate("actor_update", ranks=[0], occurrences=3)
    def on_duty(): return isinstance(mstxkit.capturing._beside.standby._guard, duty.Duty)
    until(lambda: on_duty() and mstxkit.capturing._beside.standby._guard._machine.active)
    until(lambda: once() or sessions[0].did)  # it is armed a moment before stages are watched
    pid = os.fork()
    if pid == 0:
        def is_on_duty():  # what comes before it records, on a busy machine, is not seen
            once()
            return len(roles()) == 2
        until(is_on_duty)
        print("child", len(sessions[0].did), sorted(role.startswith("process_") for role in roles()), flush=True)
        sys.exit()
    os.waitpid(pid, 0)
    once(); once(); once()
    print("parent", len(sessions), len(sessions[0].did))
"""


def test_a_forked_child_goes_on_duty_by_itself_and_its_parent_stays(run: Path) -> None:
    """The child is another process of the same rank: it says so under a role of its own."""
    out = lives.run(FORKS, run, PYTHONPATH=os.pathsep.join([str(lives.PACKAGE_PARENT), str(Path(__file__).parents[2])]))

    assert sorted(out.split("\n")) == ["", "child 2 [False, True]", "parent 1 6"]
