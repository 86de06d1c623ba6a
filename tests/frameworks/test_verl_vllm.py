"""verl's own main_ppo with a real vLLM as its rollout, on a CPU: all of it recorded, nothing of it different.

vLLM is of the Python that VLLM_PYTHON names, all else of the frameworks' environment: docs/internals/testing.md.
"""

from __future__ import annotations

from typing import Iterator

import pytest
from builders import main_ppo, recorded_ppo, trl_server
from builders.contracts.where import INSTALLED_VERL
from builders.main_ppo import STEPS, Kind
from builders.recorded_ppo import Ended, learned

pytestmark = trl_server.MARKS
KIND = Kind(INSTALLED_VERL, has_vllm=True)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    task = main_ppo.prepare(tmp_path_factory.mktemp("task"), "for_vllm")
    with recorded_ppo.run(KIND, task, tmp_path_factory.mktemp("vllm"), is_compared=True) as ended:
        yield ended


def test_metrics_are_the_same_to_the_last_bit_as_without_mstxkit(ended: Ended) -> None:
    assert ended.plain is not None
    recorded, plain = ([learned(step) for step in job.metrics] for job in (ended.job, ended.plain))

    assert [len(plain), min(float(step["actor/grad_norm"]) > 0.1 for step in plain)] == [STEPS, True]
    assert recorded == plain


def test_vllm_has_the_trainers_weights(ended: Ended) -> None:
    """The trainer computes in bfloat16."""
    assert max(step["training/rollout_probs_diff_max"] for step in ended.job.metrics) < 0.01


def test_each_answer_is_generated_in_its_step(ended: Ended) -> None:
    for step in range(1, STEPS + 1):
        assert ended.counts(role="agent_loop", step=step)["generate", "actor_generate"] == KIND.answers
        assert ended.counts(role="rollout", step=step)["vllm_generate", "actor_generate"] == KIND.answers


def test_vllms_worker_takes_weights_before_each_step_and_runs_the_engines_steps(ended: Ended) -> None:
    counts = ended.counts(role="rollout")

    assert counts["update_weights_from_ipc", "weight_sync"] == STEPS + 1
    assert counts["Worker.sample_tokens", "actor_generate"] >= STEPS * KIND.answers


def test_the_trainers_steps_are_those_of_any_main_ppo(ended: Ended) -> None:
    for step in range(1, STEPS + 1):
        counts = ended.counts(role="actor", step=step)

        assert counts["actor_update", "actor_update"] == counts["critic_update", "critic_update"] == 1
        assert counts["optimizer_step", "actor_update"] == KIND.mini_batches


def test_the_request_recorded_one_actor_update(ended: Ended) -> None:
    assert ended.progress.is_done, str(ended.progress)
    assert [session["step"] for session, _ in ended.sessions()] == [2]


def test_nobody_is_said_to_have_been_killed_as_ray_ends_the_job(ended: Ended) -> None:
    """vLLM's engine and its worker are killed as the actor is gone that has started them."""
    assert {process["state"] for process in ended.processes} <= {"ended", "left"}
    assert not [*ended.job.run.glob("incidents/*/incident.txt")]


def test_nothing_is_lost_to_a_fault(ended: Ended) -> None:
    assert sum(process["faults"] + process["dropped"] for process in ended.processes) == 0
    assert not [row["name"] for row in ended.ranges if row["error"]]
