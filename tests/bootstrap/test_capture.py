"""`capture`: which run it takes, what it hands on to children, and which limits it refuses, by name."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from builders import lives

import mstxkit
from mstxkit.errors import CaptureError
from mstxkit.recorder import current
from mstxkit.store import livefile


def test_capturing_twice_into_one_folder_joins(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "another way"
    link.symlink_to(run)
    with mstxkit.capture(run) as first:
        second = mstxkit.capture(link)
        live_file = mstxkit.status().live_file
        assert mstxkit.status().live_file == live_file

    assert second.run == first.run == run
    assert len(lives.processes(run)) == 1


def test_the_end_of_a_block_that_has_joined_stops_nothing_and_stop_does(run: Path) -> None:
    """A library captures where `mstxkit run` does: what comes after it is recorded all the same."""
    with mstxkit.capture(run):
        with mstxkit.capture() as joined:
            pass
        with mstxkit.mstx_range("after the block"):
            pass
        joined.stop()
        with mstxkit.mstx_range("after stop"):
            pass

    assert list(lives.ended(run)) == ["after the block"]


def test_what_a_capture_that_joins_asks_for_otherwise_is_said_and_nothing_else(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mstxkit.capture(run, hang_s=50):
        mstxkit.capture(run, hang_s=50.0)
        mstxkit.capture(run, act="escalate", hang_s=120)
        with pytest.raises(CaptureError, match="no_such_limit: it knows no such setting"):
            mstxkit.capture(run, no_such_limit=1)

    said = [record.getMessage() for record in caplog.records if "comes too late" in record.getMessage()]
    assert said == [
        f"mstxkit: capture({asked}) comes too late: this process records already, by {stays}; "
        f"set MSTXKIT_{name} for `mstxkit run`, or say it in the first capture()"
        for asked, stays, name in (("act='escalate'", "act='observe'", "ACT"), ("hang_s=120", "hang_s=50", "HANG_S"))
    ]


def test_capturing_into_another_folder_says_what_to_do(run: Path, tmp_path: Path) -> None:
    with mstxkit.capture(run):
        with pytest.raises(CaptureError) as caught:
            mstxkit.capture(tmp_path / "other")

    assert str(caught.value) == (
        f"this process captures into {run} already: MSTXKIT_RUN, `mstxkit run` or a capture(); "
        f"call capture() without a folder to join it, or stop it before you capture into {tmp_path / 'other'}"
    )
    assert not (tmp_path / "other").exists()


OTHER = """
    import os, mstxkit
    os.chdir(os.environ["TMP"])
    for _ in range(2):
        with mstxkit.capture("other") as capture, mstxkit.stage("reward"):
            print(capture.run)
    with mstxkit.stage("after"):
        print(os.path.exists("other"))
"""


def test_a_run_that_the_program_was_started_with_is_joined_whatever_is_named_here(run: Path, tmp_path: Path) -> None:
    code, out, err = lives.finished(lives.start(OTHER, MSTXKIT_RUN=str(run), TMP=str(tmp_path)))

    assert (code, out.split()) == (0, [str(run), str(run), "False"]), err
    assert err.count("capture('other') joins the run that `mstxkit run` or MSTXKIT_RUN names") == 1
    assert lives.ended(run) == {"reward": 2, "after": 1}


@pytest.mark.parametrize("there", ["/dev/null/run", "\x7f" * 5000])
def test_where_that_cannot_be_used_the_program_goes_on_unrecorded(tmp_path: Path, there: str) -> None:
    code, out, err = lives.finished(lives.start(OTHER, MSTXKIT_RUN=there, TMP=str(tmp_path)))

    assert (code, out.split()) == (0, ["None", "None", "False"]), err
    assert "nothing is recorded" in err


def test_what_is_wrong_with_a_setting_is_wrong_there_too(run: Path) -> None:
    program = "import mstxkit; mstxkit.capture('other', no_such_limit=1)"
    code, _, err = lives.finished(lives.start(program, MSTXKIT_RUN=str(run)))

    assert code == 1
    assert "no_such_limit: it knows no such setting" in err


def test_the_run_is_in_the_environment_for_children_until_it_is_stopped(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MSTXKIT_RUN", raising=False)
    with mstxkit.capture(run):
        inside = os.environ["MSTXKIT_RUN"]

    assert inside == str(run)
    assert "MSTXKIT_RUN" not in os.environ


def test_a_run_that_was_in_the_environment_before_is_put_back(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_RUN", "/somewhere/else")
    with mstxkit.capture(run):
        inside = os.environ["MSTXKIT_RUN"]

    assert inside == str(run)
    assert os.environ["MSTXKIT_RUN"] == "/somewhere/else"


def test_without_a_folder_the_environment_says_where(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_RUN", str(run))
    with mstxkit.capture() as started:
        pass

    assert started.run == run


@pytest.mark.parametrize("words", [(), ("",)])
def test_without_any_word_a_run_is_made_here(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """An empty one, of a variable that nobody has set say, is none: not this very folder."""
    monkeypatch.chdir(tmp_path)
    with mstxkit.capture(*words) as started:
        pass

    assert started.run is not None and started.run.parent == tmp_path / "mstxkit-runs"


def test_a_capture_that_has_ended_says_so_where_it_is_entered_again(run: Path) -> None:
    """A cell of a notebook that is run twice: the second time nothing was recorded, without a word."""
    program = """
        import mstxkit, sys
        capture = mstxkit.capture(sys.argv[1])
        for _ in range(2):
            with capture:
                print(mstxkit.status().on)
    """
    status, out, err = lives.finished(lives.start(program, run))

    assert (status, out) == (0, "True\nFalse\n")
    assert (
        err == f"mstxkit: Capture({str(run)!r}) has ended, so nothing is recorded in this block: call capture() anew\n"
    )


NAMELESS = "import mstxkit; print(mstxkit.capture().run)"


def test_ranks_of_one_torchrun_record_into_one_run_that_nobody_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They reach `capture` some seconds apart: each second was another run, of one rank."""
    monkeypatch.chdir(tmp_path)
    ranks = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    first = lives.finished(lives.start(NAMELESS, **ranks, RANK="0"))
    time.sleep(1.1)
    second = lives.finished(lives.start(NAMELESS, **ranks, RANK="1"))

    assert first == second and first[0] == 0 and Path(first[1].strip()).parent == tmp_path / "mstxkit-runs"
    assert first[2] == ""


@pytest.mark.parametrize("others", [{}, {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "1"}])
def test_a_rank_whose_run_nobody_named_says_that_others_may_record_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: dict[str, str]
) -> None:
    """Ranks that no torchrun has started, or that one on another host has."""
    monkeypatch.chdir(tmp_path)
    _, _, alone = lives.finished(lives.start(NAMELESS))
    _, _, told = lives.finished(lives.start(NAMELESS, WORLD_SIZE="2", RANK="1", **others))

    assert alone == ""
    assert told.startswith("mstxkit: no run was named: ") and "capture('runs/exp7')" in told


def test_switched_off_nothing_starts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_OFF", "1")
    with mstxkit.capture(run, no_such_limit=1) as started:
        status = mstxkit.status()
        times = mstxkit.stage_times()

    assert (started.run, status.on, status.clock_reason, times) == (None, False, "MSTXKIT_OFF is set", {})
    assert not run.exists()


def test_a_process_that_is_switched_off_loads_no_engine_and_makes_no_run(run: Path) -> None:
    out = lives.run(
        """
        import sys, mstxkit
        with mstxkit.capture(sys.argv[1]), mstxkit.mstx_range("x"):
            pass
        print([name for name in sys.modules if "recorder" in name or "hot" in name.split(".")])
        """,
        run, MSTXKIT_OFF="1", MSTXKIT_RUN=str(run),
    )  # fmt: skip

    assert out.strip() == "[]"
    assert not run.exists()


WRONG_LIMITS: dict[str, Any] = {
    "bank_bytes": [0, -1, 4096, "1", 1.5, None, float("nan")],
    "banks": [1, "4"],
    "slots": [0],
    "quota_bytes": [-1, "many"],
    "rotate_bytes": [10],
    "seal_every_s": [0, -1, float("nan"), float("inf"), "1"],
    "heartbeat_s": [0, 1e9, None],
    "live_folder": [7, b"/dev/shm"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG_LIMITS.items() for value in values]
)
def test_a_limit_that_cannot_be_is_refused_by_name(run: Path, name: str, value: Any) -> None:
    with pytest.raises(CaptureError, match=name):
        mstxkit.capture(run, **{name: value})

    assert not run.exists()


def test_more_than_there_is_room_for_is_refused(run: Path) -> None:
    with pytest.raises(CaptureError, match="no room for a live file of"):
        mstxkit.capture(run, bank_bytes=1 << 50)

    assert not list((run / "live").iterdir())


def test_a_limit_that_is_not_known_is_refused_with_the_nearest_and_all_that_are(run: Path) -> None:
    with pytest.raises(CaptureError, match=r"^capture\(\): bank_size: .*; did you mean banks\? allowed: bank_bytes, "):
        mstxkit.capture(run, bank_size=1)


def test_a_configuration_that_is_a_list_is_refused(run: Path) -> None:
    with pytest.raises(CaptureError, match="a file, a dict or a Config is needed"):
        mstxkit.capture(run, config=["bank_bytes"])


def test_limits_are_taken_from_call_then_config_then_environment(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_BANKS", "3")
    monkeypatch.setenv("MSTXKIT_SLOTS", "30")
    monkeypatch.setenv("MSTXKIT_BANK_BYTES", "32768")
    with mstxkit.capture(run, config={"slots": 40, "bank_bytes": 40960}, bank_bytes=49152):
        view = current.live_view()
        assert view is not None
        layout = livefile.read_header(view).layout

    assert layout == livefile.Layout(slot_count=40, bank_count=3, bank_bytes=49152)


@pytest.mark.parametrize("text", ["many", "1e9", "-5"])
def test_a_limit_in_the_environment_that_cannot_be_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("MSTXKIT_QUOTA_BYTES", text)
    with pytest.raises(CaptureError, match=r"(MSTXKIT_QUOTA_BYTES|quota_bytes)="):
        mstxkit.capture(run)


@pytest.mark.parametrize("given", ["with\0null", 7.5, object()])
def test_what_is_no_path_is_refused(given: Any) -> None:
    with pytest.raises(CaptureError, match=r"run=.*is no path|cannot be used"):
        mstxkit.capture(given)


def test_a_bad_run_in_the_environment_lets_the_program_run_unrecorded() -> None:
    started = lives.start(
        """
        import mstxkit
        with mstxkit.mstx_range("x"):
            print("ran", mstxkit.status().on)
        """,
        MSTXKIT_RUN="/proc/no/run/can/be/here",
    )
    status, out, err = lives.finished(started)

    assert (status, out) == (0, "ran False\n")
    assert err.startswith("mstxkit: nothing is recorded: the run folder /proc/no/run/can/be/here cannot be used")
    assert "Traceback" not in err


def test_what_is_told_of_requests_holds_for_children_too(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_COOLDOWN_S", "7")

    with mstxkit.capture(run, light="every 100 steps, 1 step", cooldown_s=2.5):
        inside = {name: os.environ.get(name) for name in ("MSTXKIT_LIGHT", "MSTXKIT_COOLDOWN_S", "MSTXKIT_RUN_S")}

    assert inside == {"MSTXKIT_LIGHT": "every 100 steps, 1 step", "MSTXKIT_COOLDOWN_S": "2.5", "MSTXKIT_RUN_S": None}
    assert "MSTXKIT_LIGHT" not in os.environ and os.environ["MSTXKIT_COOLDOWN_S"] == "7"


def test_a_wrong_setting_in_the_environment_is_told_in_one_line(run: Path) -> None:
    """Nobody reads the traceback that a thousand ranks print of it."""
    started = lives.start("import mstxkit; print(mstxkit.status().on)", MSTXKIT_RUN=str(run), MSTXKIT_HANG_S="soon")

    assert lives.finished(started) == (
        0, "False\n", "mstxkit: nothing is recorded: hang_s='soon' (of MSTXKIT_HANG_S): a number is needed\n",
    )  # fmt: skip


@pytest.mark.parametrize("setting", [{"profiles_run_bytes": 2e11}, {"profiles": False}])
def test_what_capture_takes_its_children_take_too(run: Path, setting: dict[str, Any]) -> None:
    """They are told in the environment: a size of 2e11 was no whole number there, and none of them was recorded."""
    with mstxkit.capture(run, **setting):
        told = {name: text for name, text in os.environ.items() if name.startswith("MSTXKIT_")}
        child = lives.run("import mstxkit; print(mstxkit.status().on)", **told)

    assert child == "True\n"


def test_judge_is_no_word(run: Path) -> None:
    """The word no counted as yes here, and ended the recording of all children."""
    with pytest.raises(CaptureError, match=r"^judge='no' .*: True or False is needed$"):
        mstxkit.capture(run, judge="no")


def test_a_program_that_may_open_no_more_files_is_told_so_or_recorded(run: Path) -> None:
    """However many of those that capture opens it still may."""
    told = lives.run(
        """
        import mstxkit, resource, sys
        from mstxkit.errors import CaptureError
        mstxkit.capture(sys.argv[1], judge=0).stop()  # modules are files too
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        for files in range(3, 14):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, limit[1]))
                capture = mstxkit.capture(sys.argv[1], judge=0)
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
                capture.stop()
                print("recorded")
            except CaptureError as exc:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
                print(exc)
        """,
        run,
    ).splitlines()

    assert {line for line in told if "Too many open files" not in line} == {"recorded"}
    assert len(told) == 11 and "Too many open files" in told[0]
