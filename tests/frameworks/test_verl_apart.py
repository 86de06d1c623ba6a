"""verl's trainers whose rollout is apart from the training, under `mstxkit run`: one-step-off, fully async, v1's.

GRPO on two ranks, and a rollout on a device of its own, to which weights go over gloo. While each job is held in what
it generates for its second step, a user asks for a profile of its next actor_update.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Iterator

import pytest
from builders import main_ppo, recorded_ppo, soak
from builders.contracts.where import INSTALLED_VERL
from builders.main_ppo import STEPS, Kind
from builders.recorded_ppo import Ended, learned

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not soak.is_soaking(), reason="each takes three minutes of a core"),
]

KINDS = [Kind(INSTALLED_VERL, "grpo", 2, trainer) for trainer in main_ppo.APART]
# v1's takes whatever answers there are when it asks, of whichever weights.
COMPARED = KINDS[:2]
# The driver's blocks in each step, by verl's own names, and their stages; what each trainer has besides.
BLOCKS = {
    "step": "train_step", "gen": "actor_generate", "ref": "reference_compute_log_prob", "adv": "compute_advantage",
    "update_actor": "actor_update",
}  # fmt: skip
MORE = {
    "one_step_off": {"reward": "reward", "sync_rollout_weights": "weight_sync", "update_weights": "weight_sync"},
    "fully_async": {"reward": "reward", "timing_s/param_sync": "weight_sync"},
    "separate_async": {"old_log_prob": "actor_compute_log_prob", "update_weights": "weight_sync"},
}
# Blocks of v1's that are once in a step, whatever its updates.
WHOLE = {"step", "update_weights"}
# What generates an answer, or a batch of them, and in which steps: one ahead, and a rollouter of its own is told none.
GENERATES_IN = {"one_step_off": {1, 2}, "fully_async": {None}, "separate_async": {1, 2, 3}}
GENERATES = {
    "one_step_off": "generate_sequences",
    "separate_async": "run_prompt",
    "fully_async": "process_single_sample",
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return main_ppo.prepare(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module", params=KINDS, ids=Kind.__str__)
def ended(request: pytest.FixtureRequest, task: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    folder = tmp_path_factory.mktemp("apart")
    with recorded_ppo.run(request.param, task, folder, is_compared=request.param in COMPARED) as ended:
        yield ended


def test_it_runs_to_its_last_step_and_says_nothing_of_an_error(ended: Ended) -> None:
    output = ended.job.output

    assert "Traceback" not in output and "mstxkit WARNING" not in output
    assert {row["step"] for row in ended.rows(name="update_actor")} == {*range(1, STEPS + 1)}


@pytest.mark.parametrize("ended", COMPARED, ids=Kind.__str__, indirect=True)
def test_what_is_learned_is_the_same_to_the_last_bit_as_without_mstxkit(ended: Ended) -> None:
    """fully_async_policy 0.9.1 writes what a step has learned with the next one's weights: of its last one nothing."""
    assert ended.plain is not None
    recorded, plain = ([learned(step) for step in job.metrics] for job in (ended.job, ended.plain))

    norms = [float(step["actor/grad_norm"]) for step in plain if "actor/grad_norm" in step]
    assert len(norms) == STEPS - (ended.kind.trainer == "fully_async") and min(norms) > 0.1
    assert max(map(len, plain)) > 35
    assert recorded == plain


def test_the_driver_has_its_blocks_in_each_step_in_their_stages(ended: Ended) -> None:
    expected = BLOCKS | MORE[ended.kind.trainer]
    for step in range(1, STEPS + 1):
        counts = ended.counts(role="trainer", step=step)

        assert {name: counts[name, stage] for name, stage in expected.items()} == {
            name: 1 if name in WHOLE else ended.kind.updates for name in expected
        }


def test_each_rank_has_each_call_of_each_step_of_the_driver_in_its_stage_and_role(ended: Ended) -> None:
    passes, updates = ended.kind.answers // ended.kind.ranks // main_ppo.MICRO_BATCH, ended.kind.updates
    reference = "reference_compute_log_prob"
    expected = {
        ("ref_compute_log_prob", reference, "reference"): updates, ("forward_step", reference, "reference"): passes,
        ("actor_update", "actor_update", "actor"): updates, ("forward_step", "actor_update", "actor"): passes,
        ("optimizer_step", "actor_update", "actor"): ended.kind.mini_batches,
    }  # fmt: skip
    for rank in range(ended.kind.ranks):
        for step in range(1, STEPS + 1):
            assert (
                ended.counts_by_role({name for name, _, _ in expected}, role="actor", rank=rank, step=step) == expected
            )


def test_weights_go_out_and_come_in_once_in_each_step_and_before_the_first(ended: Ended) -> None:
    sent = [ended.rows(name="update_weights", role="actor", rank=rank) for rank in range(ended.kind.ranks)]
    for rows in (*sent, ended.rows(name="update_weights", role="rollout")):
        assert [(row["step"], row["stage"]) for row in rows] == [(step, "weight_sync") for step in range(STEPS + 1)]


def test_each_answer_is_generated_and_rewarded_in_its_stage(ended: Ended) -> None:
    """v1 generates one batch ahead of the training."""
    answers = ended.kind.answers * (STEPS + (ended.kind.trainer == "separate_async"))
    name = GENERATES[ended.kind.trainer]
    generating = ended.rows(name=name)

    assert ended.counts(role="reward")["compute_score", "reward"] == answers
    assert ended.counts(role="agent_loop")["generate", "actor_generate"] == answers
    assert len(generating) == (STEPS if name == "generate_sequences" else answers)
    assert {row["stage"] for row in generating} == {"actor_generate"}
    assert {row["step"] for row in ended.rows(name="generate", role="agent_loop")} == GENERATES_IN[ended.kind.trainer]


def test_each_process_has_its_rank_and_role(ended: Ended) -> None:
    ranks = Counter((row["rank"], row["role"], row["world_size"]) for row in ended.processes if row["rank"] is not None)
    others = Counter(row["role"] for row in ended.processes if row["rank"] is None)
    is_fully = ended.kind.trainer == "fully_async"

    assert ranks == {(0, "actor", 2): 1, (1, "actor", 2): 1, (0, "rollout", 1): 1}
    assert (others["trainer"], others["rollouter"], others["agent_loop"]) == (1 + is_fully, int(is_fully), 1)


def test_nothing_is_lost_to_a_fault(ended: Ended) -> None:
    """fully_async_policy ends by an exception of its own in its last block, which waits for answers in vain."""
    stopped = {"step", "gen"} if ended.kind.trainer == "fully_async" else set()

    assert [(row["faults"], row["dropped"]) for row in ended.processes] == [(0, 0)] * len(ended.processes)
    assert {row["name"] for row in ended.ranges if row["error"] or row["open"]} == stopped
    assert not ended.run.damage


def test_the_profile_that_was_asked_for_is_of_the_drivers_second_step(ended: Ended) -> None:
    sessions = ended.sessions()

    assert ended.progress.is_done, str(ended.progress)
    assert [session["rank"] for session, _ in sessions] == [0, 1]
    for session, names in sessions:
        assert (session["state"], session["step"], session["problems"]) == ("recorded", 2, [])
        updates = ended.kind.mini_batches // ended.kind.updates
        assert (names["actor_update"], names["optimizer_step"]) == (1, updates)


def test_what_is_patched_for_it_is_in_place_and_called(ended: Ended) -> None:
    called = recorded_ppo.calls(ended.job.run)
    failed = [row for row in ended.run.patches().to_dicts() if row["state"] == "failed"]

    assert called.keys() >= recorded_ppo.CALLED[ended.kind.trainer]
    assert called["ActorRolloutRefWorker.update_actor"] >= ended.kind.updates * ended.kind.ranks
    assert not failed
