"""However `ray.init` is called, its workers record and patch, and what the caller gave it does what it did before."""

from __future__ import annotations

import json

import pytest
from builders import ray_jobs, soak
from builders.ray_jobs import Start

pytestmark = [pytest.mark.daily(3), pytest.mark.ray, pytest.mark.slow]

TARGETS_DECLARED = ray_jobs.TARGETS.read_text(encoding="utf-8").count("path:")
THEIR_HOOK_RAN = "ran, connected: True"
SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"
# How `ray.init` is called, what the user's own hook says of itself, and a variable of the user's.
WAYS = [
    ("plainly", None, None),
    ("by itself", None, None),
    ("with a hook by path", THEIR_HOOK_RAN, "1"),
    ("with a function as hook", THEIR_HOOK_RAN, "1"),
    ("with a RuntimeEnv", THEIR_HOOK_RAN, "1"),
    ("with a job_config", None, "1"),
    ("with a recipe", None, "1"),
]
# A hook of the user's in a submitted job, by Ray's option or by a variable.
HOOKS_OF_SUBMITTED_JOBS = [
    ({}, {}),
    ({"worker_process_setup_hook": "acme_rl.hooks.leave_a_mark"}, {}),
    # What Ray makes of it where the supervisor's own environment has a hook:
    ({}, {"__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "acme_rl.hooks.leave_a_mark"}),
]


@pytest.mark.parametrize(("way", "hook", "variable"), soak.sample(WAYS, 3))
def test_workers_record_and_patch(join: Start, way: str, hook: str | None, variable: str | None) -> None:
    job = join("ways", way)

    assert job.said.pop("the caller's own is changed", False) is False
    assert job.said == {
        "their hook": hook, "their variable": variable, "left for the next hook": None, "records into": str(job.run),
        "faults": [], "applied": TARGETS_DECLARED, "notes": [],
    }  # fmt: skip
    assert job.names() == {"normalise": 1}


@pytest.mark.parametrize("way", soak.sample(["with a hook that fails", "with a function that fails"], 1))
def test_a_hook_of_the_users_that_fails_ends_the_worker_as_without_us(join: Start, way: str) -> None:
    job = join("ways", way)

    assert job.said["ended by"] == "WorkerCrashedError"
    assert "their hook fails" in job.output


def test_capture_alone_reaches_the_workers(join: Start) -> None:
    job = join("ways", "capture alone")

    assert (job.said["records into"], job.said["applied"]) == (str(job.run), 0)


def test_a_worker_lives_on_where_its_settings_cannot_be_used(join: Start) -> None:
    job = join("ways", "with settings that cannot be used")

    assert job.said["their variable"] == "1"
    assert (job.said["records into"], job.said["applied"]) == (None, 0)
    assert sorted(job.said["faults"]) == [
        "MSTXKIT_AUTOPATCH=/no/such.yaml", "MSTXKIT_AUTOPATCH=no_such_framework", "capture from the environment",
    ]  # fmt: skip


def test_workers_may_be_switched_off_by_themselves(join: Start) -> None:
    job = join("ways", "switched off in workers")

    assert (job.said["records into"], job.said["applied"], job.said["faults"]) == (None, 0, [])
    assert not job.ranges()


def test_a_job_that_runs_already_is_reported_as_not_reached(join: Start) -> None:
    job = join("ways", "too late")

    assert job.said["applied"] == 0
    assert len(job.said["notes"]) == 1
    assert "before ray.init" in job.said["notes"][0]


@pytest.mark.parametrize(("hook", "variables"), soak.sample(HOOKS_OF_SUBMITTED_JOBS, 1))
def test_a_submitted_job_is_reached(join: Start, hook: dict[str, str], variables: dict[str, str]) -> None:
    """`ray job submit` injects a runtime environment, which Ray refuses to merge with one that says the same."""
    environment = {**hook, "env_vars": {"THEIRS": "1", **variables}}

    job = join("ways", "plainly", **{SUBMITTED: json.dumps({"runtime_env": environment, "metadata": {}})})

    assert job.said["their variable"] == "1"
    assert job.said["their hook"] == (THEIR_HOOK_RAN if hook or variables else None)
    assert (job.said["records into"], job.said["applied"]) == (str(job.run), TARGETS_DECLARED)


def test_a_submitted_job_with_a_hook_in_its_driver_is_reached(join: Start) -> None:
    job = join("ways", "with a hook by path", **{SUBMITTED: json.dumps({"runtime_env": {}, "metadata": {}})})

    assert (job.said["their hook"], job.said["their variable"]) == (THEIR_HOOK_RAN, "1")
    assert (job.said["records into"], job.said["applied"]) == (str(job.run), TARGETS_DECLARED)
