"""Who judges and serves the page of figures, who watches, who keeps what the dead leave: each of them × each trouble.

A row is a job with all of them, by their own delays, half a minute and more: in `make soak`. In `make test` short ones
stand for it: `test_judge_gets_on.py`, `tests/processes/test_stopped_helpers.py`, and of a frozen disk
`tests/incidents/test_telling.py`.

| | killed | stopped | disk frozen | folders removed | starved |
|---|---|---|---|---|---|
| judge, page | here, gets_on | here, gets_on | here | here, gets_on | here, gets_on |
| watchman | here, stopped_helpers | here, stopped_helpers | here, telling | here, stopped_helpers | here |
| keeper | here, stopped_helpers | here, stopped_helpers | here | here, stopped_helpers | here, stopped_helpers |
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

pytest.importorskip("numpy")
pytest.importorskip("prometheus_client")

from builders import beside, lives, soak
from builders.mounts import frozen_disk  # noqa: F401

from mstxkit.host import life
from mstxkit.store import layout

pytestmark = pytest.mark.skipif(not soak.is_soaking(), reason="in make soak: each takes a minute; see the table above")

RANK = f"""
    import sys, threading, time
    import mstxkit
    mstxkit.capture(sys.argv[1])
{beside.TRAINS}"""
WITHIN_S, FROZEN_S = 120.0, 25.0


class Helpers:
    """Of a job of three ranks."""

    def __init__(self, run: Path, port: int) -> None:
        self.run, self._port = run, port
        more = {"MSTXKIT_JUDGE": "1", "MSTXKIT_HANG_S": "60", "MSTXKIT_METRICS": f"127.0.0.1:{port}", "WORLD_SIZE": "3"}
        self.ranks = [lives.start(RANK, run, RANK=str(rank), **more) for rank in range(3)]

    def pid(self, helper: str) -> int:
        """0: there is none."""
        if helper == "judge":
            return max(beside.pids(self.run, beside.JUDGE), default=0)
        locks = [lives.live_folder(self.run) / layout.WATCH_LOCK]
        if helper == "keeper":
            locks = list(lives.live_folder(self.run).glob(f"{layout.KEEPER}*{life.SUFFIX}"))
        return next(filter(None, (life.holder_of(lock) for lock in locks)), 0)

    def are_there(self) -> bool:
        has_id = (self.run / "run.json").exists()
        return has_id and self.judged() > 0 and self.is_served() and bool(self.pid("watchman") and self.pid("keeper"))

    def judged(self) -> int:
        return beside.judged(self.run)

    def is_served(self) -> bool:
        return beside.is_served(self._port)

    def shown_by_watchman(self) -> float:
        lock = lives.live_folder(self.run) / layout.WATCH_LOCK
        return lock.stat().st_mtime if lock.exists() else 0.0

    def lose(self, rank: Any) -> str:
        """One rank less; by what is seen that what it left is not sealed yet."""
        self.ranks.remove(rank)
        os.kill(rank.pid, signal.SIGCONT)
        lives.killed(rank)
        return f"-{rank.pid}-"

    def get_on(self, but: Any = None) -> None:
        """All of them do, in whatever process: a step is judged, the page served, a dead rank's rest is sealed."""
        at, shown = self.judged(), self.shown_by_watchman()
        assert lives.wait_until(lambda: self.judged() > at, WITHIN_S), "nobody judges"
        assert lives.wait_until(self.is_served, WITHIN_S), "nobody serves the page"
        assert lives.wait_until(lambda: self.pid("watchman") and self.shown_by_watchman() > shown, WITHIN_S)
        keeper = self.pid("keeper")
        name = self.lose(next(rank for rank in self.ranks if rank is not but and rank.pid != keeper))
        live = self.run / layout.LIVE
        assert lives.wait_until(lambda: not [file for file in os.listdir(live) if name in file], WITHIN_S), "not sealed"


@contextmanager
def a_job(run: Path) -> Iterator[Helpers]:
    helpers = Helpers(run, beside.free_port())
    try:
        assert lives.wait_until(helpers.are_there, WITHIN_S)
        yield helpers
        for module in (beside.JUDGE, beside.WATCHMAN):
            assert lives.wait_until(lambda module=module: len(beside.pids(run, module)) == 1, WITHIN_S), module
    finally:
        for rank in helpers.ranks:
            os.kill(rank.pid, signal.SIGCONT)
        for rank in helpers.ranks:
            rank.communicate("\n", timeout=WITHIN_S)
        assert lives.wait_until(lambda: not beside.pids(run, beside.JUDGE, beside.WATCHMAN), WITHIN_S)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("helper", ["judge", "watchman", "keeper"])
def test_who_is_killed_or_stopped_is_followed(run: Path, helper: str, sign: int) -> None:
    with a_job(run) as helpers:
        first = helpers.pid(helper)
        os.kill(first, sign)
        victim = next((rank for rank in helpers.ranks if rank.pid == first), None)
        if victim is not None and sign == signal.SIGKILL:
            helpers.lose(victim)

        assert lives.wait_until(lambda: helpers.pid(helper) not in (0, first), WITHIN_S), "nobody follows"
        helpers.get_on(but=victim)


def test_whom_a_frozen_disk_held_gets_on_and_the_page_is_served_meanwhile(frozen_disk: Path) -> None:  # noqa: F811
    with a_job(frozen_disk / "run") as helpers:
        subprocess.run(["fsfreeze", "-f", frozen_disk], check=True)
        try:
            time.sleep(FROZEN_S)
            is_served = helpers.is_served()
        finally:
            subprocess.run(["fsfreeze", "-u", frozen_disk], check=True)

        helpers.get_on()
        assert is_served


def clear_run(helpers: Helpers) -> None:
    """What others do to save room: what the judge says, and where processes are."""
    for name in (layout.VERDICTS, "now"):
        shutil.rmtree(helpers.run / name, ignore_errors=True)


def clear_shared_memory(helpers: Helpers) -> None:
    """Who cleans up: all but what is recorded."""
    for file in lives.live_folder(helpers.run).iterdir():
        if not file.name.endswith(life.LIVE_SUFFIX) and file.is_file():
            file.unlink()


@pytest.mark.parametrize("clear", [clear_run, clear_shared_memory])
def test_whose_folder_is_removed_makes_it_again_or_ends(run: Path, clear: Callable[[Helpers], None]) -> None:
    with a_job(run) as helpers:
        clear(helpers)

        helpers.get_on()


def test_who_is_starved_gets_on(run: Path) -> None:
    with a_job(run) as helpers:
        threads = [
            int(thread)
            for helper in ("judge", "watchman", "keeper")
            for thread in os.listdir(f"/proc/{helpers.pid(helper)}/task")
        ]
        for thread in threads:
            os.setpriority(os.PRIO_PROCESS, thread, 19)
        with beside.busy_loops():
            helpers.get_on()
