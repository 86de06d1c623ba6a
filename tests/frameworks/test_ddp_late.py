"""A real DDP training on gloo: its rings show who enters late, from the step on in which that begins, nobody before.

One training has all faults one after the other. In full: four ranks too, one stage for the update, and the verdict.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import ddp_runs, lives, soak
from builders.ddp_runs import DdpRun

from mstxkit.judging import meeting
from mstxkit.reading import judged
from mstxkit.reading.run import open_run
from mstxkit.store import job_file, layout, run_file, settings_file, verdicts

pytestmark = [pytest.mark.days("odd"), pytest.mark.frameworks]

_JUDGED_WITHIN_S = 60.0
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


RANKS = """
import sys, time
import mstxkit, torch, torch.distributed as dist, torch.multiprocessing as mp

def rank_of_two(rank, run):
    dist.init_process_group("gloo", init_method=f"file://{run}.store", rank=rank, world_size=2)
    for _ in range(50):
        mstxkit.step()
        with mstxkit.stage("actor_update"):
            time.sleep(0.05)
            dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()

if __name__ == "__main__":
    mstxkit.capture(sys.argv[1])
    mp.start_processes(rank_of_two, (sys.argv[1],), 2, start_method=sys.argv[2])
"""


def lateness_in(run: DdpRun, phase: int) -> dict[int, float]:
    """Rank to the median over a phase's steps of its lateness in the step's first collective; seconds."""
    seen: dict[int, list[float]] = {}
    for number in range(PHASE * phase + 1, PHASE * (phase + 1)):
        step = run.steps[number]
        if step.collectives is None:
            continue
        late = meeting.late_in(step.collectives, step.error_s)
        first = step.collectives.sequence[late.at] == step.collectives.sequence[late.at].min(initial=1 << 40)
        for member, seconds in zip(step.collectives.member[late.at[first]], late.late_s[first]):
            seen.setdefault(int(member), []).append(float(seconds))
    return {rank: float(np.median(values)) for rank, values in seen.items()}


@pytest.mark.parametrize("phase", range(1, len(KINDS)), ids=KINDS[1:])
def test_the_slow_rank_enters_late_wherever_it_is_slow(run: DdpRun, phase: int) -> None:
    late = lateness_in(run, phase)

    assert max(late, key=lambda rank: late[rank]) == 1
    assert late[1] > 0.75 * LATE_S


def test_nobody_is_late_for_the_wrong_wall_clock_of_its_host(tmp_path: Path) -> None:
    """Each rank is on a host of its own, and nobody is slow. No rings: torch takes their times from the true clock."""
    run = tmp_path / "run"
    options = {"run": str(run), "kind": "none", "steps": 100, "base_ms": 20, "rings": False, "off_s": [0, 0.3]}
    ddp_runs.start(2, options, {"TORCH_FR_BUFFER_SIZE": "0"})
    until_s = time.monotonic() + _JUDGED_WITHIN_S
    while not is_judged(run) and time.monotonic() < until_s:
        time.sleep(0.2)

    assert is_judged(run)
    blaming = [verdict for verdict in verdicts.read_verdicts(run) if verdict.is_blaming]
    assert not blaming, blaming[0]._asdict()
    assert not judged.of_run(open_run(run).roles).blaming, "nor by the run's tables"
    job = job_file.read_state(run, run_file.id_of(run) or "")
    assert job is not None
    assert list(job.clocks) == ["boot of node-1"], "it was put right"


def is_judged(run: Path) -> bool:
    figures = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, run_file.id_of(run) or "")
    return figures is not None and figures.is_final


def test_nobody_enters_late_where_nobody_is_slow(run: DdpRun) -> None:
    assert max(lateness_in(run, 0).values()) < 0.5 * LATE_S


def test_every_collective_of_a_step_is_in_a_stage_and_of_a_group_whose_ranks_are_known(run: DdpRun) -> None:
    entered = [step.collectives for step in run.steps.values() if step.collectives is not None]

    assert len(entered) > PHASE * len(KINDS) // 2
    assert set(run.groups.values()) == {tuple(range(len(run.steps[0].members)))}
    assert np.mean(np.concatenate([part.stage for part in entered]) >= 0) > 0.99


@pytest.mark.skipif(not soak.is_soaking(), reason="in make soak")
def test_the_verdict_names_a_rank_that_is_slow_inside_the_stage_in_which_all_wait(tmp_path: Path) -> None:
    """From the ring to the verdict: handed over, gathered, judged beside rank 0, written into the run."""
    options = {"kind": "backward", "from_step": 60, "steps": 160, "coarse": True, "base_ms": 15, "late_ms": 40}
    ddp_runs.start(2, {"run": str(tmp_path / "run"), **options})
    until = time.monotonic() + _JUDGED_WITHIN_S
    while time.monotonic() < until and not blamed(tmp_path / "run"):
        time.sleep(0.5)

    assert ("compute", "actor_update", 1) in blamed(tmp_path / "run")


def blamed(run: Path) -> set[tuple[str, str | None, int | None]]:
    return {
        (verdict.kind, verdict.stage, verdict.rank) for verdict in verdicts.read_verdicts(run) if verdict.is_blaming
    }


@pytest.mark.parametrize("how", soak.sample(["fork", "spawn"], 1))
def test_ranks_that_multiprocessing_starts_are_trainers_whose_rings_are_read(tmp_path: Path, how: str) -> None:
    """They have no RANK, make their group before their first range, and destroy it before they end."""
    folder = tmp_path / "run"
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    done = subprocess.run(
        [sys.executable, str(program), str(folder), how], env=lives.environment(TORCH_FR_BUFFER_SIZE="256"),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = open_run(folder)
    late = run.lateness()

    assert sorted(run.processes().filter(pl.col("rank").is_not_null())["part"]) == ["trainer", "trainer"]
    assert set(zip(late["rank"], late["source"])) == {(0, "flight_recorder"), (1, "flight_recorder")}
