"""`autopatch("ray")`: each task and each remote call of a method is one range, and does what it did before."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import ray_jobs

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def job(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> ray_jobs.Job:
    run: Path = tmp_path_factory.mktemp("of_ray") / "run"
    job = ray_jobs.run_driver("of_ray", run, RAY_ADDRESS=cluster)
    assert job.code == 0, job.output
    return job


def test_every_task_and_remote_call_is_one_range(job: ray_jobs.Job) -> None:
    assert job.names() == {
        "own": 2, "compute_advantage": 1, "stream": 1, "failing": 1,
        "IntegratedWorker.__init__": 1, "IntegratedWorker.compute_ref_log_prob": 1, "IntegratedWorker.update": 1,
        "Server.__init__": 1, "Server.generate": 1, "Server.sleep": 1, "Server.tokens": 1,
        "RuleReward.__init__": 1, "RuleReward.parts": 1,
        "Kinds.__init__": 1, "Kinds.of_class": 1, "Kinds.of_nothing": 1, "Kinds.of_object": 1,
    }  # fmt: skip


def test_what_they_return_is_unchanged(job: ray_jobs.Job) -> None:
    said = {key: value for key, value in job.said.items() if key not in ("state", "failing")}

    assert said == {
        "tasks": [1, 2, 3], "a task's stream": [0, 1], "own and inherited": [4, 1], "asynchronous": [5, 0],
        "an asynchronous stream": [0, 1], "an actor's stream": [0, 1], "kinds": ["Kinds 6", 7, 8], "called by Ray": 1,
    }  # fmt: skip


def test_a_task_that_raises_raises_and_its_range_says_so(job: ray_jobs.Job) -> None:
    assert "theirs" in job.said["failing"]
    assert [row["name"] for row in job.ranges(error=True)] == ["failing"]


def test_the_target_is_reported(job: ray_jobs.Job) -> None:
    assert job.said["state"] == ["applied"]
