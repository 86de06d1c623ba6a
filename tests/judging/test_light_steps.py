"""A light step that is asked for by itself: of ranks that can, rarely, and never more than once for one thing."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.escalated_run import control, empty_run, say
from builders.run_files import RUN_ID

from mstxkit.judging.judged import LIGHT, RINGS, Want
from mstxkit.judging.light_steps import LightSteps
from mstxkit.store import fate
from mstxkit.store.request import Request

WANT = Want(LIGHT, "actor", (), "actor_update", 41, 41, "actor_update has become slower, and nobody stands out")


def asked(run: Path) -> list[Request]:
    return [each.request for each in fate.read_asked(control(run))]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four ranks, of which two have an NPU."""
    folder = empty_run(tmp_path / "run")
    for rank in range(4):
        say(folder, rank, role="actor", backend="torch_npu" if rank in (1, 2) else "torch")
    return folder


def test_ranks_that_can_are_asked_for_one_light_step_of_the_stage(run: Path) -> None:
    id = LightSteps(run, RUN_ID).consider([WANT], 0.0)

    (request,) = asked(run)
    assert (request.id, request.stages, request.preset, request.steps) == (id, ("actor_update",), "light", 1)
    assert request.ranks_in(4, ()) == (1, 2)
    assert "nobody stands out" in request.reason


@pytest.mark.parametrize(
    "want",
    [WANT._replace(kind=RINGS), WANT._replace(stage=None), WANT._replace(role="critic"),
     WANT._replace(stage="reward"), WANT._replace(ranks=(1,)), WANT._replace(ranks=(0, 3))],
)  # fmt: skip
def test_nobody_is_asked_for_what_nobody_can_give_or_one_rank_alone(run: Path, want: Want) -> None:
    assert LightSteps(run, RUN_ID).consider([want], 0.0) == ""
    assert asked(run) == []


def test_it_is_not_asked_for_again_for_ten_minutes_and_six_times_in_all(run: Path) -> None:
    steps = LightSteps(run, RUN_ID)

    for minute in range(200):
        steps.consider([WANT._replace(since_step=minute)], 60.0 * minute)

    assert len(asked(run)) == 6


def test_a_run_that_is_gone_is_asked_for_nothing(run: Path) -> None:
    steps = LightSteps(run.parent / "gone", RUN_ID)

    assert steps.consider([WANT], 0.0) == ""
