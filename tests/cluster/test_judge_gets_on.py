"""Who judges is killed, stopped, starved, or loses its lock: it is followed by another one, or is told to be behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

import pytest

pytest.importorskip("numpy")

from builders import beside, lives
from typer.testing import CliRunner

from mstxkit.cli import build_application
from mstxkit.reading.report import judged_so_far
from mstxkit.store import layout

pytestmark = pytest.mark.days("even")

RANK = f"""
    import sys, threading, time
    from mstxkit.cluster import beside
    beside._SILENT_AFTER_S, beside._AGAIN_AFTER_S, beside._AFTER_S = float(sys.argv[2]), 0.5, 0.2
    import mstxkit
    mstxkit.capture(sys.argv[1])
{beside.TRAINS}"""


@contextmanager
def a_job(run: Path, followed_after_s: float = 5.0, **variables: str) -> Iterator[int]:
    """Of two ranks; the pid of who judges it."""
    ranks = [
        lives.start(RANK, run, followed_after_s, RANK=str(rank), WORLD_SIZE="2", **{"MSTXKIT_JUDGE": "1", **variables})
        for rank in range(2)
    ]
    try:
        assert lives.wait_until(lambda: beside.judged(run) > 0, 60)
        yield beside.pids(run, beside.JUDGE)[0]
    finally:
        for pid in beside.pids(run, beside.JUDGE)[:1]:
            os.kill(pid, signal.SIGCONT)
        for rank in ranks:
            rank.communicate("\n", timeout=60)
        assert lives.wait_until(lambda: not beside.pids(run, beside.JUDGE))


def clear_verdicts(run: Path, pid: int) -> None:
    shutil.rmtree(run / layout.VERDICTS)


def kill(run: Path, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_who_was_stopped_is_followed_and_ends_as_it_goes_on(run: Path) -> None:
    """Somebody may want to look at it: nobody ends it before that one lets it go on."""
    with a_job(run) as first:
        os.kill(first, signal.SIGSTOP)
        at = beside.judged(run)
        assert lives.wait_until(lambda: beside.judged(run) > at, 60)
        assert first in beside.pids(run, beside.JUDGE)
        os.kill(first, signal.SIGCONT)

        assert lives.wait_until(lambda: first not in beside.pids(run, beside.JUDGE), 60)
        assert lives.wait_until(lambda: len(beside.pids(run, beside.JUDGE)) == 1)


@pytest.mark.parametrize("fault", [kill, clear_verdicts])
def test_whoever_judges_no_more_is_followed_and_ends(run: Path, fault: Callable[[Path, int], None]) -> None:
    with a_job(run) as first:
        fault(run, first)
        at = beside.judged(run)

        assert lives.wait_until(lambda: beside.judged(run) > at and first not in beside.pids(run, beside.JUDGE), 60)
        assert lives.wait_until(lambda: len(beside.pids(run, beside.JUDGE)) == 1)


def test_who_is_starved_keeps_up_or_is_told_to_be_behind(run: Path) -> None:
    with a_job(run) as first:
        os.setpriority(os.PRIO_PROCESS, first, 19)
        with beside.busy_loops():
            at = beside.judged(run)
            assert lives.wait_until(lambda: beside.judged(run) > at or is_told(run), 60)


def test_who_is_stopped_and_followed_by_nobody_is_told_to_be_behind_by_every_command(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged_so_far, "_LATE_S", 5.0)
    with a_job(run, followed_after_s=1e9) as first:
        os.kill(first, signal.SIGSTOP)
        at = beside.judged(run)

        assert lives.wait_until(lambda: f"judged up to step {at}, " in said(run, "status"), 60)
        assert f"judged up to step {at}, " in said(run, "report")
        assert f"judged up to step {at}, " in said(run, "top")
        os.kill(first, signal.SIGCONT)
        assert lives.wait_until(lambda: "judged up to step" not in said(run, "status"), 60)


def said(run: Path, verb: str, *options: str) -> str:
    return CliRunner().invoke(build_application(), [verb, str(run), *options]).stdout


def is_told(run: Path) -> bool:
    return bool(json.loads(said(run, "status", "--json"))["judged"])


def test_who_is_stopped_is_followed_and_its_page_served_on_the_same_port(run: Path) -> None:
    pytest.importorskip("prometheus_client")
    port = beside.free_port()
    with a_job(run, MSTXKIT_METRICS=f"127.0.0.1:{port}") as first:
        assert lives.wait_until(lambda: beside.is_served(port))
        os.kill(first, signal.SIGSTOP)
        at = beside.judged(run)

        assert lives.wait_until(lambda: beside.judged(run) > at and first not in beside.pids(run, beside.JUDGE), 60)
        assert lives.wait_until(lambda: beside.is_served(port))
