"""How well the judge finds who made the others wait: a matrix of shapes by faults, simpler rules, and 10,240 ranks.

A row of the matrix is a cell, by what it is called: `detect.pipeline.rank` is the share of those faults that cost 2 %
of a step or more that were named first, its note has the rest (`detection.Cell`); `detect.pipeline.healthy` are the
alarms in 10,000 healthy steps.

The other rows are of equal ranks that meet at barriers (`equal_ranks.py`). Settings were chosen on seeds below 6000;
what is reported here is of `detection.REPORTED_FROM` on. Every job
has a mismatch of 0.3 at least: times depend on things that no summary tells. Of the 500 faults 240 hide inside or
behind a barrier, 60 are slow links, whose rings tell when collectives were over. A fault is "right" when the first
cause that is named is the right one, with its stage and rank (of a link: with its group), within 120 steps.

The figures are of a simulator. Minder, Mycroft and Holmes were measured on clusters, and at another task.
"""

from __future__ import annotations

import resource
import statistics
import time
from multiprocessing import get_context
from typing import Any, Callable, Iterable

import numpy as np

from mstxkit.judging.evidence import Peer, RoleStep, Work
from mstxkit.judging.judge import JobJudge

from . import detection, equal_ranks
from .detection import HEALTHY, REPORTED_FROM, Cell
from .equal_ranks import Case, Outcome
from .harness import Row
from .shapes import SHAPES

_SINGLE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
VARIANTS = {
    "matrix": _SINGLE, "faults": _SINGLE, "rules": _SINGLE, "healthy": _SINGLE, "async": _SINGLE, "ranks_1024": _SINGLE,
    "ranks_10240": _SINGLE,
}  # fmt: skip
SEEDS, A_SEED = 20, 25
HEALTHY_JOBS, HEALTHY_STEPS = 40, 775
# Of each cell of the matrix; the healthy jobs of a shape have 10,000 steps together.
MATRIX_SEEDS, HEALTHY_SEEDS, MATRIX_STEPS = 6, 14, 750
# Rules are so much simpler that a part of the cases shows it.
RULED_SEEDS = 8


def measure(variant: str) -> list[Row]:
    """The figures of one variant."""
    if variant.startswith("ranks_"):
        return _of_many(int(variant[len("ranks_") :]))
    measured: dict[str, Callable[[], list[Row]]] = {
        "matrix": _matrix, "faults": _faults, "rules": _rules,
        "healthy": lambda: _healthy(False), "async": lambda: _healthy(True),
    }  # fmt: skip
    return measured[variant]()


def _everywhere(function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """On both cores."""
    with get_context("spawn").Pool(2) as pool:
        return pool.map(function, list(values), chunksize=1)


def _matrix() -> list[Row]:
    faulty, healthy = (range(REPORTED_FROM, REPORTED_FROM + count) for count in (MATRIX_SEEDS, HEALTHY_SEEDS))
    faults = tuple({fault: None for shape, _ in SHAPES.values() for fault in shape.at})
    cells = list(detection.cells((), faults, faulty))
    return [
        *map(_of_cell, cells), *_of_all(cells),
        *map(_of_cell, detection.cells((), (HEALTHY,), healthy, steps=MATRIX_STEPS)),
    ]  # fmt: skip


def _of_cell(cell: Cell) -> Row:
    key = f"detect.{cell.shape}.{cell.fault}"
    if cell.fault == HEALTHY:
        return Row(key, cell.alarms, "", 0.0, cell.note[:200])
    return Row(key, 100 * cell.right, "%", 0.0, cell.words())


def _of_all(cells: list[Cell]) -> list[Row]:
    """What is asked of the matrix as a whole."""
    costly, cases = sum(cell.costly for cell in cells), sum(cell.cases for cell in cells)
    right, silent = (sum(getattr(cell, name) * cell.costly for cell in cells) for name in ("right", "silent"))
    alarms = sum(cell.alarms for cell in cells)
    return [
        Row("detect.matrix_right", 100 * right / costly, "%", 0.0, f"of {costly}"),
        Row("detect.matrix_silent", 100 * silent / costly, "%", 0.0, f"of {costly}"),
        Row("detect.matrix_victims", sum(cell.victims for cell in cells), "", 0.0, f"of {cases}"),
        Row("detect.matrix_alarms", alarms, "", 0.0, "before a fault, or where it costs nothing"),
    ]


def _cases(seed: int) -> list[Case]:
    return [equal_ranks.case(seed, number) for number in range(A_SEED)]


def _outcomes(seed: int) -> list[Outcome]:
    return [equal_ranks.judged(case) for case in _cases(seed)]


def _faults() -> list[Row]:
    seeds = range(REPORTED_FROM, REPORTED_FROM + SEEDS)
    outcomes = [outcome for of_seed in _everywhere(_outcomes, seeds) for outcome in of_seed]
    hidden = [outcome for outcome in outcomes if outcome.kind in equal_ranks.HIDDEN]
    rows = [
        _percent("detect.right", [outcome.is_right for outcome in outcomes]),
        _percent("detect.right_hidden", [outcome.is_right for outcome in hidden]),
        _percent("detect.victim_blamed", [outcome.blamed_victims > 0 for outcome in outcomes]),
        Row("detect.alarms_before_the_fault", sum(outcome.before_onset for outcome in outcomes), ""),
    ]
    for factor in (1.25, 1.10):
        alike = [outcome for outcome in outcomes if outcome.factor == factor and outcome.kind != "drift"]
        computing = [outcome for outcome in alike if outcome.kind == "before"]  # of a rank that computes slowly alone
        rows += [_steps(f"detect.steps_{factor:.2f}", alike), _steps(f"detect.steps_{factor:.2f}_before", computing)]
    for kind in equal_ranks.MIX:
        of_kind = [outcome.is_right for outcome in outcomes if outcome.kind == kind]
        rows.append(_percent(f"detect.right_{kind}", of_kind))
    return rows


def _steps(key: str, outcomes: list[Outcome]) -> Row:
    steps = [outcome.steps if outcome.is_right else equal_ranks.HORIZON for outcome in outcomes]
    return Row(key, statistics.median(steps), "steps", 0.0, f"{len(steps)} faults")


def _percent(key: str, truths: list[bool]) -> Row:
    return Row(key, 100 * sum(truths) / max(1, len(truths)), "%", 0.0, f"{sum(truths)} of {len(truths)}")


def _of_rules(seed: int) -> list[dict[str, tuple[bool, bool]]]:
    return [equal_ranks.ruled(case) for case in _cases(seed)]


def _rules() -> list[Row]:
    seeds = range(REPORTED_FROM, REPORTED_FROM + RULED_SEEDS)
    results = [result for of_seed in _everywhere(_of_rules, seeds) for result in of_seed]
    return [
        row for name in ("nvrx", "mad5", "mad3of5") for row in (
            _percent(f"detect.{name}_right", [result[name][0] for result in results]),
            _percent(f"detect.{name}_victim_blamed", [result[name][1] for result in results]),
        )
    ]  # fmt: skip


def _alarms(job: tuple[int, bool]) -> tuple[int, int, list[str]]:
    seed, is_async = job
    return equal_ranks.false_alarms(seed, HEALTHY_STEPS, is_async)


def _healthy(is_async: bool) -> list[Row]:
    jobs = [(seed, is_async) for seed in range(REPORTED_FROM, REPORTED_FROM + HEALTHY_JOBS // (1 + is_async))]
    results = _everywhere(_alarms, jobs)
    steps, alarms = sum(result[0] for result in results), sum(result[1] for result in results)
    name = "async" if is_async else "sync"
    note = "; ".join(alarm for result in results for alarm in result[2][:2])[:200]
    return [Row(f"detect.alarms_in_10000_{name}", 1e4 * alarms / steps, "", 0.0, f"{alarms} in {steps:,} steps {note}")]


def _of_many(ranks: int) -> list[Row]:
    """One role of so many ranks with ten stages: CPU time of closing a step, and what the process holds."""
    random = np.random.default_rng(1)
    judge, times = JobJudge(), []
    for step in range(24):
        made = _large_step(step, ranks, random)
        began = time.process_time()
        judge.close(made)
        times.append(time.process_time() - began)
    held_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    key = f"detect.ranks_{ranks}"
    return [Row(f"{key}_s", statistics.median(times[-8:]), "CPU s", max(times[-8:]) - min(times[-8:])),
            Row(f"{key}_mb", held_mb, "MB")]  # fmt: skip


def _large_step(step: int, ranks: int, random: np.random.Generator, stages: int = 10) -> RoleStep:
    took = random.lognormal(0, 0.05, (ranks, stages))
    left = 1000.0 + step * (stages + 1.0) + np.cumsum(took + 0.001, axis=1)
    work = np.full((ranks, stages), np.nan)
    work[:, 3] = random.lognormal(8, 0.5, ranks)
    members = tuple(Peer(rank, f"host{rank // 8}", f"p{rank}") for rank in range(ranks))
    return RoleStep(
        "actor", step, members, tuple(f"stage_{at}" for at in range(stages)), left - took, left, took,
        np.ones((ranks, stages)), Work(work, work, work), np.full(ranks, 1e-4),
    )  # fmt: skip
