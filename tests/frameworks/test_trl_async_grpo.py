"""trl's AsyncGRPO with a real server of vLLM on a CPU, all recorded into one run: it learns the same as without.

By the Python that VLLM_PYTHON names, which has vLLM, trl and mstxkit: docs/internals/testing.md.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from builders import trl_server
from builders.trl_server import STEPS, Training

from mstxkit import open_run

pytestmark = trl_server.MARKS
# Metrics with this in their names say how long something took; what is of the process that generates comes when it may.
MEASURED = ("time", "per_second", "perf/", "queue", "rollout/", "completions/", "env/")
# Of the server's weights, one before the first step. Of answers there is one step more, too: of the last look ahead.
UPDATES, ANSWERS = STEPS + 1, 8 * (STEPS + 1)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    return trl_server.train_twice(tmp_path_factory.mktemp("async_grpo"), "sums_async_grpo.py")


@pytest.fixture(scope="module")
def rows(trainings: dict[str, Training]) -> list[dict[str, Any]]:
    return trainings["recorded"].ranges()


def test_it_learns_the_same_to_the_last_bit_as_without_mstxkit(trainings: dict[str, Training]) -> None:
    trl_server.check_learned_alike(trainings, MEASURED)


def test_the_server_has_the_trainers_weights(trainings: dict[str, Training]) -> None:
    for training in trainings.values():
        sure = training.logged[-1]

        assert sure["server"] == pytest.approx(sure["trained"], abs=1e-4)
        assert abs(sure["trained"] - sure["untrained"]) > 0.01


def test_each_update_has_its_parts_once_in_their_stages(rows: list[dict[str, Any]]) -> None:
    """What trl waits for answers in is no stage."""
    expected = {
        ("AsyncGRPOTrainer.get_batch_samples", None), ("AsyncGRPOTrainer.training_step", "train_step"),
        ("AsyncGRPOTrainer.compute_loss", "actor_update"), ("backward", "actor_update"),
        ("clip_grad_norm", "actor_update"), ("optimizer_step", "actor_update"),
    }  # fmt: skip
    trl_server.check_parts_once(rows, expected)


def test_the_server_takes_weights_of_each_update_and_generates_between(rows: list[dict[str, Any]]) -> None:
    counts = Counter((row["name"], row["stage"]) for row in rows if row["role"] == "rollout")

    for part in ("start_weight_update", "update_weights", "finish_weight_update"):
        assert counts[f"Worker.{part}", "weight_sync"] == UPDATES
    assert counts["Worker.sample_tokens", "actor_generate"] >= ANSWERS


def test_the_process_that_generates_is_in_the_run(trainings: dict[str, Training]) -> None:
    labels = open_run(trainings["recorded"].run).processes()["label"].to_list()

    assert sum(label.startswith("grpo-rollout-worker-child") for label in labels) == 1


def test_the_update_after_that_in_which_it_was_asked_for_is_recorded_whole(trainings: dict[str, Training]) -> None:
    parts = ["AsyncGRPOTrainer.compute_loss", "backward", "clip_grad_norm", "optimizer_step"]

    trl_server.check_asked_update(trainings["recorded"], parts)


def test_nothing_is_lost_to_a_fault(trainings: dict[str, Training], rows: list[dict[str, Any]]) -> None:
    trl_server.check_no_fault(trainings["recorded"], rows)
