"""MindSpeed-RL's own `cli/train_grpo.py` under `mstxkit run`: recorded, and nothing of it differs.

`RayGRPOTrainer.fit` trains ten steps on two ranks with a rule's reward, and the same again without mstxkit. While it
stands still in its second step, a user gives the command of the quick start: one rank's next actor_update.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Iterator

import pytest
from builders import mindspeed_rl_job, quickstart, soak
from builders.mindspeed_rl_job import HELD_STEP, MINI_BATCHES, RANKS, STEPS, Job
from builders.real_job import listening

from mstxkit import open_run
from mstxkit.testing.cann_run import read_calls

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(2700),
    pytest.mark.skipif(not soak.is_soaking(), reason="a training, twice: three minutes"),
    pytest.mark.skipif(not mindspeed_rl_job.ARE_HERE, reason=mindspeed_rl_job.MISSING),
]

_WORKER, _SHARDING = "ActorHybridWorkerBase", "MegatronShardingManager"
_DISPATCH, _COLLECT = "BaseWorker.dispatch_transfer_dock_data", "BaseWorker.collect_transfer_dock_data"
_BATCH = "BaseTrainingEngine._forward_backward_batch"
# Of a rank in each step: how often each call is in its stage.
OF_A_RANK = {
    "weight_sync": {
        f"{_SHARDING}.enter_infer_mode": 1, f"{_SHARDING}.exit_infer_mode": 1,
        "VLLMInferEngine.sync_model_weights": 1, "MegatronStyleVllmWeightContainer.get_infer_params": 1,
    },
    "actor_generate": {
        f"{_WORKER}.generate_sequences": 1, "VLLMInferEngine.generate_sequences": 1, _DISPATCH: 1, _COLLECT: 1,
    },
    "reference_compute_log_prob": {
        "IntegratedWorker.compute_ref_log_prob": 1, "ReferenceWorkerBase.compute_ref_log_prob": 1,
        "Reference.compute_log_prob": 1, _BATCH: 1, "forward_step": 2, _DISPATCH: 1, _COLLECT: 1,
    },
    "actor_compute_log_prob": {
        f"{_WORKER}.compute_log_prob": 1, "Actor.compute_log_prob": 1, _BATCH: 1, "forward_step": 2,
        f"{_SHARDING}.enter_forward_mode": 1, f"{_SHARDING}.exit_forward_mode": 1, _DISPATCH: 1, _COLLECT: 1,
    },
    "actor_update": {
        f"{_WORKER}.update": 1, "Actor.update_actor": 1, _BATCH: MINI_BATCHES, "forward_step": MINI_BATCHES,
        "ChainedOptimizer.step": MINI_BATCHES, f"{_SHARDING}.enter_train_mode": 1, f"{_SHARDING}.exit_train_mode": 1,
        _DISPATCH: 1,
    },
}  # fmt: skip
# Of the trainer in each step.
OF_THE_TRAINER = {
    "RayActorGroup.generate_sequences": "actor_generate", "RayGRPOTrainer.compute_advantage": "compute_advantage",
    "RayActorGroup.compute_ref_log_prob": "reference_compute_log_prob",
    "RayActorGroup.compute_log_prob": "actor_compute_log_prob", "RayActorGroup.update": "actor_update",
}  # fmt: skip
# Of processes that know no step, in all of them together.
OF_OTHERS = {
    "rule_reward": {("RuleReward.compute_rm_score", "reward"), ("compute_verifier_score", "reward")},
    "advantage": {("compute_advantage", "compute_advantage")},
    "transfer_dock": {("GRPOTransferDock.clear", None)},
}


class Ended:
    """A job that was recorded to its end, the same without mstxkit, and what the request said."""

    def __init__(self, job: Job, plain: Job, asked: tuple[int, str]) -> None:
        self.job, self.plain, (self.code, self.said) = job, plain, asked
        self.run = open_run(job.run)
        self.processes = self.run.processes().to_dicts()
        self.ranges = self.run.ranges().sort("start_ns").to_dicts()
        self.sessions = [json.loads(file.read_text()) for file in sorted(job.run.rglob("session.json"))]

    def counts(self, **of: Any) -> Counter[Any]:
        """How often each (name, stage) was recorded, among ranges with these values."""
        found = (row for row in self.ranges if all(row[column] == of[column] for column in of))
        return Counter((row["name"], row["stage"]) for row in found)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    folder = tmp_path_factory.mktemp("rl")
    (folder / "task").mkdir()
    task = mindspeed_rl_job.prepare(folder / "task")
    jobs = [Job(task, folder / "plain", recorded=False)]
    try:
        assert jobs[0].end() == 0, jobs[0].output[-4000:]
        jobs.append(Job(task, folder / "recorded"))
        jobs[1].until(lambda: listening(jobs[1].run, "actor_update") == {*range(RANKS)})
        asked = jobs[1].escalate()
        assert jobs[1].end() == 0, jobs[1].output[-4000:]
        yield Ended(jobs[1], jobs[0], asked)
    finally:
        for job in jobs:
            job.clear()


def test_it_learns_and_each_digit_that_it_logs_is_the_same_as_without_mstxkit(ended: Ended) -> None:
    logged = ended.plain.logged

    assert [step["iteration"] for step in logged] == [str(number + 1) for number in range(STEPS)]
    assert all(float(step["actor/grad_norm"]) > 0.1 for step in logged)
    assert len({step["actor/pg_loss"] for step in logged}) == STEPS
    scores = [float(step["grpo/score/mean"]) for step in logged]
    assert sum(scores[-3:]) > 2 * sum(scores[:3])
    assert ended.job.logged == logged


def test_each_rank_has_each_call_of_each_step_in_its_stage(ended: Ended) -> None:
    for rank in range(RANKS):
        for step in range(STEPS):
            counts = ended.counts(rank=rank, step=step, role="integrated")
            # A rank asks the dock until it has given all: once, or again where the other one has been given the last.
            asked = {stage: counts[_DISPATCH, stage] for stage, calls in OF_A_RANK.items() if _DISPATCH in calls}
            found = {
                stage: {name: counts[name, stage] if name != _DISPATCH else 1 for name in calls}
                for stage, calls in OF_A_RANK.items()
            }

            assert found == OF_A_RANK, (rank, step)
            assert min(asked.values()) >= 1, (rank, step)


def test_no_step_is_recorded_that_there_was_not(ended: Ended) -> None:
    steps = {row["step"] for row in ended.ranges if row["stage"] in OF_A_RANK}

    assert steps == {*range(STEPS)}


def test_the_trainer_has_each_of_its_stages_once_in_each_step(ended: Ended) -> None:
    for step in range(STEPS):
        counts = ended.counts(role="trainer", step=step)

        assert {name: counts[name, stage] for name, stage in OF_THE_TRAINER.items()} == dict.fromkeys(OF_THE_TRAINER, 1)


def test_rewards_advantages_and_the_dock_have_each_of_their_calls_once_for_each_step(ended: Ended) -> None:
    for role, calls in OF_OTHERS.items():
        counts = ended.counts(role=role)

        assert {call: counts[call] for call in calls} == dict.fromkeys(calls, STEPS)


def test_its_checkpoint_is_saved_in_a_stage_of_its_own(ended: Ended) -> None:
    assert ended.counts(role="integrated")[f"{_WORKER}.save_ckpt", "save_checkpoint"] == RANKS


def test_each_process_has_its_rank_and_role(ended: Ended) -> None:
    """Processes that write a checkpoint are children of a rank, and have no role."""
    rows = [(row["rank"], row["role"], row["world_size"]) for row in ended.processes if row["role"]]
    roles = Counter(role for rank, role, _ in rows if rank is None)

    assert [row for row in rows if row[0] is not None] == [(rank, "integrated", RANKS) for rank in range(RANKS)]
    assert roles == {"trainer": 1, "rule_reward": 1, "advantage": 1, "transfer_dock": 1}


def test_nothing_is_lost_to_a_fault(ended: Ended) -> None:
    assert [(row["faults"], row["dropped"]) for row in ended.processes] == [(0, 0)] * len(ended.processes)
    assert not [row for row in ended.ranges if row["error"] or row["open"]]
    assert not ended.run.damage
    assert "Traceback" not in ended.job.output and "mstxkit WARNING" not in ended.job.output


def test_what_was_asked_for_is_one_whole_update_of_its_rank(ended: Ended) -> None:
    states = {(row["rank"], row["state"]) for row in ended.run.escalations().to_dicts()}
    told = Counter(str(call.message) for call in _told(ended) if call.id)

    assert (ended.code, states) == (0, {(0, "done")}), ended.said
    assert [(one["rank"], one["state"], one["step"]) for one in ended.sessions] == [(0, "recorded", HELD_STEP + 1)]
    assert told[f"{_WORKER}.update"] == 1
    assert told["ChainedOptimizer.step"] == told[_BATCH] == MINI_BATCHES
    assert not told[f"{_WORKER}.generate_sequences"]


def _told(ended: Ended) -> list[Any]:
    """The ranges that the device heard of while a profiler ran."""
    calls = read_calls(ended.job.folder / "cann.log")
    start = next(number for number, call in enumerate(calls) if call.call == "aclprofStart")
    return [call for call in calls[start:] if call.call == "mstxRangeStartA"]


def test_what_its_quick_start_shows_are_ranges_of_those_stages(ended: Ended) -> None:
    lines = "".join(quickstart.blocks("mindspeed_rl", "text")).splitlines()
    shown = {(words[1], words[2]) for words in map(str.split, lines) if words and words[0] == "held"}

    assert len(shown) == 4
    assert shown <= ended.counts().keys()
