"""Who looks after the others, and is killed, stopped, starved or hangs, is followed by another one; once it goes on, it
leaves off.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders import lives

from mstxkit.host import detached, life
from mstxkit.recorder.watchman import WatchmanStarter
from mstxkit.store import layout

pytestmark = pytest.mark.days("odd")

RANK = """
    import sys, threading
    from mstxkit.host import lease
    from mstxkit.recorder import adopt, keeper, watchman
    lease.SILENT_S, keeper._LOOKS_EVERY_S, watchman._AGAIN_AFTER_S, watchman._AFTER_S = 3.0, 0.2, 0.2, 0.2
    import mstxkit
    from mstxkit import capturing
    mstxkit.capture(sys.argv[1])
    answers, collect = threading.Event(), adopt.collect_dead
    def look():
        keeper = capturing._beside.keeper.get()
        return keeper._is_keeper and keeper._has_looked  # what was left before is sealed: it is at nothing now
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "keeper?\\n":
            print(look(), flush=True)
        if line == "hang\\n":
            adopt.collect_dead = lambda *of, **more: answers.wait() and collect(*of, **more)
        if line == "answer\\n":
            answers.set()
        with mstxkit.stage("work"):
            pass
"""


class Ranks:
    """Some, and who of them is the keeper of their host."""

    def __init__(self, run: Path, count: int, **variables: str) -> None:
        self.run = run
        self.all = [lives.start(RANK, run, RANK=str(rank), WORLD_SIZE=str(count), **variables) for rank in range(count)]
        for rank in self.all:
            assert rank.stdout is not None and rank.stdout.readline() == "ready\n"

    def asked(self, rank: Any) -> bool:
        tell(rank, "keeper?")
        return bool(rank.stdout.readline() == "True\n")

    def keeper(self) -> Any:
        assert lives.wait_until(lambda: any(map(self.asked, self.all)))
        (first,) = [rank for rank in self.all if self.asked(rank)]
        return first

    def lock_is_held(self) -> bool:
        return any(life.is_held(str(file)) for file in lives.live_folder(self.run).glob(f"{layout.KEEPER}*"))

    @property
    def lock(self) -> Path:
        (lock,) = lives.live_folder(self.run).glob(f"{layout.KEEPER}*{life.SUFFIX}")
        return lock

    def end(self) -> None:
        for rank in self.all:
            os.kill(rank.pid, signal.SIGCONT)
            rank.communicate(timeout=60)


def stop(keeper: Any) -> None:
    os.kill(keeper.pid, signal.SIGSTOP)


def hang(keeper: Any) -> None:
    """It waits for what it seals, as for a disk, from when it has answered on."""
    tell(keeper, "hang")
    tell(keeper, "keeper?")
    assert keeper.stdout.readline() == "True\n"


def tell(rank: Any, word: str) -> None:
    rank.stdin.write(f"{word}\n")
    rank.stdin.flush()


def starve(keeper: Any) -> None:
    for thread in os.listdir(f"/proc/{keeper.pid}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), 19)


@pytest.mark.parametrize("fault", [stop, hang, lives.killed, starve])
def test_what_the_dead_leave_is_sealed_whatever_becomes_of_the_keeper(run: Path, fault: Any) -> None:
    ranks = Ranks(run, 3)
    first = ranks.keeper()
    victim, other = [rank for rank in ranks.all if rank is not first]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * (fault is starve))]
    fault(first)
    name = f"-{victim.pid}-"
    lives.killed(victim)
    is_sealed = lives.wait_until(lambda: not [n for n in os.listdir(run / "live") if name in n])
    for process in busy:
        process.kill()
        process.wait()
    ranks.all.remove(victim)

    assert is_sealed
    if fault in (stop, hang):
        os.kill(first.pid, signal.SIGCONT)
        tell(first, "answer")
        assert lives.wait_until(lambda: not ranks.asked(first) and ranks.asked(other))
    if fault is lives.killed:
        ranks.all.remove(first)
    ranks.end()


def test_a_keeper_whose_lock_s_file_is_gone_or_another_s_is_keeper_again_or_none(run: Path) -> None:
    ranks = Ranks(run, 3)
    first = ranks.keeper()
    for _ in range(2):
        ranks.lock.unlink()
        assert lives.wait_until(lambda: sum(map(ranks.asked, ranks.all)) == 1 and ranks.lock_is_held())
    assert lives.wait_until(lambda: sum(map(ranks.asked, ranks.all)) == 1), first
    ranks.end()


def holder(run: Path) -> int:
    """The watchman that holds the lock."""
    return life.holder_of(lives.live_folder(run) / layout.WATCH_LOCK) or 0


def is_gone(pid: int) -> bool:
    """Has it ended, whether its parent has looked or not?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("sign", [signal.SIGSTOP, signal.SIGKILL])
def test_a_watchman_that_is_stopped_or_killed_is_followed_by_another(run: Path, sign: int) -> None:
    ranks = Ranks(run, 2, MSTXKIT_HANG_S="20")
    assert lives.wait_until(lambda: holder(run) > 0)
    first = holder(run)
    os.kill(first, sign)

    assert lives.wait_until(lambda: holder(run) not in (0, first))
    assert lives.wait_until(lambda: is_gone(first)), "whoever follows has ended it"
    ranks.end()


def test_a_watchman_whose_lock_is_another_s_ends(run: Path) -> None:
    """As where somebody has cleared the folder of live files, and the keeper has started another one."""
    ranks = Ranks(run, 2, MSTXKIT_HANG_S="20")
    assert lives.wait_until(lambda: holder(run) > 0)
    first = holder(run)
    (lives.live_folder(run) / layout.WATCH_LOCK).unlink()

    assert lives.wait_until(lambda: holder(run) not in (0, first))
    assert lives.wait_until(lambda: not os.path.exists(f"/proc/{first}"))
    ranks.end()


def test_of_watchmen_that_never_come_to_their_lock_fewer_and_fewer_are_started(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the run folder answers nothing: each waits for it, and cannot be ended."""
    now_s, starts = [0.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(detached, "start_module", lambda *words: starts.append(now_s[0]))
    starter = WatchmanStarter((run, "id", run), 30.0, 1, 1)
    for now_s[0] in range(3600):
        starter.consider()

    assert starts[:4] == [2, 7, 17, 37] and len(starts) < 16
