"""A program that forks all the time: what its children left is sealed meanwhile, and takes little until then."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
from builders import lives, soak
from typer.testing import CliRunner

from mstxkit.cli import build_application

pytestmark = [pytest.mark.days("odd"), pytest.mark.timeout(1800)]  # in `make soak` its tests take longest: begun first

FORKS = """
    import os, sys, threading, time, mstxkit
    from mstxkit.recorder import keeper
    mstxkit.capture(sys.argv[1])
    if sys.argv[4:]:
        keeper.DEAD_AT_MOST_BYTES, keeper._HELPED_EVERY_S = 1, 3600  # one process apart does for all of it
        keeper.Keeper._seal = lambda self, gone: time.sleep(0.2)  # nothing is sealed in this process
    ending, count, until_s = threading.Event(), 0, time.monotonic() + float(sys.argv[3])
    threading.Thread(target=lambda: (sys.stdin.readline(), ending.set()), daemon=True).start()
    while not ending.is_set() or time.monotonic() < until_s:
        pid = os.fork()
        if not pid:
            with mstxkit.stage("reward"), mstxkit.mstx_range("score"):
                pass
            os._exit(0)
        os.waitpid(pid, 0)
        count += 1
        time.sleep(float(sys.argv[2]))
    print(count)
"""


AROUND = "", lives.ENDING_THREADS  # threads are held, or ended
FORKED = (0.1, []), (0.01, []), (0.1, ["by a process apart"])  # how often, and who helps


def dead(run: Path, pid: int) -> set[str]:
    """Live files of those that are gone."""
    names = (file.name for file in lives.live_folder(run).glob("*.live"))
    return {name for name in names if f"-{pid}-" not in name and not os.path.exists(f"/proc/{name.split('-')[-2]}")}


@pytest.mark.parametrize(
    ("around", "gap_s", "helped"), soak.sample([(around, *how) for around, how in product(AROUND, FORKED)], 2)
)
def test_what_its_children_left_is_sealed_while_it_forks_on(
    run: Path, gap_s: float, helped: list[str], around: str
) -> None:
    """Ten minutes of ten forks a second in `make soak`."""
    program = lives.start(around + FORKS, run, gap_s, soak.rounds(6000, 0) * gap_s, *helped, is_patient=False)
    assert lives.wait_until(lambda: (run / "run.json").exists())
    for _ in range(3):
        left: set[str] = set()
        assert lives.wait_until(lambda left=left: left.update(dead(run, program.pid)) or len(left) > 0)
        assert lives.wait_until(lambda left=left: not left & dead(run, program.pid), within_s=60)
    count = int(program.communicate("\n", timeout=900)[0])

    assert CliRunner().invoke(build_application(), ["collect", str(run)]).exit_code == 0
    # Of a child that lacked a CPU for too long at its first range, that is not recorded: its parent counts it.
    (late,) = (row["faults"] for row in lives.processes(run) if row["pid"] == program.pid)
    ended = lives.ended(run)
    assert (set(ended), ended["reward"]) == ({"reward", "score"}, count - late) and late < count
    assert ended["reward"] <= ended["score"] <= count
    assert {row["ending"] for row in lives.processes(run)} == {None, "by os._exit(0)"}


def test_a_child_that_ends_by_os_exit_leaves_no_more_than_it_holds(run: Path) -> None:
    sizes = lives.run(
        """
        import os, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        mstxkit.capturing._beside.keeper.get().background.pause()
        if os.fork() == 0:
            with mstxkit.stage("reward"):
                pass
            os._exit(0)
        os.wait()
        here = mstxkit.status().live_file
        files = [file for file in os.scandir(os.path.dirname(here)) if file.name.endswith(".live")]
        print(*(file.stat().st_blocks * 512 for file in files if file.path != here), os.stat(here).st_blocks * 512)
        [child] = [p for p in mstxkit.open_run(sys.argv[1]).processes().to_dicts() if p["ending"]]
        assert child["ending"] == "by os._exit(0)"
        """,
        run,
    ).split()

    assert int(sizes[0]) < 200_000 < 4_000_000 < int(sizes[1])
    assert lives.ended(run) == {"reward": 1}
