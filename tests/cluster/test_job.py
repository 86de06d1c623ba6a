"""Real processes of a job that hand over their stages: what is judged of them, whoever is killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest
from builders import beside, lives, soak
from builders.mounts import Mount, mount  # noqa: F401
from builders.waiting import until

from mstxkit.reading.run import open_run
from mstxkit.store import batches, job_file, judge_lock, layout, run_file, settings_file, verdicts
from mstxkit.store.job_file import JobState

pytestmark = pytest.mark.days("odd")

RANK = Path(__file__).resolve().parents[1] / "builders" / "handing_rank.py"
ROOT = RANK.parents[2]
RANKS, STEP_MS = 3, 50
Start = Callable[..., "Started"]


class Started:
    """The ranks of a job, on one host."""

    def __init__(
        self,
        run: Path,
        live: Path,
        steps: int,
        slow: int,
        ranks: int,
        step_ms: int,
        off_s: dict[int, float],
        **variables: str,
    ) -> None:
        self.run, self.live = run, live
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
        env = {**kept, "PYTHONPATH": str(ROOT), "WORLD_SIZE": str(ranks), **variables}
        words = [str(run), str(time.monotonic_ns() + 10**9), str(steps), str(step_ms), str(slow)]
        self.processes = []
        for rank in range(ranks):
            of_host, live_of_rank = {}, live / f"host{rank}" if rank in off_s else live
            live_of_rank.mkdir(mode=0o700, exist_ok=True)
            if rank in off_s:
                of_host = {"HOST_NAME": f"node-{rank}", "WALL_OFF_S": str(off_s[rank])}
            command = [sys.executable, str(RANK), *words, str(live_of_rank)]
            mine = {**env, "RANK": str(rank), **of_host}
            self.processes.append(subprocess.Popen(command, env=mine, stdout=subprocess.PIPE))

    def wait(self) -> list[dict[str, float]]:
        """The figures that each rank that lives said at its end."""
        outputs = [process.communicate(timeout=120)[0] for process in self.processes]
        return [json.loads(output) for process, output in zip(self.processes, outputs) if process.returncode == 0]

    def step(self) -> int:
        """The step that was judged last."""
        run_id = run_file.id_of(self.run) or ""
        figures = settings_file.read_figures(self.run / layout.VERDICTS / layout.FIGURES, run_id)
        return -1 if figures is None or figures.step is None else figures.step

    def keeper(self) -> subprocess.Popen[bytes]:
        """The process that looks after the others."""
        for process in self.processes:
            for name in os.listdir(f"/proc/{process.pid}/task"):
                if Path(f"/proc/{process.pid}/task/{name}/comm").read_text().startswith("mstxkit-keeper"):
                    return process
        return self.processes[self._locking()]

    def _locking(self) -> int:
        (lock,) = self.live.rglob("keeper-*.life")
        node = f":{os.stat(lock).st_ino} "
        pids = [int(line.split()[4]) for line in Path("/proc/locks").read_text().splitlines() if node in line]
        return next(number for number, process in enumerate(self.processes) if process.pid in pids)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a job; none of its processes outlives the test."""
    jobs: list[Started] = []
    live = tmp_path / "live"
    live.mkdir(mode=0o700)

    def begin(
        run: Path = tmp_path / "run", steps: int = 60, slow: int = 1, ranks: int = RANKS, step_ms: int = STEP_MS,
        off_s: dict[int, float] | None = None, **env: str,
    ) -> Started:  # fmt: skip
        jobs.append(Started(run, live, steps, slow, ranks, step_ms, off_s or {}, **env))
        return jobs[-1]

    yield begin
    for job in jobs:
        for process in job.processes:
            process.kill()
            process.communicate()
        for pid in beside.pids(job.run, beside.JUDGE):
            os.kill(pid, signal.SIGKILL)


def top(run: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mstxkit", "top", str(run), *words]
    env = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    return subprocess.run(command, env={**env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)


def test_the_slow_rank_is_named_beside_the_job_and_its_judge_ends_with_it(start: Start) -> None:
    job = start()
    said = job.wait()
    until(lambda: not beside.pids(job.run, beside.JUDGE))
    shown = top(job.run, "--once")

    (verdict,) = [verdict for verdict in verdicts.read_verdicts(job.run) if verdict.is_blaming]
    assert (verdict.kind, verdict.rank, verdict.stage) == ("compute", 1, "actor_generate")
    assert job.step() == 59, "the last one too"
    assert len(said) == RANKS
    assert all(figures["mstxkit/time_s/actor_generate/slowest_rank"] == 1 for figures in said), "metrics() of each rank"
    assert shown.returncode == 1
    assert shown.stdout.startswith("Verdict: rank 1 computes more slowly than the others in actor_generate: ")
    assert not judge_lock.is_held(job.run)
    assert sorted(row["rank"] for row in open_run(job.run).processes().to_dicts()) == [0, 1, 2], (
        "it is no process of it"
    )


@pytest.mark.parametrize("off_s", [-0.3, 0.3])
def test_a_host_whose_wall_clock_is_wrong_is_not_late_for_that_alone(start: Start, off_s: float) -> None:
    """Its times are put right by the clock of the disk that all hosts share."""
    job = start(steps=50, slow=-1, ranks=2, step_ms=100, off_s={0: 0.0, 1: off_s})
    job.wait()
    until(lambda: not beside.pids(job.run, beside.JUDGE))
    clocks = (job_file.read_state(job.run, run_file.id_of(job.run) or "") or JobState()).clocks

    assert job.step() == 49
    assert [verdict for verdict in verdicts.read_verdicts(job.run) if verdict.is_blaming] == []
    assert clocks.keys() == {"boot of node-1"}, "the other one is right"
    assert abs(clocks["boot of node-1"] - (time.time_ns() - time.monotonic_ns())) < 50_000_000


def test_a_judge_that_is_killed_is_started_again_and_goes_on(start: Start) -> None:
    job = start(steps=240)
    until(lambda: job.step() >= 40)
    (first,) = beside.pids(job.run, beside.JUDGE)
    os.kill(first, signal.SIGKILL)
    until(lambda: bool(beside.pids(job.run, beside.JUDGE)) and beside.pids(job.run, beside.JUDGE) != [first])
    job.wait()
    until(lambda: not beside.pids(job.run, beside.JUDGE))

    assert job.step() == 239
    blaming = [verdict for verdict in verdicts.read_verdicts(job.run) if verdict.is_blaming]
    assert [verdict.rank for verdict in blaming] == [1], "the same verdict, not a second one"


@pytest.mark.skipif(
    not soak.is_soaking(), reason="in make soak: tests/judging/test_run_judge.py shows the same at once"
)
def test_judges_that_are_killed_at_any_moment_and_twice_in_a_row_leave_out_no_step(
    start: Start, tmp_path: Path
) -> None:
    """Of short steps, more than a judge reads again are handed over while there is none."""
    job, chance = start(steps=4000, step_ms=5, MSTXKIT_JUDGE="0"), random.Random(soak.seed())
    until(lambda: (job.run / layout.RUN_FILE).exists())
    for pause_s in (0.0, 0.0, 4.0, 0.5):
        judge = judge_of(job.run, tmp_path / "log")
        time.sleep(chance.uniform(0.5, 4.0))
        judge.kill()
        judge.wait()
        time.sleep(pause_s)
    last = judge_of(job.run, tmp_path / "log")
    job.wait()
    last.wait(120)

    judged = [tuple(map(int, line.split())) for line in (tmp_path / "log").read_text().splitlines()]
    assert {step for step, _ in judged} == set(range(4000))
    assert {members for step, members in judged if step > 400} == {RANKS}, "in the first ones not all had begun"
    assert [verdict.rank for verdict in verdicts.read_verdicts(job.run) if verdict.is_blaming] == [1]


def judge_of(run: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(RANK.with_name("logged_judge.py")), str(run), str(log)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_when_the_keeper_is_killed_another_one_goes_on_and_nothing_of_the_others_is_lost(start: Start) -> None:
    job = start(steps=120, slow=-1)
    until(lambda: job.step() >= 20)
    keeper = job.keeper()
    keeper.kill()
    job.wait()
    until(lambda: not beside.pids(job.run, beside.JUDGE))

    batch_file = batches.BatchFile(batches.files_in(job.run)[0], run_file.id_of(job.run) or "")
    read = list(batch_file.read())
    handed = handed_over(read)
    killed = job.processes.index(keeper)
    assert len({batch.sender for batch in read}) >= 2
    assert [handed[rank] == set(range(120)) for rank in range(RANKS) if rank != killed] == [True, True]
    assert job.step() == 119


ENDS = """
import mstxkit, sys
with mstxkit.capture(sys.argv[1], live_folder=sys.argv[2]):
    for number in range(4):
        if number == 3:
            print("ready", flush=True)
            sys.stdin.readline()
        mstxkit.step(number)
        with mstxkit.stage("actor_update"):
            pass
"""


@pytest.mark.parametrize("together", [False, True])
def test_the_last_step_of_every_rank_is_passed_on_however_they_end(tmp_path: Path, together: bool) -> None:
    """One after the other within a second, before the next one has looked whether there is a keeper; or all at once."""
    run, live = tmp_path / "run", tmp_path / "live"
    live.mkdir(mode=0o700)
    job = {"WORLD_SIZE": "3", "MSTXKIT_JUDGE": "0"}
    ranks = [lives.start(ENDS, run, live, RANK=str(rank), **job) for rank in range(3)]
    for rank in ranks:
        assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
    for rank in ranks if together else ():
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
    assert [lives.finished(rank)[0] for rank in ranks] == [0, 0, 0]

    read = list(batches.BatchFile(batches.files_in(run)[0], run_file.id_of(run) or "").read())
    assert handed_over(read) == {rank: {0, 1, 2, 3} for rank in range(3)}
    assert read[-1].has_ended, "the host has said goodbye"
    assert not list(live.rglob("*.sums"))


def handed_over(read: list[batches.Batch]) -> dict[int, set[int]]:
    """Steps of each rank."""
    handed: dict[int, set[int]] = {}
    ranks: dict[tuple[str, int], int] = {}
    for batch in read:
        ranks.update({(batch.sender, of.number): of.rank for of in batch.processes() if of.rank is not None})
        for _, number, rows in batch.parts:
            steps = {int.from_bytes(rows[at : at + 4], "little") for at in range(0, len(rows), 40)}
            handed.setdefault(ranks[batch.sender, number], set()).update(steps)
    return handed


def test_judge_0_starts_nobody_and_top_judges_from_outside(start: Start, tmp_path: Path) -> None:
    job = start(MSTXKIT_JUDGE="0")
    for process in job.processes:
        process.wait(60)
    before = list((job.run / layout.VERDICTS).glob("*")) if (job.run / layout.VERDICTS).exists() else []
    copy = shutil.copytree(job.run, tmp_path / "copy")
    shown, again = top(copy, "--once", "--json"), top(copy, "--once")

    assert before == []
    document = json.loads(shown.stdout)
    assert (document["steps"], document["last_step"], document["hosts"]) == (60, 59, 1)
    assert [(verdict["kind"], verdict["rank"]) for verdict in document["verdicts"]] == [("compute", 1)]
    assert (shown.returncode, again.returncode) == (1, 1)
    assert again.stdout.count("compute") == 1, "what was judged is not judged twice"


def test_settings_are_changed_while_it_runs_and_acknowledged(start: Start) -> None:
    job = start(steps=20_000)
    until(lambda: job.step() >= 10)
    changed = top(job.run, "--set", "slow_rank.effect=9.5", "--json")
    figures = settings_file.read_figures(job.run / layout.VERDICTS / layout.FIGURES, "")

    document = json.loads(changed.stdout)
    assert (changed.returncode, document["judge"], document["hosts"], document["missing"]) == (0, True, 1, [])
    assert document["settings"] == {"version": 1, "values": {"slow_rank.effect": 9.5}}
    assert figures is not None
    assert figures.settings == 1


def test_a_full_shared_disk_costs_batches_and_nothing_else(start: Start, mount: Mount) -> None:  # noqa: F811
    disk = mount("disk", "size=512k,mode=700")
    job = start(disk / "run", steps=160)
    until(lambda: job.step() >= 10)
    fill = disk / "fill"
    with open(fill, "wb", buffering=0) as stream:
        try:
            while stream.write(b"\0" * 4096):
                pass
        except OSError:
            pass
    at = time.monotonic()
    until(lambda: time.monotonic() - at > 3)
    fill.unlink()
    said = job.wait()
    until(lambda: not beside.pids(job.run, beside.JUDGE))

    assert len(said) == RANKS
    assert job.step() == 159
    assert [verdict.rank for verdict in verdicts.read_verdicts(job.run) if verdict.is_blaming] == [1]
