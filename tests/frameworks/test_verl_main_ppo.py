"""verl's own main_ppo under `mstxkit run`, wheels unchanged: all of it recorded, nothing of it different.

PPO with a critic on one rank, beside the same without mstxkit; GRPO on two ranks. While each is held in its second
step, a user asks for a profile of its next actor_update.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import main_ppo, soak
from builders.main_ppo import STEPS, Job, Kind

from mstxkit import open_run
from mstxkit.escalation import asking
from mstxkit.store import fate

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]

# One request for each prompt, so that what is sampled does not depend on the order in which requests arrive.
REPEATABLE = [Kind(version) for version in ("0.6.1", "0.7.1", "0.8.0", "0.9.1")]
# 0.9.1 has two trainers; v1 is its default.
OTHERS = [
    Kind("0.6.1", "grpo", 2), Kind("0.7.1", "grpo", 2), Kind("0.8.0", "grpo", 2), Kind("0.9.1", "grpo", 2),
    Kind("0.9.1", "grpo", 2, "v1"), Kind("0.9.1", trainer="v1"),
]  # fmt: skip
# Each takes two minutes of a core: in `make test` one of these a day.
IN_A_DAY = [Kind("0.7.1"), Kind("0.7.1", "grpo", 2), Kind("0.9.1"), Kind("0.9.1", "grpo", 2)]
KINDS = soak.rounds([*REPEATABLE, *OTHERS], soak.sample(IN_A_DAY, 1))
COMPARED = [kind for kind in KINDS if kind in REPEATABLE]
# Metrics with this in their names say how long something took, and how much of the machine's memory is used.
MEASURED = ("timing", "perf/")
# The trainer's blocks in each step, by verl's own names, and their stages.
BLOCKS = {
    "step": "train_step", "gen": "actor_generate", "reward": "reward", "old_log_prob": "actor_compute_log_prob",
    "ref": "reference_compute_log_prob", "adv": "compute_advantage", "update_actor": "actor_update",
}  # fmt: skip
# A forward pass and a step of the optimizer, in a legacy worker and in an engine.
PIECES = {True: ("_forward_micro_batch", "_optimizer_step"), False: ("forward_step", "optimizer_step")}
OF_THE_CRITIC = {"values": "critic_compute_values", "update_critic": "critic_update"}


class Ended:
    """A job that was recorded to its end, what was asked of it, and the same job without mstxkit if there was one."""

    def __init__(self, job: Job, plain: Job | None, progress: fate.Progress) -> None:
        self.job, self.kind, self.plain, self.progress = job, job.kind, plain, progress
        self.run = open_run(job.run)
        self.processes = self.run.processes().to_dicts()
        self.ranges = self.run.ranges().sort("start_ns").to_dicts()

    def counts(self, **of: Any) -> Counter[Any]:
        """How often each (name, stage) was recorded, among ranges with these values."""
        return Counter((row["name"], row["stage"]) for row in self._rows(of))

    def counts_by_role(self, names: set[str], **of: Any) -> Counter[Any]:
        """How often each (name, stage, role), among those with one of the names."""
        rows = [row for row in self._rows(of) if row["name"] in names]
        return Counter((row["name"], row["stage"], json.loads(row["attributes"])["role"]) for row in rows)

    def _rows(self, of: dict[str, Any]) -> list[dict[str, Any]]:
        return [row for row in self.ranges if all(row[column] == value for column, value in of.items())]

    @property
    def steps_of_workers(self) -> list[int | None]:
        """Which they know: before 0.7.1 verl tells them none."""
        return [None] if self.kind.version == "0.6.1" else [*range(1, STEPS + 1)]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return main_ppo.prepare(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module", params=KINDS, ids=Kind.__str__)
def ended(request: pytest.FixtureRequest, task: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    kind, folder = request.param, tmp_path_factory.mktemp("main_ppo")
    plain = Job(kind, task, folder / "plain", recorded=False) if kind in COMPARED else None
    job = Job(kind, task, folder / "recorded", held=True)
    try:
        id = escalated(job)
        codes = [one.end() for one in (job, plain) if one is not None]
        assert set(codes) == {0}, job.output[-4000:]
        control = asking.control_of(job.run)
        yield Ended(job, plain, asking.fates_of(control).progress(asking.named(control, id)))
    finally:
        for one in (job, plain):
            if one is not None:
                one.clear()


def escalated(job: Job) -> str:
    """Ask for the next actor_update of every rank while the job stands still, and let it go on; the request's id."""
    job.until(lambda: len(listening(job)) == job.kind.ranks)
    fields = {"stage": "actor_update", "ranks": "all", "occurrences": 1}
    id = asking.ask(job.run, fields, source="a test").id
    control = asking.control_of(job.run)
    job.until(lambda: states(control, id) == {"armed": job.kind.ranks})
    job.go()
    return id


def listening(job: Job) -> set[int]:
    """Ranks that can be asked for the stage."""
    if not (job.run / "run.json").exists():
        return set()
    heard = fate.heard(asking.control_of(job.run))
    return {one.rank for one in heard if "actor_update" in one.standing.stages}


def states(control: Any, id: str) -> dict[str, int]:
    return asking.fates_of(control).progress(asking.named(control, id)).counts()


def test_it_runs_to_its_last_step_and_says_nothing_of_an_error(ended: Ended) -> None:
    output = ended.job.output

    assert len(ended.job.metrics) == STEPS
    assert "Traceback" not in output and "mstxkit WARNING" not in output


@pytest.mark.parametrize("ended", COMPARED, ids=Kind.__str__, indirect=True)
def test_metrics_are_the_same_to_the_last_bit_as_without_mstxkit(ended: Ended) -> None:
    assert ended.plain is not None
    recorded, plain = ([learned(step) for step in job.metrics] for job in (ended.job, ended.plain))

    assert len(plain[0]) > 50
    assert recorded == plain


def learned(metrics: dict[str, Any]) -> dict[str, str]:
    """All but what is measured; a float's text has every bit of it, and NaN equals NaN."""
    return {name: repr(value) for name, value in metrics.items() if not any(part in name for part in MEASURED)}


def test_the_driver_has_each_of_its_blocks_once_in_each_step(ended: Ended) -> None:
    expected = {**BLOCKS, **(OF_THE_CRITIC if ended.kind.algorithm == "ppo" else {})}
    if ended.kind.trainer == "v1":  # rewards come with the answers
        del expected["reward"]
    for step in range(1, STEPS + 1):
        counts = ended.counts(role="trainer", step=step)

        assert {name: counts[name, stage] for name, stage in expected.items()} == dict.fromkeys(expected, 1)
        assert max(counts.values()) == 1, counts


def test_each_rank_has_each_call_of_each_step_in_its_stage_and_role(ended: Ended) -> None:
    expected = of_a_rank(ended.kind)
    for rank in range(ended.kind.ranks):
        for step in ended.steps_of_workers:
            counts = ended.counts_by_role(rank=rank, step=step, names={name for name, _, _ in expected})

            assert counts == {call: STEPS * count if step is None else count for call, count in expected.items()}


def of_a_rank(kind: Kind) -> dict[tuple[str, str, str], int]:
    """What one rank does in one step: stages, micro-batches, optimizer steps."""
    passes, mini_batches = kind.answers // kind.ranks // main_ppo.MICRO_BATCH, kind.mini_batches
    forward, optimizer = PIECES[kind.is_legacy]
    actor, reference = "actor_compute_log_prob", "reference_compute_log_prob"
    found = {
        (actor, actor, "actor"): 1, (forward, actor, "actor"): passes,
        ("ref_compute_log_prob", reference, "reference"): 1, (forward, reference, "reference"): passes,
        ("actor_update", "actor_update", "actor"): 1, (forward, "actor_update", "actor"): passes,
        (optimizer, "actor_update", "actor"): mini_batches,
    }  # fmt: skip
    return {**found, **(of_a_critic(kind) if kind.algorithm == "ppo" else {})}


def of_a_critic(kind: Kind) -> dict[tuple[str, str, str], int]:
    """A legacy worker's stage holds the model's own call of that name; an engine takes as much as it may at once."""
    forward, optimizer = PIECES[kind.is_legacy]
    values, update, mini_batches = "critic_compute_values", "critic_update", kind.mini_batches
    passes = kind.answers // main_ppo.MICRO_BATCH
    found = {
        ("compute_values", values): 2 if kind.is_legacy else 1,
        (forward, values): passes if kind.is_legacy else 1,
        (update, update): 1,
        (forward, update): passes if kind.is_legacy else mini_batches,
        (optimizer, update): mini_batches,
    }
    return {(name, stage, "critic"): count for (name, stage), count in found.items()}


def test_weights_are_of_the_step_that_trained_them(ended: Ended) -> None:
    """They go to the rollout before the first step too; 0.6.1 tells its workers no step."""
    name = "rollout_mode" if ended.kind.version == "0.6.1" else "update_weights"
    for rank in range(ended.kind.ranks):
        rows = [row for row in ended.ranges if (row["rank"], row["name"]) == (rank, name)]

        assert {row["stage"] for row in rows} == {"weight_sync"}
        assert [row["step"] for row in rows] == ([None] * len(rows) if name == "rollout_mode" else [0, 1, 2, 3])


def test_generation_and_rewards_are_counted_answer_by_answer(ended: Ended) -> None:
    for step in range(1, STEPS + 1):
        counts = ended.counts(role="agent_loop", step=step)

        assert counts["agent_loop", "actor_generate"] == counts["generate", "actor_generate"] == ended.kind.answers
    assert ended.counts(role="reward")["compute_score", "reward"] == ended.kind.answers * STEPS


def test_each_process_has_its_rank_and_role(ended: Ended) -> None:
    ranks = Counter((row["rank"], row["role"]) for row in ended.processes if row["rank"] is not None)
    others = Counter(row["role"] for row in ended.processes if row["rank"] is None)

    assert ranks == Counter((rank, "actor") for rank in range(ended.kind.ranks))
    assert others["trainer"] == others["agent_loop"] == 1
    assert {row["world_size"] for row in ended.processes if row["rank"] is not None} == {ended.kind.ranks}


def test_nothing_is_lost_to_a_fault(ended: Ended) -> None:
    assert [(row["faults"], row["dropped"]) for row in ended.processes] == [(0, 0)] * len(ended.processes)
    assert not [row for row in ended.ranges if row["error"] or row["open"]]
    assert not ended.run.damage


def test_the_profile_that_was_asked_for_holds_one_actor_update_of_each_rank(ended: Ended) -> None:
    sessions = sorted(ended.job.run.glob("profiles/actor_update/*/*/*/session.json"))
    _, optimizer = PIECES[ended.kind.is_legacy]

    assert ended.progress.is_done, str(ended.progress)
    assert [json.loads(file.read_text())["rank"] for file in sessions] == list(range(ended.kind.ranks))
    for file in sessions:
        session = json.loads(file.read_text())
        names = ranges_in(file.parent / session["output"])

        assert (session["state"], session["backend"], session["problems"]) == ("recorded", "torch", [])
        assert session["step"] == (None if ended.kind.version == "0.6.1" else 2)
        assert (names["actor_update"], names[optimizer]) == (1, ended.kind.mini_batches)
        assert not {"actor_compute_log_prob", "ref_compute_log_prob"} & names.keys()


def ranges_in(trace: Path) -> Counter[str]:
    """The names of what a trace of torch's profiler holds."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return Counter(event["name"] for event in events if event.get("ph") == "X")
