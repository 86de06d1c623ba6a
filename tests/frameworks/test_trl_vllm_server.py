"""trl's GRPO with a real server of vLLM on a CPU, both recorded into one run: it learns the same as without.

By the Python that VLLM_PYTHON names, which has vLLM, trl and mstxkit: docs/internals/testing.md.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from builders import trl_server
from builders.real_job import progress, sessions
from builders.trl_server import STEPS, Training

from mstxkit import open_run

pytestmark = trl_server.MARKS
# Metrics with this in their names say how long something took.
MEASURED = ("time", "per_second")


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    return trl_server.train_twice(tmp_path_factory.mktemp("grpo"), "sums_grpo.py")


@pytest.fixture(scope="module")
def rows(trainings: dict[str, Training]) -> list[dict[str, Any]]:
    return open_run(trainings["recorded"].run).ranges().sort("start_ns").to_dicts()


def test_it_learns_the_same_to_the_last_bit_as_without_mstxkit(trainings: dict[str, Training]) -> None:
    plain, recorded = (trainings[name].learned(*MEASURED) for name in ("plain", "recorded"))

    assert min(step["grad_norm"] for step in trainings["plain"].logged[:STEPS]) > 0.1
    assert recorded == plain


def test_the_server_has_the_trainers_weights(trainings: dict[str, Training]) -> None:
    for training in trainings.values():
        assert max(step["sampling/sampling_logp_difference/max"] for step in training.logged[:STEPS]) < 1e-4


def test_each_update_has_its_parts_once_in_their_stages(rows: list[dict[str, Any]]) -> None:
    expected = {
        ("VLLMGeneration.sync_weights", "weight_sync"), ("VLLMGeneration.generate", "actor_generate"),
        ("GRPOTrainer._calculate_rewards", "reward"), ("GRPOTrainer.compute_loss", "actor_update"),
        ("optimizer_step", "actor_update"), ("GRPOTrainer.training_step", "train_step"),
    }  # fmt: skip
    for step in range(STEPS):
        counts = Counter((row["name"], row["stage"]) for row in rows if (row["role"], row["step"]) == ("trainer", step))

        assert {part: counts[part] for part in expected} == dict.fromkeys(expected, 1)


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
    """Asked for in the middle of the first one. Each occurrence of the stage is a session."""
    recorded = trainings["recorded"]
    fate, found = progress(recorded.run, recorded.asked), sessions(recorded.run, "actor_update")
    parts = ["GRPOTrainer.compute_loss", "backward", "clip_grad_norm", "optimizer_step"]

    assert fate.is_done, str(fate)
    assert [[part for part in parts for _ in range(names[part])] for _, names in found] == [[part] for part in parts]
    assert {(one["rank"], one["role"], one["step"]) for one, _ in found} == {(0, "trainer", 1)}
    assert {(one["state"], one["backend"], *one["problems"]) for one, _ in found} == {("recorded", "torch")}


def test_nothing_is_lost_to_a_fault(trainings: dict[str, Training], rows: list[dict[str, Any]]) -> None:
    processes = open_run(trainings["recorded"].run).processes()

    assert processes["faults"].sum() == processes["dropped"].sum() == 0
    assert not [row["name"] for row in rows if row["error"]]
