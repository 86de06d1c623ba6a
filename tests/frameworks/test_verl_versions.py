"""The real verl, 0.6.1 to 0.9.1: all that imports on a CPU is patched before or after its import, and put back.

What does not import there is left out for the reason in `NEEDS`; the stand-ins in tests/contracts hold it.
"""

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

from mstxkit.patches.verl import PATCH
from mstxkit.patching.report import REASONS, Reason

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

PROBE = Path(__file__).resolve().parents[1] / "builders/frameworks/verl_probe.py"
# Packages that these modules need and that no CPU has, or that would bring in one: part of the error -> modules.
NEEDS = {
    "torch_npu": ("verl.utils.profiler.mstx_profile",),
    "nvtx": ("verl.utils.profiler.nvtx_profile",),
    "megatron": (
        "megatron.core.pipeline_parallel.schedules",
        "verl.workers.megatron_workers",
        "verl.workers.actor.megatron_actor",
        "verl.workers.critic.megatron_critic",
        "verl.workers.engine.megatron.transformer_impl",
    ),
    "veomni": ("verl.workers.engine.veomni.transformer_impl",),
    "torchtitan": ("verl.workers.engine.torchtitan.transformer_impl",),
    "nemo_automodel": ("verl.workers.engine.automodel.transformer_impl",),
    "vllm": ("verl.workers.rollout.vllm_rollout.vllm_async_server", "verl.workers.rollout.vllm_rollout.utils"),
    "sglang": ("verl.workers.rollout.sglang_rollout.async_sglang_server",),
    "qwen_vl_utils": ("verl.trainer.fsdp_sft_trainer",),
}


@functools.cache
def probed(version: str, order: str) -> dict[str, Any]:
    """What the probe says of one version."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    environment.update(PYTHONPATH=os.pathsep.join(verl_paths(version)), PYTHONWARNINGS="ignore", MSTXKIT_AUTOPATCH="")
    done = subprocess.run(
        [sys.executable, str(PROBE), order], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("PROBE "))
    found: dict[str, Any] = json.loads(line[len("PROBE ") :])
    return found


# One a day, patched before or after the import; all of them both ways in soak.
VERSIONS = [*OLDER_VERL, INSTALLED_VERL]
PROBES = soak.sample([(order, version) for order in ("before", "after") for version in VERSIONS], 1)
# What must be applied in a version, so that a probe that imports less and less does not pass unseen.
CORE = {
    "0.6.1": {"verl.workers.fsdp_workers:ActorRolloutRefWorker.update_actor"},
    "0.7.1": {"verl.workers.engine_workers:ActorRolloutRefWorker.update_weights"},
    "0.8.0": {"verl.trainer.main_ppo_sync:AgentLoopWorkerTQ._run_prompt"},
    "0.9.1": {
        "verl.workers.engine_workers:TrainingWorker.train_batch",
        "verl.workers.engine_workers:TrainingWorker.infer_batch",
        "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ._run_prompt",
        "verl.utils.skip.skip_manager:SkipManager.set_step",
        "verl.experimental.reward_loop.reward_loop:RewardLoopWorker.compute_score",
    },
}


@pytest.fixture(params=PROBES, ids="-".join)
def probe(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A version patched before or after its import."""
    order, version = request.param
    return probed(version, order)


def test_what_does_not_import_lacks_a_package_that_no_cpu_has(probe: dict[str, Any]) -> None:
    absent = {name: error for name, error in probe["missing"].items() if "No module named 'verl" not in error}
    explained = {name for package, names in NEEDS.items() for name in names if package in absent.get(name, "")}

    assert set(absent) == explained


def test_applied_are_all_targets_that_the_version_holds(probe: dict[str, Any]) -> None:
    applied = {path for path, (state, _, _) in probe["states"].items() if state == "applied"}
    superseded = {path for path, (_, reason, _) in probe["states"].items() if reason == Reason.SUPERSEDED}

    assert applied == set(probe["held"]) - superseded
    assert len(applied) > 30


def test_every_target_has_a_state_and_a_reason(probe: dict[str, Any]) -> None:
    reasons = {reason for state, reason, _ in probe["states"].values() if state != "applied"}

    assert len(probe["states"]) == len(PATCH.targets)
    assert reasons <= set(REASONS)
    assert not [path for path, (state, _, _) in probe["states"].items() if state == "failed"]


@pytest.mark.parametrize("version", soak.rounds(VERSIONS, []))
def test_it_is_the_same_before_and_after_import(version: str) -> None:
    before, after = probed(version, "before"), probed(version, "after")

    assert {p: s[0] for p, s in before["states"].items()} == {p: s[0] for p, s in after["states"].items()}
    assert before["patched"] == after["patched"]


def test_names_signatures_coroutines_and_dispatch_marks_stay(probe: dict[str, Any]) -> None:
    assert probe["changed"] == []


def test_undo_leaves_no_wrapper_and_puts_the_very_objects_back(probe: dict[str, Any]) -> None:
    assert probe["patched"]
    assert probe["left"] == []
    assert probe["not put back"] == []


@pytest.mark.parametrize(("order", "version"), [pair for pair in PROBES if pair[1] in CORE])
def test_the_core_of_each_version_is_among_what_is_applied(order: str, version: str) -> None:
    states = probed(version, order)["states"]

    assert {states[path][0] for path in CORE[version]} == {"applied"}
