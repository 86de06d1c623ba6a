"""A job whose shared disk is slow, and whose workers leave and join: nobody waits, and it is judged all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest
from builders import beside, lives, soak
from builders.mounts import frozen_disk  # noqa: F401

from mstxkit.store import layout, run_file, settings_file, verdicts

RANK = Path(__file__).resolve().parents[1] / "builders" / "handing_rank.py"
ROOT = RANK.parents[2]
STEP_MS, SLOW = 50, 1


class Ranks:
    """Ranks of one job on one host, which begin and are killed one by one."""

    def __init__(self, run: Path, live: Path, steps: int) -> None:
        live.mkdir(mode=0o700, exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
        self._env = {**kept, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "4"}
        self._words = [str(run), str(time.monotonic_ns() + 10**9), str(steps), str(STEP_MS), str(SLOW), str(live)]
        self.run, self.of_rank = run, dict[int, subprocess.Popen[bytes]]()

    def join(self, *ranks: int) -> None:
        """Begin these; who comes late begins with the steps that are over, all at once."""
        for rank in ranks:
            command, env = [sys.executable, str(RANK), *self._words], {**self._env, "RANK": str(rank)}
            self.of_rank[rank] = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)

    def leave(self, rank: int) -> None:
        process = self.of_rank.pop(rank)
        process.kill()
        process.communicate()

    def end(self) -> set[int]:
        """Wait for all; those that ended well."""
        codes = {rank: (process.communicate(timeout=150), process.returncode) for rank, process in self.of_rank.items()}
        return {rank for rank, (_, code) in codes.items() if code == 0}

    def step(self) -> int:
        """That was judged last."""
        file = self.run / layout.VERDICTS / layout.FIGURES
        figures = settings_file.read_figures(file, run_file.id_of(self.run) or "")
        return -1 if figures is None or figures.step is None else figures.step

    def blamed(self) -> list[int | None]:
        return [verdict.rank for verdict in verdicts.read_verdicts(self.run) if verdict.is_blaming]


@pytest.fixture
def slow_disk(frozen_disk: Path) -> Iterator[Path]:  # noqa: F811
    """A disk that answers nothing for a third of a second, again and again."""
    is_over = threading.Event()

    def freeze_and_thaw() -> None:
        while not is_over.is_set():
            subprocess.run(["fsfreeze", "-f", frozen_disk], capture_output=True)
            is_over.wait(0.3)
            subprocess.run(["fsfreeze", "-u", frozen_disk], capture_output=True)
            is_over.wait(0.15)

    thread = threading.Thread(target=freeze_and_thaw)
    thread.start()
    yield frozen_disk
    is_over.set()
    thread.join()


def test_on_a_slow_shared_disk_every_step_is_judged_and_the_slow_rank_is_named(slow_disk: Path, tmp_path: Path) -> None:
    job = Ranks(slow_disk / "run", tmp_path / "live", steps=160)
    job.join(0, 1, 2)
    ended = job.end()

    assert ended == {0, 1, 2}
    assert lives.wait_until(lambda: job.step() == 159)
    assert job.blamed() == [SLOW]


def test_workers_that_are_killed_and_others_that_join_are_judged_with_the_rest(tmp_path: Path) -> None:
    """The one that is killed first is the host's agent."""
    job = Ranks(tmp_path / "run", tmp_path / "live", steps=300)
    job.join(3)
    assert lives.wait_until(lambda: any((tmp_path / "live").rglob("keeper-*")))
    job.join(0, 1)
    assert lives.wait_until(lambda: job.step() >= 30)
    job.leave(3)
    at = job.step()
    assert lives.wait_until(lambda: job.step() >= at + 30), "nobody waits for who is gone"
    job.join(2, 3)
    ended = job.end()

    assert ended == {0, 1, 2, 3}
    assert lives.wait_until(lambda: job.step() == 299)
    assert job.blamed() == [SLOW]
    assert not list((tmp_path / "live").rglob("*.sums")), "what they handed over is cleared away"


@pytest.mark.skipif(not soak.is_soaking(), reason="in make soak: it takes a minute until nobody is there who would")
@pytest.mark.parametrize("order", ["judge, rank 0", "rank 0, judge"])
def test_when_rank_0_the_keeper_and_the_judge_are_killed_another_one_judges_every_step(
    tmp_path: Path, order: str
) -> None:
    """Rank 0 is the keeper that starts judges; the next keeper has never seen a rank 0."""
    job = Ranks(tmp_path / "run", tmp_path / "live", steps=2000)
    job.join(0)
    assert lives.wait_until(lambda: any((tmp_path / "live").rglob("keeper-*")))
    job.join(1, 2, 3)
    assert lives.wait_until(lambda: job.step() >= 30)
    for who in order.split(", "):
        job.leave(0) if who == "rank 0" else os.kill(beside.pids(job.run, beside.JUDGE)[0], signal.SIGKILL)
    at = job.step()
    assert lives.wait_until(lambda: job.step() > at, 90.0)
    ended = job.end()

    assert ended == {1, 2, 3}
    assert lives.wait_until(lambda: job.step() == 1999)
    assert job.blamed() == [SLOW]
