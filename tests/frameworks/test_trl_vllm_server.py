"""trl's GRPO with a real server of vLLM on a CPU, both recorded into one run: it learns the same as without.

By the Python that VLLM_PYTHON names, which has vLLM, trl and mstxkit: docs/internals/testing.md.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from builders import trl_server
from builders.trl_server import STEPS, Training

pytestmark = trl_server.MARKS
# Metrics with this in their names say how long something took.
MEASURED = ("time", "per_second")


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    return trl_server.train_twice(tmp_path_factory.mktemp("grpo"), "sums_grpo.py")


@pytest.fixture(scope="module")
def rows(trainings: dict[str, Training]) -> list[dict[str, Any]]:
    return trainings["recorded"].ranges()


def test_it_learns_the_same_to_the_last_bit_as_without_mstxkit(trainings: dict[str, Training]) -> None:
    trl_server.check_learned_alike(trainings, MEASURED)


def test_the_server_has_the_trainers_weights(trainings: dict[str, Training]) -> None:
    for training in trainings.values():
        assert max(step["sampling/sampling_logp_difference/max"] for step in training.logged[:STEPS]) < 1e-4


def test_each_update_has_its_parts_once_in_their_stages(rows: list[dict[str, Any]]) -> None:
    expected = {
        ("VLLMGeneration.sync_weights", "weight_sync"), ("VLLMGeneration.generate", "actor_generate"),
        ("GRPOTrainer._calculate_rewards", "reward"), ("GRPOTrainer.compute_loss", "actor_update"),
        ("optimizer_step", "actor_update"), ("GRPOTrainer.training_step", "train_step"),
    }  # fmt: skip
    trl_server.check_parts_once(rows, expected)


def test_the_server_takes_weights_of_each_update_and_generates_between(rows: list[dict[str, Any]]) -> None:
    names = [(row["name"].partition(".")[2], row["stage"]) for row in rows if row["role"] == "rollout"]
    counts = Counter(names)

    for part in ("start_weight_update", "update_weights", "finish_weight_update"):
        assert counts[part, "weight_sync"] == STEPS
    assert counts["sample_tokens", "actor_generate"] >= STEPS
    assert (
        sum(row["name"] == "Scheduler.update_from_output" for row in rows) >= counts["sample_tokens", "actor_generate"]
    )


def test_the_update_after_that_in_which_it_was_asked_for_is_recorded_whole(trainings: dict[str, Training]) -> None:
    parts = ["GRPOTrainer.compute_loss", "backward", "clip_grad_norm", "optimizer_step"]

    trl_server.check_asked_update(trainings["recorded"], parts)


def test_nothing_is_lost_to_a_fault(trainings: dict[str, Training], rows: list[dict[str, Any]]) -> None:
    trl_server.check_no_fault(trainings["recorded"], rows)
