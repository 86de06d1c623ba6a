"""A recorder in this process: started, stopped, started again; what fails on the way leaves nothing behind."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from builders import lives

import mstxkit
from mstxkit import faults
from mstxkit.engine.choose import engine
from mstxkit.errors import CaptureError
from mstxkit.recorder import blocks, current


def test_a_capture_records_until_it_is_stopped(run: Path) -> None:
    with mstxkit.capture(run) as started:
        with mstxkit.mstx_range("inside"):
            pass
    with mstxkit.mstx_range("after"):
        pass

    assert started.run == run
    assert lives.ended(run) == {"inside": 1}
    assert not engine.recording()


def test_stop_may_be_called_more_than_once(run: Path) -> None:
    started = mstxkit.capture(run)
    started.stop()
    started.stop()

    assert not mstxkit.status().on


def test_a_capture_that_was_stopped_does_not_stop_a_later_one(run: Path, tmp_path: Path) -> None:
    first = mstxkit.capture(run)
    first.stop()
    with mstxkit.capture(tmp_path / "second"):
        first.stop()
        is_on = mstxkit.status().on

    assert is_on


def test_a_range_that_ends_while_a_stop_is_sealing_is_named_as_open(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's, say: after the engine has let go of the live file nothing changes in it any more."""
    real = blocks.of_left_banks

    def ended_meanwhile(*args: Any) -> Any:
        found = list(real(*args))
        late.__exit__(None, None, None)
        return found

    monkeypatch.setattr(blocks, "of_left_banks", ended_meanwhile)
    started, late = mstxkit.capture(run), mstxkit.mstx_range("late")
    late.__enter__()
    started.stop()

    assert not lives.ended(run)
    assert lives.still_open(run) == {"late": 1}


def test_what_takes_too_long_at_the_end_is_named_as_the_work_that_others_have_left(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """This process has sealed its own, so that its run folder does answer."""
    started, folder = mstxkit.capture(run, stop_s=5), lives.live_folder(run)
    assert current.recorder is not None
    background = current.recorder.sealer.background
    finish = background.finish
    monkeypatch.setattr(background, "finish", lambda last, deadline: finish(last, deadline + 60) and False)
    started.stop()

    said = f"what processes of {run} that are gone have left was more than 5 s of work: the rest stays in {folder}, "
    assert said + "to be sealed by the next process of this run here, or by `mstxkit collect`" in caplog.text
    assert "has not answered" not in caplog.text


def test_who_asks_on_a_thread_of_ours_waits_for_no_stop_that_waits_for_that(run: Path) -> None:
    """A finalizer of the program, which any thread may run: both would wait, and nothing would be sealed."""
    asked, answers = threading.Event(), []

    def ask() -> None:
        asked.set()
        while current.recorder is not None:
            time.sleep(0.001)
        answers.append(mstxkit.status().on)

    started = mstxkit.capture(run)
    assert current.recorder is not None
    current.recorder.sealer.each_tick.append(ask)
    engine.wake()
    assert asked.wait(60)
    started.stop()

    assert answers == [False]
    assert not list((run / "live").iterdir()) and lives.processes(run)[0]["state"] == "ended"


def test_a_stopped_capture_can_be_started_again_into_the_same_run(run: Path) -> None:
    for name in ("first", "second"):
        with mstxkit.capture(run), mstxkit.mstx_range(name):
            pass

    assert lives.ended(run) == {"first": 1, "second": 1}
    assert [row["state"] for row in lives.processes(run)] == ["ended"] * 2


def test_a_range_that_began_before_a_stop_is_not_in_the_next_capture(run: Path) -> None:
    started = mstxkit.capture(run)
    with mstxkit.mstx_range("across"):
        started.stop()
        started = mstxkit.capture(run)
    started.stop()

    assert not lives.ended(run)
    assert lives.still_open(run) == {"across": 1}


def test_a_start_that_fails_half_way_leaves_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot_start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", cannot_start)
    with pytest.raises(CaptureError, match="can't start new thread"):
        mstxkit.capture(run)

    assert not mstxkit.status().on
    assert not engine.recording()
    assert not list((run / "live").iterdir())
    assert "MSTXKIT_RUN" not in os.environ


def test_an_adoption_that_fails_does_not_keep_a_capture_from_starting(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mstxkit.store import process_pointer

    (run / "live").mkdir(parents=True)
    monkeypatch.setattr(process_pointer, "all_here", lambda folder: 1 / 0)
    with mstxkit.capture(run), mstxkit.mstx_range("recorded"):
        pass

    assert lives.ended(run) == {"recorded": 1}
    assert faults.counts.get("keeper") == 2, "at the start, and once more at the end"
