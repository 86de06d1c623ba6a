"""A real DDP training on gloo: its rings show who enters late, from the step on in which that begins, nobody before.

One training has all faults one after the other. In full: four ranks too, one stage for the update, a slow link.
"""

from __future__ import annotations

import numpy as np
import pytest
from builders import ddp_runs, soak
from builders.ddp_runs import DdpRun

from mstxkit.judging import lateness

pytestmark = pytest.mark.frameworks

LATE_S, PHASE = 0.1, 15
KINDS = ("none", "input", "forward", "backward", "optimizer")
PHASES = [[PHASE * number, kind] for number, kind in enumerate(KINDS)]
SHAPES = soak.rounds([(2, False), (2, True), (4, False)], [(2, False)])


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: f"{shape[0]} ranks{', one stage' * shape[1]}")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DdpRun:
    ranks, is_coarse = request.param
    return ddp_runs.trained(
        tmp_path_factory.mktemp("ddp"), ranks, steps=PHASE * len(KINDS), kinds=PHASES, late_ms=LATE_S * 1000,
        coarse=is_coarse,
    )  # fmt: skip


def lateness_in(run: DdpRun, phase: int) -> dict[int, float]:
    """Rank to the median over a phase's steps of its lateness in the step's first collective; seconds."""
    seen: dict[int, list[float]] = {}
    for number in range(PHASE * phase + 1, PHASE * (phase + 1)):
        step = run.steps[number]
        if step.collectives is None:
            continue
        late = lateness.late_in(step.collectives, step.error_s)
        first = step.collectives.sequence[late.at] == step.collectives.sequence[late.at].min(initial=1 << 40)
        for member, seconds in zip(step.collectives.member[late.at[first]], late.late_s[first]):
            seen.setdefault(int(member), []).append(float(seconds))
    return {rank: float(np.median(values)) for rank, values in seen.items()}


@pytest.mark.parametrize("phase", range(1, len(KINDS)), ids=KINDS[1:])
def test_the_slow_rank_enters_late_wherever_it_is_slow(run: DdpRun, phase: int) -> None:
    late = lateness_in(run, phase)

    assert max(late, key=lambda rank: late[rank]) == 1
    assert late[1] > 0.75 * LATE_S


def test_nobody_enters_late_where_nobody_is_slow(run: DdpRun) -> None:
    assert max(lateness_in(run, 0).values()) < 0.5 * LATE_S


def test_every_collective_of_a_step_is_in_a_stage_and_of_a_group_whose_ranks_are_known(run: DdpRun) -> None:
    entered = [step.collectives for step in run.steps.values() if step.collectives is not None]

    assert len(entered) > PHASE * len(KINDS) // 2
    assert set(run.groups.values()) == {tuple(range(len(run.steps[0].members)))}
    assert np.mean(np.concatenate([part.stage for part in entered]) >= 0) > 0.99
