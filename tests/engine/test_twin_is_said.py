"""Who records on the Python twin is told so, and how to get the C engine: in the log, by `doctor` and by `status`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.run_files import BankFiles, ProcessFiles, new_run

from mstxkit import faults
from mstxkit.bootstrap import capture
from mstxkit.engine import choose


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_said", set())


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no C engine was built, and none can be loaded."""

    class Twin:
        NATIVE = False

    import mstxkit.engine.native as native

    monkeypatch.setattr(choose, "engine", Twin)
    monkeypatch.delattr(native, "hot", raising=False)
    monkeypatch.setitem(sys.modules, "mstxkit.engine.native.hot", None)


def test_where_there_is_no_c_engine_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing(monkeypatch)
    monkeypatch.delenv("MSTXKIT_NATIVE", raising=False)
    with caplog.at_level(logging.DEBUG, "mstxkit"):
        capture._tell_of_twin()
        capture._tell_of_twin()

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Python twin" in record.getMessage() and "install a C compiler" in record.getMessage()
    assert faults.counts == {}, "that is no fault"


def test_where_it_was_asked_for_the_line_is_quiet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing(monkeypatch)
    monkeypatch.setenv("MSTXKIT_NATIVE", "0")
    with caplog.at_level(logging.DEBUG, "mstxkit"):
        capture._tell_of_twin()

    (record,) = caplog.records
    assert (record.levelno, "unset it" in record.getMessage()) == (logging.INFO, True)


def test_on_the_c_engine_nothing_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Native:
        NATIVE = True

    monkeypatch.setattr(choose, "engine", Native)
    with caplog.at_level(logging.DEBUG, "mstxkit"):
        capture._tell_of_twin()

    assert (caplog.records, choose.why_twin()) == ([], None)


def test_status_says_who_ran_on_it(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    run = new_run(tmp_path / "run")
    ProcessFiles(run, 1, rank=0).seal(BankFiles().range("a", 0, 1))
    fast: Any = ProcessFiles(run, 2, rank=1)
    fast.identity["native"] = True
    fast.seal(BankFiles().range("a", 0, 1))
    done = subprocess.run([sys.executable, "-m", "mstxkit", "status", str(run)], capture_output=True, text=True)
    shown = " ".join(done.stdout.split())

    assert "1 of 2 processes ran on the Python twin" in shown
    assert "mstxkit doctor" in shown
