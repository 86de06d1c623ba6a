"""Jobs of `main_ppo` that were recorded to their end: what was asked of each meanwhile, and what its run says."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

from builders.main_ppo import APART, STEPS, Job, Kind
from builders.real_job import listening, progress, sessions

from mstxkit import open_run
from mstxkit.store import fate

# Metrics with this in their names say how long something took or was waited for, how much of the machine's memory is
# used, or how many answers were under way.
MEASURED = ("timing", "perf/", "fully_async/", "dynamic_resource/")
# A forward pass and a step of the optimizer, in a legacy worker and in an engine.
PIECES = {True: ("_forward_micro_batch", "_optimizer_step"), False: ("forward_step", "optimizer_step")}
# By trainer whose rollout is apart: what its first step calls of what is patched for it, besides what all have.
CALLED = {
    "one_step_off": {"RayPPOTrainer._start_profiling", "AgentLoopWorker.generate_sequences"},
    "fully_async": {"FullyAsyncRollouter._process_single_sample_streaming", "AgentLoopWorker.generate_sequences"},
    "separate_async": {"SkipManager.set_step", "AgentLoopWorkerTQ._run_prompt"},
}
for called in CALLED.values():
    called |= {"TrainingWorker.train_batch", "CheckpointEngineWorker.update_weights", "LLMServerClient.generate"}


class Ended:
    """A job that was recorded to its end, what was asked of it, and the same job without mstxkit if there was one."""

    def __init__(self, job: Job, plain: Job | None, progress: fate.Progress) -> None:
        self.job, self.kind, self.plain, self.progress = job, job.kind, plain, progress
        self.run = open_run(job.run)
        self.processes = self.run.processes().to_dicts()
        self.ranges = self.run.ranges().sort("start_ns").to_dicts()

    def counts(self, **of: Any) -> Counter[Any]:
        """How often each (name, stage) was recorded, among ranges with these values."""
        return Counter((row["name"], row["stage"]) for row in self.rows(**of))

    def counts_by_role(self, names: set[str], **of: Any) -> Counter[Any]:
        """How often each (name, stage, role), among those with one of the names."""
        rows = [row for row in self.rows(**of) if row["name"] in names]
        return Counter((row["name"], row["stage"], json.loads(row["attributes"])["role"]) for row in rows)

    def rows(self, **of: Any) -> list[dict[str, Any]]:
        """Ranges with these values, in the order of their begin."""
        return [row for row in self.ranges if all(row[column] == value for column, value in of.items())]

    @property
    def steps_of_workers(self) -> list[int | None]:
        """Which they know: before 0.7.1 verl tells them none."""
        return [None] if self.kind.version == "0.6.1" else [*range(1, STEPS + 1)]

    def sessions(self) -> list[tuple[dict[str, Any], Counter[str]]]:
        """What was recorded of each rank for the request, and the names in its trace of torch's profiler."""
        return sessions(self.job.run, "actor_update")


@contextmanager
def run(kind: Kind, task: Path, folder: Path, *, is_compared: bool) -> Iterator[Ended]:
    """The job to its end, beside the same without mstxkit where both are compared; then all of it goes."""
    plain = Job(kind, task, folder / "plain", recorded=False) if is_compared else None
    job = Job(kind, task, folder / "recorded", held=True)
    try:
        id = escalated(job)
        for one in filter(None, (job, plain)):
            assert one.end() == 0, one.output[-4000:]
        yield Ended(job, plain, progress(job.run, id))
    finally:
        for one in (job, plain):
            if one is not None:
                one.clear()


def escalated(job: Job) -> str:
    """Ask for the next actor_update of every rank while the job stands still, and let it go on; the request's id."""
    job.until(lambda: len(listening(job.run, "actor_update")) == job.kind.ranks)
    if job.kind.trainer in APART:  # such a job trains its first step while its second one is held
        job.until(lambda: has_called(job))
    id = job.ask(stage="actor_update", ranks="all", occurrences=1)
    job.go()
    return id


def has_called(job: Job) -> bool:
    """Do records of what is patched say that its first step is trained, and that all is called which is in it?"""
    called = calls(job.run)
    updates = called["ActorRolloutRefWorker.update_actor"]
    return updates == job.kind.updates * job.kind.ranks and called.keys() >= CALLED[job.kind.trainer]


def calls(run: Path) -> Counter[str]:
    """How often each of verl's targets that is in place was called, in all processes."""
    targets = [one for file in run.glob("patches/*.json") for one in json.loads(file.read_text())["targets"]]
    found: Counter[str] = Counter()
    for one in targets:
        if (one["framework"], one["state"]) == ("verl", "applied") and one["calls"]:
            found[one["path"].partition(":")[2]] += one["calls"]
    return found


def learned(metrics: dict[str, Any]) -> dict[str, str]:
    """All but what is measured; a float's text has every bit of it, and NaN equals NaN."""
    return {name: repr(value) for name, value in metrics.items() if not any(part in name for part in MEASURED)}
