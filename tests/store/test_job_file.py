"""`verdicts/job.json`: what one writes is what another reads, and what anybody else wrote does no harm."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.shown_job import HOSTILE, ShownJob, role

from mstxkit.store import job_file
from mstxkit.store.job_file import NOTES_AT_MOST, ROLES_AT_MOST, STAGES_AT_MOST


@pytest.fixture
def job(tmp_path: Path) -> ShownJob:
    return ShownJob(tmp_path)


def test_what_is_written_is_read(job: ShownJob) -> None:
    written = job.say(
        role(),
        role("rollout", 42),
        silences=1,
        silent=("node-1",),
        notes=("x",),
        is_final=True,
        read={"h-0.mxb": (7, 512)},
    )

    assert job_file.read_state(job.run, job.run_id) == written


def test_of_another_run_nothing_is_taken(job: ShownJob) -> None:
    job.say(role())

    assert job_file.read_state(job.run, "f" * 32) is None


def test_there_is_never_more_of_anything_than_is_shown(job: ShownJob) -> None:
    job.say(*(role(str(n), stages=[f"s{m}" for m in range(100)]) for n in range(100)), notes=("n" * 5000,) * 50)
    state = job_file.read_state(job.run, job.run_id)

    assert state is not None
    assert (len(state.roles), len(state.notes)) == (ROLES_AT_MOST, NOTES_AT_MOST)
    assert max(len(of_role.stages) for of_role in state.roles) <= STAGES_AT_MOST
    assert {len(of_role.stages) for of_role in state.roles} == {32}
    assert max(map(len, state.notes)) <= 400


_VALUES: list[Any] = [
    None,
    -1,
    1 << 80,
    1e308,
    float("inf"),
    float("nan"),
    "x",
    HOSTILE[:8],
    [],
    {},
    True,
    [[]],
    {"a": 1},
]


def test_whatever_stands_in_the_file_it_is_read_or_left_out(job: ShownJob) -> None:
    job.say(role(), silent=("a",), notes=("b",))
    file, chance = job.run / "verdicts/job.json", random.Random(soak.seed())
    whole = json.loads(file.read_text())
    for _ in range(soak.rounds(20_000, 300)):
        file.write_text(json.dumps(_spoilt(whole, chance)))
        state = job_file.read_state(job.run, job.run_id)
        assert state is None or all(stage.max_s >= 0 for of_role in state.roles for stage in of_role.stages)


def _spoilt(value: Any, chance: random.Random) -> Any:
    """One of it in thirty replaced."""
    if chance.random() < 1 / 30:
        return chance.choice(_VALUES)
    if isinstance(value, dict):
        return {key: value[key] if key in ("format", "run") else _spoilt(value[key], chance) for key in value}
    return [_spoilt(item, chance) for item in value] if isinstance(value, list) else value
