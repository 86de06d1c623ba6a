"""Real torchrun: a rank that dies is named and takes the others along; an agent that is told to end takes all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import lives

import mstxkit
from mstxkit.reading.report import summary

pytestmark = [pytest.mark.days("odd"), pytest.mark.slow]

RANK = """
    import os, signal, sys, time
    from pathlib import Path
    import mstxkit
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    folder, agents = Path(sys.argv[2]), Path(f"/proc/{os.getppid()}/fdinfo")
    def is_watched(rank):  # through a descriptor that its agent holds
        file = folder / f"{attempt}-{rank}"
        return file.exists() and any(f"Pid:\\t{file.read_text()}\\n" in said for said in map(text_of, agents.iterdir()))
    def text_of(file):
        try:
            return file.read_text()
        except OSError:
            return ""
    mstxkit.step(5)
    with mstxkit.stage("actor_update"):
        print(f"rank {rank} works", flush=True)
        (folder / f"{attempt}-{rank}").write_text(str(os.getpid()))
        dying_attempts = int(sys.argv[1])
        if attempt < dying_attempts:
            while rank == 0 or not all(map(is_watched, range(2))):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGKILL)
        elif dying_attempts == 0:
            time.sleep(600)
"""


# It looks each second whom there is to watch: on a busy machine torch's import takes it as long as a quiet period.
AGENT = """
import mstxkit
from mstxkit.recorder import sealer
sealer._QUIET_LOOK_S = 1.0
mstxkit.capture()
from torch.distributed.run import main
main()
"""


def torchrun(run: Path, tmp_path: Path, dying_attempts: int, restarts: int = 0) -> subprocess.Popen[str]:
    """Two ranks and their agent, each recorded as `mstxkit run` would have it."""
    pytest.importorskip("torch")
    program, agent = tmp_path / "rank.py", tmp_path / "agent.py"
    program.write_text("import mstxkit; mstxkit.capture()\n" + lives.dedented(RANK))
    agent.write_text(AGENT)
    return subprocess.Popen(
        [sys.executable, agent, "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}",
         program, str(dying_attempts), tmp_path],
        env=lives.environment(MSTXKIT_RUN=str(run)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def report_of(process: subprocess.Popen[str], run: Path) -> dict[str, Any]:
    out, _ = process.communicate(timeout=120)
    assert list((run / "live").iterdir()) == [], out
    return summary.summarise_run(mstxkit.open_run(run))


def test_the_rank_that_died_is_named_and_the_others_left(run: Path, tmp_path: Path) -> None:
    report = report_of(torchrun(run, tmp_path, dying_attempts=1), run)

    (killed,) = lives.killed_of(report)
    assert (killed["rank"], killed["inside"][0]["stage"], killed["inside"][0]["step"]) == (1, "actor_update", 5)
    assert report["states"] == {"ended": 1, "killed": 1, "left": 1}
    assert ("left", "with the job") in [(ending["state"], ending["how"]) for ending in report["endings"]]


def test_a_restart_is_another_attempt_and_what_was_killed_before_stays_killed(run: Path, tmp_path: Path) -> None:
    report = report_of(torchrun(run, tmp_path, dying_attempts=1, restarts=1), run)
    rows = [row for row in lives.processes(run) if row["rank"] is not None]

    assert sorted((row["attempt"], row["rank"], row["state"]) for row in rows) == [
        (0, 0, "left"), (0, 1, "killed"), (1, 0, "ended"), (1, 1, "ended"),
    ]  # fmt: skip
    assert [killed["rank"] for killed in lives.killed_of(report)] == [1]


def test_a_launcher_that_is_told_to_end_takes_all_along(run: Path, tmp_path: Path) -> None:
    process = torchrun(run, tmp_path, dying_attempts=0)
    assert process.stdout is not None
    for _ in range(2):
        while " works" not in process.stdout.readline():  # a warning of torch may name a folder "frameworks"
            assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    report = report_of(process, run)

    assert lives.killed_of(report) == []
    assert report["states"] == {"ended": 1, "left": 2}
    (left,) = [ending for ending in report["endings"] if ending["state"] == "left"]
    assert {opened["stage"] for one in left["processes"] for opened in one["inside"]} == {"actor_update"}
