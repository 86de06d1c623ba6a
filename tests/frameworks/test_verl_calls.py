"""The real verl does a piece of work while it is patched: names, stages, roles and steps of what is recorded."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.contracts.where import INSTALLED_VERL, OLDER_VERL, verl_paths

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

# These have a worker that generates itself.
LEGACY = ["0.6.1", "0.7.0", "0.7.1"]
CALLS = Path(__file__).resolve().parents[1] / "builders/frameworks/verl_calls.py"
STEP = 41


# What can be called in a version; `marks` goes last, as it puts a torch_npu in place.
NAMES = {
    **dict.fromkeys(("0.6.1", "0.7.0"), ("blocks", "settings", "legacy_generate")),
    "0.7.1": ("blocks", "settings", "legacy_generate", "lora"),
    **dict.fromkeys(("0.8.0", "0.9.0"), ("blocks", "settings", "lora")),
    "0.9.1": ("blocks", "settings", "trainer_v1", "agent_loops", "server", "lora", "marks"),
}


@functools.cache
def all_made(version: str) -> dict[str, Any]:
    """What the functions of verl_calls.py say, with this version of verl."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    environment.update(PYTHONPATH=os.pathsep.join(verl_paths(version)), PYTHONWARNINGS="ignore")
    done = subprocess.run(
        [sys.executable, str(CALLS), *NAMES[version]], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.rpartition("CALLS ")[2])
    return found


def made(name: str, version: str = INSTALLED_VERL) -> dict[str, Any]:
    """What one of them says."""
    found: dict[str, Any] = all_made(version)[name]
    return found


@pytest.mark.parametrize("version", [*soak.rounds(OLDER_VERL, ()), INSTALLED_VERL])
def test_a_trainers_blocks_are_its_stages_in_every_version(version: str) -> None:
    """A block that fails ends its range, and verl's own metrics are what they were: none for the one that failed. The
    first block of a step, in which verl tells it up to 0.8.0, is of that step.
    """
    found = made("blocks", version)

    assert [row[:3] for row in found["ranges"]] == [
        ["start_profile", None, STEP],
        ["step", "train_step", STEP],
        ["gen", "actor_generate", STEP],
        ["adv", "compute_advantage", STEP],
    ]
    assert [row[0] for row in found["ranges"] if row[4]] == ["adv"]
    assert found["timing"] == ["gen", "start_profile", "step"]
    assert found["waits"] == ["gen", "start_profile"]


@pytest.mark.parametrize("version", [*soak.rounds(OLDER_VERL, ()), INSTALLED_VERL])
def test_a_trainer_tells_numbers_and_switches_of_its_configuration_and_no_text(version: str) -> None:
    found = made("settings", version)

    assert [(row[0], row[3]) for row in found["ranges"]] == [("load_checkpoint", "trainer")]
    assert found["settings"] == {
        "trainer.total_epochs": 3, "data.train_batch_size": 1024,
        "actor_rollout_ref.actor.optim.lr": 1e-6, "actor_rollout_ref.actor.use_kl_loss": True,
    }  # fmt: skip


def test_a_step_of_the_newest_trainer_has_each_stage_once() -> None:
    found = made("trainer_v1")

    assert [row[:2] for row in found["ranges"]] == [
        ["set_step", None],
        ["step", "train_step"],
        ["gen", "actor_generate"],
        ["reward", "reward"],
        ["old_log_prob", "actor_compute_log_prob"],
        ["ref", "reference_compute_log_prob"],
        ["values", "critic_compute_values"],
        ["adv", "compute_advantage"],
        ["update_critic", "critic_update"],
        ["update_actor", "actor_update"],
    ]
    assert {row[2] for row in found["ranges"]} == {STEP}
    assert set(found["timing"]) == {row[0] for row in found["ranges"]} - {"set_step"}
    assert set(found["waits"]) == set(found["timing"]) - {"step", "reward", "adv"}


def test_interleaved_agent_loops_belong_to_the_stage_and_step_of_their_batch() -> None:
    found = made("agent_loops")

    assert found["ranges"] == [
        ["generate_sequences", "actor_generate", STEP, "rollout", False, True],
        *[["agent_loop", "actor_generate", STEP, "rollout", False, True]] * 3,
    ]


def test_what_a_server_generates_next_belongs_to_the_step_after_its_weights() -> None:
    """The request fails here, for want of an engine: its range is ended all the same."""
    found = made("server")

    assert found["ranges"] == [
        ["set_global_steps", None, STEP, "rollout", False, True],
        ["trtllm_generate", "actor_generate", STEP + 1, "rollout", True, True],
    ]


@pytest.mark.parametrize("version", soak.rounds(LEGACY, []))
def test_a_worker_that_generates_itself_knows_the_step_from_its_prompts(version: str) -> None:
    found = made("legacy_generate", version)

    assert found["ranges"][0] == ["rollout_generate", "actor_generate", STEP, "rollout", True, False]


@pytest.mark.parametrize("version", [*soak.rounds([v for v in OLDER_VERL if v > "0.7.0"], ()), INSTALLED_VERL])
def test_with_lora_the_pass_of_the_actor_without_its_adapter_is_the_references(version: str) -> None:
    found = made("lora", version)

    assert [(row[0], row[1], row[3]) for row in found["ranges"]] == [
        ("actor_compute_log_prob", "actor_compute_log_prob", "actor"),
        ("infer_batch", "actor_compute_log_prob", "actor"),
        ("engine", "actor_compute_log_prob", None),
        ("actor_compute_log_prob", "actor_compute_log_prob", "actor"),
        ("infer_batch", "actor_compute_log_prob", "actor"),
        ("ref_compute_log_prob", "reference_compute_log_prob", "reference"),
        ("engine", "reference_compute_log_prob", None),
    ]
    assert found["said"] == ["pass", "adapter off", "pass", "adapter on"]


def test_verls_own_marks_do_not_double_the_ranges_of_patched_functions() -> None:
    """In a profiled step verl marks what is patched as well; both would be in the same trace."""
    found = made("marks")

    assert [row[0] for row in found["ranges"]] == ["actor_update"]
    assert found["patched"] == ["work", "+my own", "-"]


def test_verls_own_marks_are_put_back() -> None:
    found = made("marks")

    assert found["put back"] == ["+actor_update", "work", "-"]
    assert found["ours"]
    assert found["theirs"] == ["verl.utils.profiler.mstx_profile"] * 2
