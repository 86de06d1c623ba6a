"""verl's own main_ppo under `mstxkit run`, wheels unchanged: all of it recorded, nothing of it different.

PPO with a critic on one rank, beside the same without mstxkit; GRPO on two ranks. While each is held in its second
step, a user asks for a profile of its next actor_update.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Iterator

import pytest
from builders import main_ppo, quickstart, recorded_ppo, soak
from builders.main_ppo import STEPS, Kind
from builders.recorded_ppo import PIECES, Ended, learned

pytestmark = [pytest.mark.days("even"), pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(1800)]

# One request for each prompt, so that what is sampled does not depend on the order in which requests arrive.
REPEATABLE = [*(Kind(version) for version in ("0.6.1", "0.7.1", "0.8.0", "0.9.1")), Kind("0.9.1", has_lora=True)]
# 0.9.1 has two trainers; v1 is its default.
OTHERS = [
    Kind("0.6.1", "grpo", 2), Kind("0.7.1", "grpo", 2), Kind("0.8.0", "grpo", 2), Kind("0.9.1", "grpo", 2),
    Kind("0.9.1", "grpo", 2, "v1"), Kind("0.9.1", trainer="v1"),
]  # fmt: skip
# Each takes two minutes of a core: in `make test` one of these a day.
IN_A_DAY = [Kind("0.7.1"), Kind("0.7.1", "grpo", 2), Kind("0.9.1"), Kind("0.9.1", "grpo", 2)]
KINDS = soak.rounds([*REPEATABLE, *OTHERS], soak.sample(IN_A_DAY, 1))
COMPARED = [kind for kind in KINDS if kind in REPEATABLE]
# The trainer's blocks in each step, by verl's own names, and their stages.
BLOCKS = {
    "step": "train_step", "gen": "actor_generate", "reward": "reward", "old_log_prob": "actor_compute_log_prob",
    "ref": "reference_compute_log_prob", "adv": "compute_advantage", "update_actor": "actor_update",
}  # fmt: skip
OF_THE_CRITIC = {"values": "critic_compute_values", "update_critic": "critic_update"}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return main_ppo.prepare(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module", params=KINDS, ids=Kind.__str__)
def ended(request: pytest.FixtureRequest, task: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    kind, folder = request.param, tmp_path_factory.mktemp("main_ppo")
    with recorded_ppo.run(kind, task, folder, is_compared=kind in COMPARED) as ended:
        yield ended


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
        # Without an adapter the actor is the reference, and is asked by the actor's own method.
        (actor, actor, "actor"): 1 + kind.has_lora, (forward, actor, "actor"): passes,
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


def test_the_stages_that_its_quick_start_shows_are_there(ended: Ended) -> None:
    shown = {*BLOCKS.values()}.intersection(quickstart.shown("verl"))

    assert len(shown) > 4
    assert shown <= {row["stage"] for row in ended.ranges}


def test_weights_are_of_the_step_that_trained_them(ended: Ended) -> None:
    """They go to the rollout before the first step too; 0.6.1 tells its workers no step."""
    name = "rollout_mode" if ended.kind.version == "0.6.1" else "update_weights"
    for rank in range(ended.kind.ranks):
        rows = ended.rows(rank=rank, name=name)

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
    sessions = ended.sessions()
    _, optimizer = PIECES[ended.kind.is_legacy]

    assert ended.progress.is_done, str(ended.progress)
    assert [session["rank"] for session, _ in sessions] == list(range(ended.kind.ranks))
    for session, names in sessions:
        assert (session["state"], session["backend"], session["problems"]) == ("recorded", "torch", [])
        assert session["step"] == (None if ended.kind.version == "0.6.1" else 2)
        assert (names["actor_update"], names[optimizer]) == (1, ended.kind.mini_batches)
        assert not {"actor_compute_log_prob", "ref_compute_log_prob"} & names.keys()
