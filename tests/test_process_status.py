"""`status`, `stage_times` and `metrics` say what goes on in this process, whenever they are asked."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from builders import lives

import mstxkit
from mstxkit import process_status
from mstxkit.engine.choose import engine
from mstxkit.recorder.figures import FiguresHere
from mstxkit.store import layout, livefile, run_file
from mstxkit.store.settings_file import Figures


def test_status_says_what_goes_on(run: Path) -> None:
    with mstxkit.capture(run), mstxkit.mstx_range("open"):
        status = mstxkit.status()
    after = mstxkit.status()

    assert (status.on, status.native, status.run) == (True, engine.NATIVE, str(run))
    assert status.clock in livefile.CLOCKS.values() and status.clock_reason
    assert status.live_file is not None and Path(status.live_file).name.endswith(".live")
    assert set(status.counters) >= {*livefile.COUNTERS, "open", "sites"}
    assert (status.counters["open"], status.counters["dropped"], status.faults) == (1, 0, {})
    assert status.own_cost_ratio is not None and 0 <= status.own_cost_ratio < 1
    assert (after.on, after.run, after.live_file, after.own_cost_ratio) == (False, None, None, None)


def test_status_can_be_asked_while_captures_start_and_stop(run: Path) -> None:
    goes_on, problems = threading.Event(), []

    def ask() -> None:
        while not goes_on.is_set():
            try:
                mstxkit.status()
            except Exception as exc:
                problems.append(exc)

    asking = threading.Thread(target=ask)
    asking.start()
    for number in range(20):
        with mstxkit.capture(run, banks=2, bank_bytes=16384, slots=8 + number):
            pass
    goes_on.set()
    asking.join()

    assert not problems


def test_stage_times_are_those_of_this_process(run: Path) -> None:
    with mstxkit.capture(run):
        mstxkit.step(3)
        began = time.monotonic()
        with mstxkit.stage("timed"):
            time.sleep(0.01)
        took_s = time.monotonic() - began
        mstxkit.step(4)
        found = mstxkit.stage_times()
        of_step = mstxkit.stage_times(3)

    assert found == of_step
    assert 0.01 <= found["timed"] <= took_s
    assert mstxkit.stage_times(77) == {}


def test_metrics_are_what_the_keeper_has_put_into_the_hosts_shared_memory(run: Path) -> None:
    before = mstxkit.metrics()
    with mstxkit.capture(run):
        nothing = mstxkit.metrics()
        live = Path(str(mstxkit.status().live_file)).parent
        (live / layout.FIGURES_HERE).write_bytes(Figures(3, {"mstxkit/wait_ratio": 0.5}).as_json(run_id_of(run)))
        assert lives.wait_until(lambda: mstxkit.metrics() == {"mstxkit/wait_ratio": 0.5})
        (live / layout.FIGURES_HERE).write_bytes(b'{"format": 1, "values": {"x": "y"}}')
        assert lives.wait_until(lambda: mstxkit.metrics() == {})
        (live / layout.FIGURES_HERE).unlink()

    assert (before, nothing) == ({}, {})
    assert mstxkit.metrics() == {}


def test_metrics_never_raise_and_never_touch_the_run_folder(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mstxkit.capture(run):
        live = Path(str(mstxkit.status().live_file)).parent
        (live / layout.FIGURES_HERE).mkdir()
        broken = mstxkit.metrics()
        (live / layout.FIGURES_HERE).rmdir()
        with monkeypatch.context() as context:
            context.setattr(FiguresHere, "values", lambda _: 1 / 0)
            context.setattr(process_status.faults, "note_fault", lambda site, exc: None)
            failed = mstxkit.metrics()

    assert (broken, failed) == ({}, {})


def run_id_of(run: Path) -> str:
    return run_file.id_of(run) or ""
