"""How processes of real programs end, as the run tells it: pools, forks, `os._exit`, a job that is signalled.

The shapes of a review's scripts in which every normal end was a kill.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import lives
from typer.testing import CliRunner, Result

from mstxkit.cli import build_application

pytestmark = pytest.mark.days("odd")


def call(*words: object) -> Result:
    return CliRunner().invoke(build_application(), [str(word) for word in words])


def told(run: Path) -> tuple[Counter[tuple[str, str | None]], int]:
    """State and ending of each process, and the exit code of `report`."""
    code = call("report", run, "--json").exit_code
    return Counter((row["state"], row["ending"]) for row in lives.processes(run)), code


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_end_well_and_are_sealed_with_their_program(run: Path, tmp_path: Path, method: str) -> None:
    program = tmp_path / "pools.py"
    program.write_text(
        lives.PATIENT
        + lives.dedented(
            """
            import multiprocessing, os, sys, mstxkit
            from concurrent.futures import ProcessPoolExecutor
            def child(n):
                with mstxkit.stage("reward"):
                    return os.getpid()
            if __name__ == "__main__":
                mstxkit.capture(sys.argv[1])
                context = multiprocessing.get_context(sys.argv[2])
                with context.Pool(2) as pool:
                    pool.map(child, range(20))
                with ProcessPoolExecutor(2, mp_context=context) as executor:
                    list(executor.map(child, range(20)))
                left_open = context.Pool(1)
                left_open.map(child, range(5))
            """
        )
    )
    lives.run("import runpy, sys\nsys.argv[:] = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')",
              program, run, method)  # fmt: skip

    endings, code = told(run)
    assert {state for state, _ in endings} <= {"ended", "left"} and code == 0
    assert list((run / "live").iterdir()) == []
    assert lives.ended(run) == {"reward": 45}


def test_children_that_are_ended_by_their_parent_left(run: Path) -> None:
    lives.run(
        """
        import os, signal, sys, time, mstxkit
        mstxkit.capture(sys.argv[1])
        def serve(k):
            with mstxkit.stage("reward", k=k):
                pass
            if k == 0:
                os._exit(0)
            if k == 1:
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            os.write(write, b".")
            time.sleep(60)
        read, write = os.pipe()
        pids = []
        for k in range(3):
            pids.append(os.fork())
            if pids[-1] == 0:
                serve(k)
        os.read(read, 1), os.read(read, 1)
        for pid in pids[1:]:
            os.kill(pid, signal.SIGTERM)
        for pid in pids:
            os.waitpid(pid, 0)
        """,
        run,
    )

    endings, code = told(run)
    assert endings == {("ended", None): 2, ("left", "by os._exit(0)"): 1, ("left", "with the job"): 1} and code == 0
    assert lives.ended(run) == {"reward": 3}


RANKS = """
    import os, sys, time, mstxkit
    os.setpgid(0, 0)
    mstxkit.capture(sys.argv[1])
    for rank in range(3):
        if os.fork() == 0:
            break
    else:
        rank = "launcher"
    mstxkit.step(7)
    with mstxkit.stage(f"update of {rank}"):
        os.write(1, f"{rank} {os.getpid()}\\n".encode())
        time.sleep(60)
"""


def ranks_of(process: Any) -> dict[str, int]:
    return {rank: int(pid) for rank, pid in (process.stdout.readline().split() for _ in range(4))}


def test_a_job_that_is_signalled_left_and_what_was_open_is_listed(run: Path) -> None:
    process = lives.start(RANKS, run)
    ranks_of(process)
    os.killpg(process.pid, signal.SIGTERM)  # all of them at once: nobody lives to see the others go
    process.communicate()

    assert call("collect", run).exit_code == 0
    endings, code = told(run)
    assert endings == {("left", "with the job"): 4} and code == 0
    assert len(lives.still_open(run)) == 4


def test_one_rank_that_is_killed_is_named_with_its_stage_and_step(run: Path) -> None:
    process = lives.start(RANKS, run)
    pids = ranks_of(process)
    os.kill(pids["1"], signal.SIGKILL)
    assert lives.wait_until(lambda: len(list((run / "live").iterdir())) == 3), "its keeper seals it"
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate()

    assert call("collect", run).exit_code == 0
    done = call("report", run, "--json")
    (killed,) = lives.killed_of(json.loads(done.output))
    assert done.exit_code == 1
    assert (killed["pid"], killed["inside"][0]["stage"], killed["inside"][0]["step"]) == (pids["1"], "update of 1", 7)


def test_attempts_of_one_job_are_told_apart(run: Path) -> None:
    """As torchrun starts ranks anew."""
    lives.run(
        """
        import os, subprocess, sys, mstxkit
        if len(sys.argv) > 2:
            sys.exit()
        mstxkit.capture(sys.argv[1])
        for attempt in range(2):
            environment = {**os.environ, "TORCHELASTIC_RESTART_COUNT": str(attempt), "RANK": "0"}
            code = "import sys, mstxkit; mstxkit.capture()"
            subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        """,
        run,
    )

    assert sorted((row["rank"], row["attempt"]) for row in lives.processes(run) if row["rank"] is not None) == [
        (0, 0), (0, 1),
    ]  # fmt: skip


ENDED_BY_THEIR_LAUNCHER = """
    import ctypes, os, sys, time, mstxkit
    mstxkit.capture(sys.argv[1])
    os.write(1, b".")
    with mstxkit.stage("update"), mstxkit.mstx_range("work"):
        if os.environ["RANK"] != "1":
            time.sleep(60)
        sys.stdin.readline()
        if sys.argv[2] == "raises":
            raise ValueError("bad batch")
        if sys.argv[2] == "crashes":
            ctypes.string_at(0)
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    ("deed", "how", "watched"),
    [
        ("crashes", "by SIGSEGV", "30"),
        ("is killed", None, "30"),
        ("is killed", None, "0"),
        ("raises", "by ValueError", "0"),
    ],
)
def test_the_rank_for_which_a_launcher_ended_the_others_is_named(
    run: Path, deed: str, how: str | None, watched: str
) -> None:
    """As srun and mpirun do, some moments later: all that is known lies beside the live files."""
    ranks = []
    for number in range(3):
        rank = lives.start(ENDED_BY_THEIR_LAUNCHER, run, deed, RANK=str(number), WORLD_SIZE="3", MSTXKIT_HANG_S=watched)
        assert rank.stdout is not None and rank.stdout.read(1) == "."
        # By the first: of a keeper's own death nobody tells but a watchman.
        assert watched != "0" or lives.wait_until(lambda: lives.is_kept(run))
        ranks.append(rank)
    assert lives.wait_until(lambda: len(list((run / "live").glob("*.json"))) == 3)
    time.sleep(2.5)  # the keeper watches who is new once a second
    ranks[1].communicate("\n")
    assert deed == "raises" or lives.wait_until(lambda: is_noted(run))
    time.sleep(0.5)  # what is gone within 100 ms of it was signalled with it
    for rank in (ranks[0], ranks[2]):
        lives.killed(rank)

    for is_collected in (False, True):
        if is_collected:
            assert call("collect", run).exit_code == 0
        rows = {row["rank"]: (row["state"], row["ending"]) for row in lives.processes(run)}
        assert rows[1] == ("ended" if deed == "raises" else "killed", how)
        assert rows[0] == rows[2] == ("left", "with the job")
        assert call("status", run).exit_code == call("report", run).exit_code == 1


def is_noted(run: Path) -> bool:
    """Has somebody who lived on noted that one is gone?"""
    left = [*lives.live_folder(run).glob("*.stacks"), *lives.live_folder(run).glob("*.told")]
    return any(b"@mstxkit gone" in file.read_bytes() for file in left)
