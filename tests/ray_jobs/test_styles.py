"""Actors and tasks in every shape that MindSpeed-RL and verl give them: each call is one range, in each worker."""

from __future__ import annotations

from collections import Counter

import pytest
from builders import ray_jobs, soak

pytestmark = [pytest.mark.ray, pytest.mark.slow]

BASE = "ActorWorkerBase"
# Shape, as `drivers/styles.py` calls it, to what its process must have recorded: name -> calls.
RECORDED = {
    "base_and_subclass": {
        f"{BASE}.generate_sequences": 1, f"{BASE}.sync_generate": 1, f"{BASE}.update": 2, f"{BASE}.kind": 1,
    },
    "own_methods": {
        "IntegratedWorker.compute_ref_log_prob": 1, "IntegratedWorker.generate_sequences": 1,
        f"{BASE}.generate_sequences": 1, f"{BASE}.sync_generate": 2, f"{BASE}.update": 1, f"{BASE}.is_ready": 1,
    },
    "no_base": {
        "RuleReward.compute_rm_score": 3, "RuleReward._score": 3, "RuleReward.parts": 1, "RuleReward.weigh": 1,
    },
    "concurrency_groups": {"Dock.put": 8, "Dock.get": 8},
    "asynchronous": {"Server.generate": 6, "Server.answer": 6, "Server.tokens": 1, "Server.sleep": 1},
    "own_runtime_env": {f"{BASE}.generate_sequences": 1, f"{BASE}.sync_generate": 1},
    "named_and_detached": {f"{BASE}.generate_sequences": 1, f"{BASE}.sync_generate": 1},
    "colocated": {
        f"{BASE}.generate_sequences": 1, f"{BASE}.sync_generate": 1, f"{BASE}.update": 1, "ReferenceWorker.update": 1,
    },
    "in_main": {"normalise": 1},
    "actor made in a task": {f"{BASE}.generate_sequences": 1, f"{BASE}.sync_generate": 1},
    "integrated made in a task": {
        "IntegratedWorker.compute_ref_log_prob": 1, "IntegratedWorker.generate_sequences": 1,
        f"{BASE}.generate_sequences": 1, f"{BASE}.sync_generate": 2,
    },
}  # fmt: skip
# In whichever worker Ray runs them: functions, generators, and what a function calls.
IN_TASKS = {"compute_advantage": 4, "normalise": 6, "stream": 1}


# One of them a day.
MOMENTS = soak.sample(["before", "after", "never"], 1)


@pytest.fixture(scope="module", params=MOMENTS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ray_jobs.Job:
    """Patched before the framework's import, after it, or only in the workers, by hand."""
    pytest.importorskip("ray")
    run = tmp_path_factory.mktemp("styles") / "run"
    job = ray_jobs.run_driver("styles", run, request.param, **ray_jobs.AS_RAY_HAS_IT)
    assert job.code == 0, job.output
    return job


@pytest.mark.parametrize("shape", RECORDED)
def test_every_call_is_recorded_once(job: ray_jobs.Job, shape: str) -> None:
    assert job.names(pid=job.said["pids"][shape]) == RECORDED[shape]


def test_tasks_are_recorded_once(job: ray_jobs.Job) -> None:
    recorded = Counter(job.names())

    assert {name: recorded[name] for name in IN_TASKS} == IN_TASKS


def test_no_call_has_an_error(job: ray_jobs.Job) -> None:
    assert not job.ranges(error=True)


def test_a_process_has_the_rank_that_its_actor_set_and_the_role_of_its_class(job: ray_jobs.Job) -> None:
    found = {process["pid"]: (process["rank"], process["role"]) for process in job.processes()}

    pids = job.said["pids"]
    assert found[pids["base_and_subclass"]] == (10, "ActorWorker")
    assert found[pids["own_methods"]] == (11, "integrated")  # what the targets' `roles` call it
    assert found[pids["own_runtime_env"]] == (12, BASE)
    assert found[pids["named_and_detached"]] == (13, "ActorWorker")
    assert found[pids["colocated"]] == (14, "WorkerDict")
    assert found[pids["no_base"]] == (None, "RuleReward")


def test_the_step_is_that_of_the_worker(job: ray_jobs.Job) -> None:
    updates = job.ranges(pid=job.said["pids"]["base_and_subclass"], name=f"{BASE}.update")

    assert sorted(row["step"] for row in updates) == [7, 8]


def test_no_process_counted_a_fault(job: ray_jobs.Job) -> None:
    assert {process["faults"] for process in job.processes()} == {0}
