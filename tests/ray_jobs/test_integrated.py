"""A job of many actors laid out like MindSpeed-RL's, whose workers are all ended by force, is recorded whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from builders import ray_jobs, soak

pytestmark = [pytest.mark.ray, pytest.mark.slow]

RANKS, REWARDS, STEPS = soak.rounds(16, 4), 3, range(40, 43)
BASE = "ActorWorkerBase"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ray_jobs.Job:
    pytest.importorskip("ray")
    job = ray_jobs.run_driver("integrated", tmp_path_factory.mktemp("integrated") / "run", str(RANKS))
    assert job.code == 0, job.output
    return job


def processes(job: ray_jobs.Job) -> dict[int, dict[str, Any]]:
    return {process["pid"]: process for process in job.processes()}


def test_every_call_of_every_rank_is_one_range_in_its_step(job: ray_jobs.Job) -> None:
    per_call = {
        ("IntegratedWorker.generate_sequences", None): 1,
        (f"{BASE}.generate_sequences", "actor_generate"): 1,
        (f"{BASE}.sync_generate", "actor_generate"): 1,
        ("IntegratedWorker.compute_ref_log_prob", "reference_compute_log_prob"): 1,
        (f"{BASE}.sync_generate", "reference_compute_log_prob"): 1,
        (f"{BASE}.update", "actor_update"): 1,
    }
    expected = {
        (rank, step, *what): count for rank in range(RANKS) for step in STEPS for what, count in per_call.items()
    }

    recorded = Counter((row["rank"], row["step"], row["name"], row["stage"]) for row in job.ranges(role="integrated"))

    assert recorded == expected


def test_each_process_has_its_rank_and_role(job: ray_jobs.Job) -> None:
    found = {pid: (process["rank"], process["role"]) for pid, process in processes(job).items()}

    assert [found[pid] for pid in job.said["integrated"]] == [(rank, "integrated") for rank in range(RANKS)]
    assert [found[pid] for pid in job.said["rewards"]] == [(None, "RuleReward")] * REWARDS
    assert [found[pid] for pid in job.said["dock"]] == [(None, "Dock")]


def test_rewards_and_dock_are_recorded(job: ray_jobs.Job) -> None:
    scores = Counter(row["pid"] for row in job.ranges(name="RuleReward.compute_rm_score"))

    assert scores == dict.fromkeys(job.said["rewards"], len(STEPS))
    assert job.names(role="Dock") == {"Dock.put": RANKS * len(STEPS)}
    assert job.names()["compute_advantage"] == len(STEPS)


def test_no_process_counted_a_fault_or_dropped_a_record(job: ray_jobs.Job) -> None:
    assert {(process["faults"], process["dropped"]) for process in job.processes()} == {(0, 0)}


def test_the_run_is_not_damaged(job: ray_jobs.Job) -> None:
    import mstxkit

    assert not mstxkit.open_run(job.run).damage
