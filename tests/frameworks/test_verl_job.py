"""Real verl on real Ray: colocated workers of two processes record their stages once, with role, rank and step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.ray_jobs import NO_LESS_THAN_OTHERS

from mstxkit import open_run

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.skipif(not soak.is_soaking(), reason="GRPO of verl's own main_ppo has such workers"),
]

JOB = Path(__file__).resolve().parents[1] / "builders/frameworks/verl_job.py"
# What each process records in one of the two steps, in this order: range, stage, role.
WEIGHTS = ("update_weights", "weight_sync", "actor")
STEP = [
    ("actor_compute_log_prob", "actor_compute_log_prob", "actor"),
    ("infer_batch", "actor_compute_log_prob", "actor"),
    ("ref_compute_log_prob", "reference_compute_log_prob", "reference"),
    ("infer_batch", "reference_compute_log_prob", "reference"),
    ("infer_batch", None, None),
    ("compute_values", "critic_compute_values", "critic"),
    ("train_mini_batch", None, None),
    ("critic_update", "critic_update", "critic"),
    ("onload", "critic_update", None),
    *[("train_batch", "critic_update", "critic")] * 2,
    ("offload", "critic_update", None),
    ("actor_update", "actor_update", "actor"),
    ("train_mini_batch", "actor_update", "actor"),
    ("onload", "actor_update", None),
    *[("train_batch", "actor_update", "actor")] * 2,
    ("offload", "actor_update", None),
]


class Job:
    """One run of the job, and what it left."""

    def __init__(self, folder: Path) -> None:
        run = folder / "run"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
        environment.update(
            **NO_LESS_THAN_OTHERS,
            MSTXKIT_RUN=str(run),
            MSTXKIT_AUTOPATCH="verl",
            PYTHONPATH=str(JOB.parent),
            PYTHONWARNINGS="ignore",
        )
        done = subprocess.run([sys.executable, str(JOB)], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]
        self.says: dict[str, Any] = json.loads(done.stdout.rpartition("JOB ")[2])
        self.run = open_run(run)

    def records(self, rank: int) -> list[dict[str, Any]]:
        """Ranges of one rank in the order of their begin."""
        return [row for row in self.run.ranges().sort("start_ns").to_dicts() if row["rank"] == rank]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("verl"))


def role_of(row: dict[str, Any]) -> str | None:
    found: str | None = json.loads(row["attributes"] or "{}").get("role")
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_records_each_call_once_with_its_stage_and_role(job: Job, rank: int) -> None:
    rows = [(row["name"], row["stage"], role_of(row)) for row in job.records(rank)]

    assert rows == [WEIGHTS, *STEP, WEIGHTS, *STEP]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_step_is_the_drivers_own_from_where_it_resumed(job: Job, rank: int) -> None:
    """The driver resumed at 6. It tells the step at its end; what comes next belongs to the following one."""
    steps = [row["step"] for row in job.records(rank)]

    assert steps == [6, *[7] * (len(STEP) + 1), *[8] * len(STEP)]


def test_a_process_with_many_roles_is_called_after_its_first_stage(job: Job) -> None:
    roles = {row["rank"]: row["role"] for row in job.run.processes().to_dicts() if row["rank"] is not None}

    assert roles == {0: "actor", 1: "actor"}


def test_no_body_is_lost_to_a_fault(job: Job) -> None:
    processes = job.run.processes()

    assert processes["faults"].sum() == processes["dropped"].sum() == 0
    assert not job.run.ranges()["error"].any()


def test_verls_worker_group_still_finds_what_it_dispatches(job: Job) -> None:
    """`_bind_workers_method_to_parent` looks for `register`'s marks on the methods, which are patched by then."""
    assert {
        "actor_update_actor", "actor_compute_log_prob", "actor_compute_ref_log_prob", "actor_update_weights",
        "actor_save_checkpoint", "critic_infer_batch", "critic_train_mini_batch", "critic_train_batch",
    } <= set(job.says["bound"])  # fmt: skip


def test_an_async_method_of_a_worker_is_async_in_the_colocated_class(job: Job) -> None:
    assert job.says["async"] == ["actor_update_weights"]
