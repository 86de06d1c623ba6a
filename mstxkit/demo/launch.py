"""Start the ranks of the demo as processes of their own, see them to their end, leave none behind; what came of it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mstxkit.errors import MissingPackageError, MstxkitError
from mstxkit.host import detached
from mstxkit.reading.run import open_run
from mstxkit.store import incidents, run_file, verdicts
from mstxkit.store.incidents import Incident
from mstxkit.store.verdicts import Verdict

POLL_S = 0.05
# A collective that waits for a dead rank gives up after 30 s at the latest (`loop.join_ranks`); then the process ends.
SURVIVORS_END_WITHIN_S = 60.0
KILL_AFTER_RATIO = 0.6
# A step takes less than a second here: who waits for a rank that hangs is not to wait for half a minute.
HANG_S = 5.0
LOG, CURVE = "demo.log", "rewards.jsonl"
MEAN_OVER_STEPS = 5
_NO_VERDICT = "the training was over before a verdict blamed a rank"


class DemoError(MstxkitError):
    """The demo could not be run, or one of its ranks failed on its own."""


class PlanError(DemoError):
    """What was asked of the demo makes no sense, or its folder is taken."""


@dataclass(frozen=True)
class DemoPlan:
    """A run of the demo."""

    run: Path  # folder: new, or empty
    ranks: int = 2
    steps: int = 80
    seed: int = 0
    slow_rank: int | None = None  # generates slowly, or with `hidden` computes gradients slowly
    kill_rank: int | None = None  # is killed when `KILL_AFTER_RATIO` of the steps are done
    every: int = 10  # print the reward every so many steps; 0: nothing at all, what ranks say is in the run's LOG
    escalate: bool = False  # let verdicts ask for profiles by themselves
    hang_rank: int | None = None  # hangs then, and the demo ends with the incident that this leaves
    hidden: bool = False  # the slow rank is slow before the gradients meet, where all ranks take equally long

    @property
    def fatal_step(self) -> int:
        """The step in which `kill_rank` dies, or `hang_rank` hangs."""
        return int(self.steps * KILL_AFTER_RATIO)

    def check(self) -> None:
        """Raises: PlanError for what cannot be run, MissingPackageError without torch; before anything is started."""
        if importlib.util.find_spec("torch") is None:
            raise MissingPackageError("torch", "the demo")
        if self.ranks < 1 or self.steps < 1:
            raise PlanError(f"ranks={self.ranks}, steps={self.steps}: at least one of each is needed")
        for name, rank in (("slow-rank", self.slow_rank), ("kill-rank", self.kill_rank), ("hang-rank", self.hang_rank)):
            if rank is not None and not 0 <= rank < self.ranks:
                raise PlanError(f"--{name} {rank}: with --ranks {self.ranks} the ranks are 0 to {self.ranks - 1}")
        if self.run.exists() and (not self.run.is_dir() or any(self.run.iterdir())):
            raise PlanError(f"{self.run} is there already: give --run a new folder")


@dataclass(frozen=True)
class Learning:
    """How far a policy came: mean reward, from 0 to 1, of the first and of the last few steps."""

    steps: int
    first_reward: float
    final_reward: float

    @property
    def ratio(self) -> float:
        """How many times the first reward the final one is."""
        return self.final_reward / self.first_reward if self.first_reward else 0.0


class Escalated(NamedTuple):
    """What became of the verdict that asked for a profile.

    Args:
        verdict: None where none asked; `reason`: why none did.
        profiles: `rank, state, reason, step, folder`: what became of the request on each rank, of the one that is
            blamed first, then of its peers; which step was recorded, where the profile is; None where nothing was.
    """

    verdict: Verdict | None = None
    reason: str = ""
    profiles: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class DemoOutcome:
    """What became of a plan, and what was learnt."""

    plan: DemoPlan
    exit_codes: tuple[int, ...]  # of each rank; negative: the signal that ended it
    learning: Learning
    seconds: float
    escalated: Escalated | None = None  # None where the plan has no escalation
    incident: Incident | None = None  # of the rank that hung


def run_ranks(plan: DemoPlan) -> DemoOutcome:
    """Train with all ranks and wait for their end. Takes as long as the training; prints each rank's lines.

    Raises: DemoError when the plan cannot be run or a rank failed that was not to be killed.
    """
    plan.check()
    plan.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    started_s, meeting_place = time.monotonic(), tempfile.mkdtemp(prefix="mstxkit-demo-")
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        with nullcontext() if plan.every else open(plan.run / LOG, "ab") as log:
            for rank in range(plan.ranks):
                command, environment = make_command(plan, rank, meeting_place), make_environment(plan, rank)
                ranks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        wait_for_all(ranks, plan)
        incident = None if plan.hang_rank is None else incident_of(plan.run)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        shutil.rmtree(meeting_place, ignore_errors=True)
    seconds, codes = time.monotonic() - started_s, tuple(process.returncode for process in ranks)
    escalated = read_escalated(plan.run) if plan.escalate else None
    return DemoOutcome(plan, codes, measure_learning(plan.run), seconds, escalated, incident)


def incident_of(run: Path) -> Incident | None:
    """The first incident of a run, once it has come to something."""
    return next(iter(incidents.read_incidents(run, run_file.id_of(run) or "")), None)


def make_command(plan: DemoPlan, rank: int, meeting_place: str) -> list[str]:
    """One rank as a Python process of its own. The ranks meet through a file: a port could be taken by another."""
    rendezvous = f"file://{meeting_place}/store?rank={rank}&world_size={plan.ranks}"
    command = [sys.executable, "-m", "mstxkit.demo.rank", "--rendezvous", rendezvous]
    command += ["--steps", str(plan.steps), "--seed", str(plan.seed), "--every", str(plan.every)]
    command += ["--curve", str(plan.run / CURVE)]
    command += ["--slow-behind-barrier" if plan.hidden else "--slow"] if rank == plan.slow_rank else []
    command += [] if plan.kill_rank is None else ["--may-lose-peers"]
    command += ["--die-at", str(plan.fatal_step)] if rank == plan.kill_rank else []
    return command + (["--hang-at", str(plan.fatal_step)] if rank == plan.hang_rank else [])


def make_environment(plan: DemoPlan, rank: int) -> dict[str, str]:
    """The environment of a rank: what torchrun would set, one thread each, and where to record."""
    paths = [detached.ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "GLOO_SOCKET_IFNAME": "lo",
        "MSTXKIT_TRANSPORT_S": "0.5",  # all ranks are on this host: they agree on a step that is near
        "MSTXKIT_COOLDOWN_S": "1",  # the training is over in half a minute: another verdict's profile is not to miss it
        "MSTXKIT_RINGS": "1",  # who enters collectives late, without which a barrier hides a slow rank
        **({} if plan.hang_rank is None else {"MSTXKIT_HANG_S": f"{HANG_S:g}"}),
        "KINETO_LOG_LEVEL": "6",  # else torch announces each of its profilers on stderr, in the middle of the rewards
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths), "MSTXKIT_RUN": str(plan.run.absolute()),
        "MSTXKIT_ACT": "escalate" if plan.escalate else "observe",
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan.ranks), "OMP_NUM_THREADS": "1",
        # torch_npu may be installed without CANN; loading it by itself would end `import torch` with an error.
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }  # fmt: skip


def wait_for_all(ranks: list[subprocess.Popen[bytes]], plan: DemoPlan) -> None:
    """Wait until every rank has ended, or the incident is there.

    Raises: DemoError when one ends in another way than the plan has it, or outlives another for too long.
    """
    deadline_s = float("inf")
    while True:
        codes = [process.poll() for process in ranks]
        if None in codes and plan.hang_rank is not None and incident_of(plan.run) is not None:
            return
        for rank, code in enumerate(codes):
            if code not in (None, -signal.SIGKILL if rank == plan.kill_rank else 0):
                where = "above" if plan.every else f"in {plan.run / LOG}"
                raise DemoError(f"rank {rank} of the demo ended with code {code}; its output is {where}")
        if None not in codes:
            return
        if deadline_s == float("inf") and any(code is not None for code in codes):
            deadline_s = time.monotonic() + SURVIVORS_END_WITHIN_S
        if time.monotonic() > deadline_s:
            raise DemoError(f"a rank did not end within {SURVIVORS_END_WITHIN_S:.0f} s of another's end")
        time.sleep(POLL_S)


def measure_learning(run: Path) -> Learning:
    """Compare the mean of the last steps that were finished with that of the first."""
    path = run / CURVE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rewards = [json.loads(line)["reward"] for line in lines if line.endswith("}")]
    count = min(MEAN_OVER_STEPS, len(rewards)) or 1
    return Learning(len(rewards), sum(rewards[:count]) / count, sum(rewards[-count:]) / count)


def read_escalated(run: Path) -> Escalated:
    """What became of it. Call it when the ranks have ended. Raises: ReadError where the run cannot be read."""
    every = verdicts.read_verdicts(run)
    asked = (verdict for verdict in every if verdict.request)
    # One that blames a rank and holds, the one that costs most: on a laptop that has other things to do everybody is
    # slow now and then, or one rank is, and the judge says so.
    verdict = max(asked, key=lambda of: (of.rank is not None, not of.withdrawn, of.impact_ratio), default=None)
    if verdict is None or verdict.stage is None:
        reasons = [each.no_request for each in every if each.no_request]
        return Escalated(reason=reasons[-1] if reasons else _NO_VERDICT)
    rows = [row for row in open_run(run).escalations().to_dicts() if row["request"] == verdict.request]
    rows.sort(key=lambda row: (row["rank"] != verdict.rank, row["rank"]))
    profiles = []
    for row in rows:
        state = {name: row[name] for name in ("rank", "state", "reason")}
        profiles.append({**state, "step": row["first_step"], "folder": row["folder"] and str(run / row["folder"])})
    return Escalated(verdict, "", tuple(profiles))
