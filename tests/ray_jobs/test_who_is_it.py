"""Driver, task workers and actors of a real Ray job say what they are, also those that Ray or a crash ends."""

from __future__ import annotations

from typing import Any

import pytest
from builders import ray_jobs

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ray_jobs.Job:
    pytest.importorskip("ray")
    job = ray_jobs.run_driver("who", tmp_path_factory.mktemp("who") / "run")
    assert job.code == 0, job.output
    return job


def by_name(job: ray_jobs.Job) -> dict[str, dict[str, Any]]:
    by_pid = {process["pid"]: process for process in job.processes()}
    return {name: by_pid[pid] for name, pid in job.said.items()}


def test_each_process_says_what_it_is(job: ray_jobs.Job) -> None:
    parts = {name: (process["rank"], process["role"], process["part"]) for name, process in by_name(job).items()}

    assert parts == {
        "driver": (None, None, "driver"), "task": (None, None, "ray worker"), "named": (None, "Worker", "named"),
        "plain": (None, "Worker", "Worker"), "plain too": (None, "Worker", "Worker"),
        "ranked": (5, "Worker", "xyzWorkerDict_0:1"), "server": (None, "Worker", "replica 2"),
        "crashing": (None, "Worker", "crashing"),
    }  # fmt: skip


def test_a_driver_is_the_same_after_its_job(job: ray_jobs.Job) -> None:
    (saved,) = job.ranges(stage="save_checkpoint")

    assert (saved["pid"], saved["rank"], saved["error"]) == (job.said["driver"], None, False)


def test_a_child_of_an_actor_is_no_actor_and_comes_after_it(job: ray_jobs.Job) -> None:
    found = [(process["part"], process["label"]) for process in job.processes() if process["rank"] == 5]

    assert found == [("xyzWorkerDict_0:1", "rank 5 Worker"), ("process 1", "rank 5 Worker process 1")]


def test_no_two_processes_are_called_the_same(job: ray_jobs.Job) -> None:
    labels = [process["label"] for process in job.processes()]
    plain = [by_name(job)[name] for name in ("plain", "plain too")]

    assert len(set(labels)) == len(labels)
    assert [process["label"] for process in plain] == [f"Worker (pid {process['pid']})" for process in plain]
    assert {"driver", "Worker named", "Worker replica 2", "Worker crashing"} <= set(labels)


def test_asking_costs_no_process_its_life_and_no_fault(job: ray_jobs.Job) -> None:
    assert {process["faults"] for process in job.processes()} == {0}
    assert "core_worker_process" not in job.output
