"""The process that judges a run beside rank 0: when it ends."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit.judging import judge_process
from mstxkit.store import run_file
from mstxkit.store.judge_life import JudgeLife


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    with lives.own_run(tmp_path) as folder:
        yield folder


def test_it_ends_where_another_one_judges_in_its_place_although_the_job_goes_on(run: Path) -> None:
    with mstxkit.capture(run):
        words = run, run_file.id_of(run) or ""
        judging = threading.Thread(target=judge_process.judge, args=words, daemon=True)
        judging.start()
        assert lives.wait_until(lambda: bool(list((run / "verdicts").glob("controller*"))), 20)
        time.sleep(1)
        judged_before = judging.is_alive()

        JudgeLife(run, judge_process.WHO)  # as where its lock was in a folder that somebody has removed
        judging.join(30)

        assert (judged_before, judging.is_alive()) == (True, False)
