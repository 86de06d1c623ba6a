"""Who looks after the others, and is stopped, is followed by another one; once it goes on, it leaves off."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import lives

from mstxkit.host import life, stopped
from mstxkit.store import layout

RANK = """
    import os, sys, time
    from mstxkit.host import stopped
    from mstxkit.recorder import keeper, watchman
    stopped.LONG_S, keeper._LOOKS_EVERY_S, watchman._AGAIN_AFTER_S, watchman._AFTER_S = 0.3, 0.2, 0.2, 0.2
    import mstxkit
    from mstxkit import capturing
    mstxkit.capture(sys.argv[1])
    ending = False
    def look():
        return capturing._beside.keeper._is_keeper
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "keeper?\\n":
            print(look(), flush=True)
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
        rank.stdin.write("keeper?\n")
        rank.stdin.flush()
        return bool(rank.stdout.readline() == "True\n")

    @property
    def lock(self) -> Path:
        (lock,) = lives.live_folder(self.run).glob(f"{layout.KEEPER}*{life.SUFFIX}")
        return lock

    def end(self) -> None:
        for rank in self.all:
            os.kill(rank.pid, signal.SIGCONT)
            rank.communicate(timeout=60)


def test_a_keeper_that_is_stopped_is_followed_by_another_and_is_none_once_it_goes_on(run: Path) -> None:
    ranks = Ranks(run, 3)
    assert lives.wait_until(lambda: any(map(ranks.asked, ranks.all)))
    (first,) = [rank for rank in ranks.all if ranks.asked(rank)]
    others = [rank for rank in ranks.all if rank is not first]
    os.kill(first.pid, signal.SIGSTOP)
    assert lives.wait_until(lambda: any(map(ranks.asked, others)))
    victim = next(rank for rank in others if not ranks.asked(rank))
    name = f"-{victim.pid}-"
    lives.killed(victim)
    assert lives.wait_until(lambda: not [n for n in os.listdir(run / "live") if name in n]), "the new one seals it"
    os.kill(first.pid, signal.SIGCONT)

    assert lives.wait_until(lambda: not ranks.asked(first))
    assert sum(map(ranks.asked, [rank for rank in ranks.all if rank is not victim])) == 1
    ranks.all.remove(victim)
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


def test_a_watchman_that_is_stopped_is_followed_by_another(run: Path) -> None:
    ranks = Ranks(run, 2, MSTXKIT_HANG_S="20")
    assert lives.wait_until(lambda: holder(run) > 0)
    first = holder(run)
    os.kill(first, signal.SIGSTOP)

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


@pytest.mark.parametrize("sign", [signal.SIGSTOP, None])
def test_a_holder_is_stopped_for_long_only_while_he_is(tmp_path: Path, monkeypatch: Any, sign: int | None) -> None:
    monkeypatch.setattr(stopped, "LONG_S", 0.0)
    lock = tmp_path / f"x{life.SUFFIX}"
    holds = f"import sys, pathlib; from mstxkit.host import life; life.hold(pathlib.Path({str(lock)!r}));"
    holder = subprocess.Popen(
        [lives.sys.executable, "-c", f"{holds} print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=lives.environment(),
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline()
    looks = stopped.StoppedHolder(lock)
    if sign is not None:
        os.kill(holder.pid, sign)
        assert lives.wait_until(lambda: stopped.is_stopped(holder.pid))
    seen = looks.for_long()
    os.kill(holder.pid, signal.SIGCONT)
    assert lives.wait_until(lambda: not stopped.is_stopped(holder.pid))

    assert (seen, looks.for_long()) == (holder.pid if sign else 0, 0)
    holder.communicate()
