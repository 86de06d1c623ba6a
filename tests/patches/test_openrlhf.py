"""OpenRLHF's targets against what its recorded version holds, and what its driver and its models record."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from builders.contracts.installed import instance, modified_class
from builders.contracts.installing import Install, install, written  # noqa: F401
from builders.recorded_surfaces import call, surface
from builders.watched_pieces import watched

import mstxkit
from mstxkit import stages
from mstxkit.patches.openrlhf import PATCH
from mstxkit.testing import captured

NAME, VERSION = "openrlhf", "0.11.2"


def test_an_update_has_its_stages() -> None:
    assert {target.stage for target in PATCH.targets} - {None} == stages.BY_KEY.keys() - {
        "actor_image_embeds", "compute_kl", "dynamic_sampling", "load_batch"
    }  # fmt: skip


@pytest.fixture
def loaded(install: Install) -> dict[str, Any]:  # noqa: F811
    """A stand-in under a real Ray, patched: its modules by name."""
    install(surface(NAME, VERSION)).load()
    mstxkit.autopatch(NAME)
    return sys.modules


def of_an_actor(cls: Any) -> Any:
    """What Ray makes an actor of, in this process and without its `__init__`."""
    return instance(modified_class(cls) or object)


@pytest.mark.frameworks
@pytest.mark.parametrize("finished", [0, 40])
def test_a_rollout_and_its_update_have_the_number_that_is_logged_after_it(
    loaded: dict[str, Any], finished: int
) -> None:
    trainer = of_an_actor(loaded["openrlhf.trainer.ppo_trainer"].PPOTrainer)
    samples = instance(loaded["openrlhf.trainer.ppo_utils.samples_generator"].SamplesGenerator)

    with captured() as seen:
        trainer.restore_best_checkpoint_state({"global_step": finished})
        for step in (finished, finished + 1):
            samples.generate_samples()
            trainer.train_step(["a sample"], step)
            trainer.broadcast_to_vllm()
            trainer.save_logs_and_checkpoints(step + 1)
        trainer.evaluate(finished + 2)

    of_each = ["actor_generate", "train_step", "weight_sync"]
    found = [(one.stage, one.step) for one in seen.ranges if one.stage]
    assert found == [
        *((stage, finished + number) for number in (1, 2) for stage in of_each), ("evaluate", finished + 2)
    ]  # fmt: skip


@pytest.mark.frameworks
def test_who_holds_a_model_goes_through_its_micro_batches_in_one_stage(loaded: dict[str, Any]) -> None:
    """`execute_batch` calls `forward` for each; what it does before the first belongs to none."""
    actor = of_an_actor(loaded["openrlhf.trainer.ray.ppo_actor"].PolicyModelActor)
    trainer = instance(loaded["openrlhf.trainer.ray.ppo_actor"].ActorPPOTrainer)

    with watched() as seen:
        for _ in range(2):
            call(actor.forward)
            call(actor.forward)
            call(actor.execute_batch, method_name="append")
            seen.append("next")
        with mstxkit.stage("actor_update"):
            call(trainer.training_step)

    log_probs = ["+actor_compute_log_prob", *["+micro_batch", "-micro_batch"] * 2, "-actor_compute_log_prob", "next"]
    assert seen == [*log_probs * 2, "+actor_update", "+micro_batch", "-micro_batch", "-actor_update"]


@pytest.mark.frameworks
def test_a_reference_and_a_reward_model_have_their_stages_and_roles(loaded: dict[str, Any]) -> None:
    launcher = loaded["openrlhf.trainer.ray.launcher"]

    with captured() as seen:
        for name in ("ReferenceModelActor", "RewardModelActor"):
            call(of_an_actor(getattr(launcher, name)).forward)

    assert [(one.stage, (one.attributes or {}).get("role")) for one in seen.ranges] == [
        ("reference_compute_log_prob", "reference"), ("reward", "reward")
    ]  # fmt: skip
