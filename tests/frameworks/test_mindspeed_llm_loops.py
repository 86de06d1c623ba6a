"""MindSpeed-LLM's own `pretrain_gpt.py` and `train_fsdp2.py` under `mstxkit run`: recorded, and nothing of it differs.

Each trains eight updates on two ranks, and the same again without mstxkit. While it stands still at the end of an
update, a user asks for one whole step, then for the second micro-batch of one; a configuration asks for two more steps.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Iterator

import pytest
from builders import mindspeed_llm, quickstart, soak
from builders.mindspeed_llm import HOLDS, RANKS, STEPS, Job, Kind
from builders.real_job import listening

from mstxkit import open_run
from mstxkit.testing.cann_run import read_calls

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not soak.is_soaking(), reason="three trainings, each twice: four minutes"),
    pytest.mark.skipif(not mindspeed_llm.ARE_HERE, reason=mindspeed_llm.MISSING),
]

KINDS = [Kind("mcore"), Kind("mcore", pipeline=2), Kind("fsdp2")]
# On a pipeline no stretch of time is one micro-batch.
SAMPLED = [kind for kind in KINDS if kind.pipeline == 1]
# What mstxkit records of rank 0 though the program's own profiler is off: the sixth and the seventh step, with mstx.
CONFIGURED = {
    "mcore": (
        "train.sh",
        "torchrun pretrain_gpt.py --profile --profile-step-start 6 --profile-step-end 8 --profile-level level_none\n",
    ),
    "fsdp2": (
        "train.yaml",
        "training: {profile: true, profile_step_start: 5, profile_step_end: 7, profile_ranks: [0],"
        " profile_level: level_none}\n",
    ),
}
SCHEDULES = {1: "forward_backward_no_pipelining", 2: "forward_backward_pipelining_without_interleaving"}
OPTIMIZER = {"mcore": "ChainedOptimizer.step_with_ready_grads", "fsdp2": "AdamW.step"}
MICRO_BATCH = {"mcore": "forward_step", "fsdp2": "Trainer.training_step"}


class Ended:
    """A job that was recorded to its end, the same without mstxkit, and what was asked of it."""

    def __init__(self, job: Job, plain: Job, asked: list[str]) -> None:
        self.job, self.kind, self.plain, self.asked = job, job.kind, plain, asked
        self.run = open_run(job.run)
        self.processes = self.run.processes().to_dicts()
        self.ranges = self.run.ranges().sort("start_ns").to_dicts()
        self.requests = self.run.escalations().to_dicts()
        self.sessions = [json.loads(file.read_text()) for file in sorted(job.run.rglob("session.json"))]
        self.calls = read_calls(job.folder / "cann.log")

    def counts(self, **of: Any) -> Counter[str]:
        """How often each name was recorded, among ranges with these values."""
        return Counter(row["name"] for row in self.ranges if all(row[column] == of[column] for column in of))

    def told(self) -> list[Counter[str]]:
        """The ranges that the device heard of in each session, in order."""
        sessions: list[Counter[str]] = []
        for call in self.calls:
            if call.call == "aclprofStart":
                sessions.append(Counter())
            elif call.call == "mstxRangeStartA" and call.id:
                sessions[-1][str(call.message)] += 1
        return sessions

    @property
    def pieces(self) -> dict[str, int]:
        """What a rank does in each step: the calls of a micro-batch, and what there is once."""
        once = [OPTIMIZER[self.kind.entry]]
        once += ["train_step", SCHEDULES[self.kind.pipeline]] if self.kind.entry == "mcore" else ["clip_grad_norm"]
        return {MICRO_BATCH[self.kind.entry]: self.kind.micro_batches, **dict.fromkeys(once, 1)}


@pytest.fixture(scope="module", params=KINDS, ids=Kind.__str__)
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    kind, folder = request.param, tmp_path_factory.mktemp("llm")
    name, text = CONFIGURED[kind.entry]
    (folder / name).write_text(text)
    jobs = [Job(kind, folder / "plain", recorded=False)]
    try:
        assert jobs[0].end() == 0, jobs[0].output[-4000:]
        jobs.append(Job(kind, folder / "recorded", config=folder / name))
        asked = [escalated(jobs[1], hold, **of) for hold, of in zip(HOLDS, questions(kind))]
        assert jobs[1].end() == 0, jobs[1].output[-4000:]
        yield Ended(jobs[1], jobs[0], asked)
    finally:
        for job in jobs:
            job.clear()


def questions(kind: Kind) -> list[dict[str, Any]]:
    """Those of its quick start."""
    sample = {"per": "micro_batch", "skip": 1, "record": 1}
    return [{"steps": 1}, {"sample": sample} if kind in SAMPLED else {"occurrences": 1}]


def escalated(job: Job, hold: int, **of: Any) -> str:
    """Ask rank 0 while the job stands still at the end of that update, and let it go on; the request's id."""
    job.until((job.folder / f"held{hold}").exists)
    job.until(lambda: listening(job.run, "train_step") == {*range(RANKS)})
    id = job.ask(stage="train_step", ranks=[0], **of)
    job.go_after(hold)
    return id


def test_losses_and_gradients_are_the_same_to_the_last_digit_as_without_mstxkit(ended: Ended) -> None:
    assert [int(number) for number, _, _ in ended.plain.logged] == [*range(1, STEPS + 1)]
    assert len({loss for _, loss, _ in ended.plain.logged}) == STEPS, "it learns nothing"
    assert "0.000" not in {norm for _, _, norm in ended.plain.logged}
    assert ended.job.logged == ended.plain.logged


def test_each_rank_has_each_call_of_each_step(ended: Ended) -> None:
    for rank in range(RANKS):
        for step in range(ended.kind.first_step, ended.kind.first_step + STEPS):
            counts = ended.counts(rank=rank, step=step)

            assert {name: counts[name] for name in ended.pieces} == ended.pieces, (rank, step)


def test_no_step_is_recorded_that_there_was_not(ended: Ended) -> None:
    steps = {row["step"] for row in ended.ranges if row["stage"] == "train_step"}

    assert steps == {*range(ended.kind.first_step, ended.kind.first_step + STEPS)}


def test_each_process_has_its_rank_and_role(ended: Ended) -> None:
    ranks = [(row["rank"], row["role"], row["world_size"]) for row in ended.processes if row["rank"] is not None]

    assert sorted(ranks) == [(rank, "trainer", RANKS) for rank in range(RANKS)]


def test_nothing_is_lost_to_a_fault(ended: Ended) -> None:
    assert [(row["faults"], row["dropped"]) for row in ended.processes] == [(0, 0)] * len(ended.processes)
    assert not [row for row in ended.ranges if row["error"] or row["open"]]
    assert not ended.run.damage
    assert "mstxkit WARNING" not in ended.job.output


def test_what_was_asked_for_is_done(ended: Ended) -> None:
    states = {row["request"]: (row["rank"], row["state"]) for row in ended.requests}

    assert [states[id] for id in ended.asked] == [(0, "done")] * len(HOLDS)
    assert {*states.values()} == {(0, "done")}
    assert len(states) == len(HOLDS) + 1, "the configuration's own"
    assert {(one["rank"], one["state"], one["backend"]) for one in ended.sessions} == {(0, "recorded", "torch_npu")}


def test_the_step_that_was_asked_for_in_the_middle_of_another_is_whole_and_one_session(ended: Ended) -> None:
    """Asked for in the second update: the third is recorded, with all of its micro-batches and its optimizer."""
    told = ended.told()[0]

    assert {name: told[name] for name in ended.pieces} == ended.pieces
    assert [one["step"] for one in ended.sessions if one["request"] == ended.asked[0]] == [ended.kind.first_step + 2]


@pytest.mark.parametrize("ended", SAMPLED, ids=Kind.__str__, indirect=True)
def test_a_sample_holds_the_second_micro_batch_alone(ended: Ended) -> None:
    told = ended.told()[1]

    assert told[MICRO_BATCH[ended.kind.entry]] == 1
    assert not told[OPTIMIZER[ended.kind.entry]]


def test_the_configuration_is_carried_out_on_its_rank_in_its_steps(ended: Ended) -> None:
    told = ended.told()[-1]

    assert {name: told[name] for name in ended.pieces} == {name: 2 * count for name, count in ended.pieces.items()}
    assert len(ended.told()) == len(HOLDS) + 1


@pytest.mark.parametrize("ended", KINDS[:1], ids=Kind.__str__, indirect=True)
def test_the_ranges_that_its_quick_start_shows_are_there(ended: Ended) -> None:
    shown = quickstart.shown("mindspeed_llm")
    ranges = shown[shown.index("ranges,") + 1 :][:3]

    assert {*ranges} <= {*ended.counts()}
