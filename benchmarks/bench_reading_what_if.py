"""What-if against the truth: a step as it was predicted, and as it is in the same simulated job with that one change.

`split` asks for other numbers of trainers and rollouts, from half to twice, of async jobs in which each side waits for
the other. `plain`: times follow tokens and the longest response; `hidden`: 0.3 of the simulator's costs that nothing
tells of are in them too. Seeds from 7000 on: nothing was chosen by these.
"""

from __future__ import annotations

import statistics
import sys
from itertools import product
from typing import Iterator

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"plain": {}, "hidden": {}}
MISMATCH = {"plain": 0.0, "hidden": 0.3}
SEEDS, NUMBERS, AHEAD = range(7000, 7010), ((8, 8), (8, 6), (12, 4), (6, 10)), (1, 3)
CHANGES = ((2, 1), (1, 2), (0.5, 1), (1, 0.5), (1.5, 1), (1, 1.5), (2, 2))
NEAR = 0.05


def measure(variant: str) -> list[Row]:
    """How far predicted steps are from true ones, in percent of these."""
    sys.path.append(str(HERE.parent / "tests"))
    errors = sorted(_errors(MISMATCH[variant]))
    near = 100 * statistics.fmean(error <= NEAR for error in errors)
    note = f"{len(errors)} jobs; in the middle {100 * statistics.median(errors):.1f} % off"
    return [
        Row(f"reading_what_if.split_{variant}_near", near, "%", note=f"of predicted steps within {NEAR:.0%}: {note}"),
        Row(
            f"reading_what_if.split_{variant}_p99", 100 * errors[len(errors) * 99 // 100], "%", note="off, of the truth"
        ),
    ]


def _errors(mismatch: float) -> Iterator[float]:
    from builders.buffered_job import buffered_runs

    from mstxkit.reading.tables import split

    for numbers, ahead, seed in product(NUMBERS, AHEAD, SEEDS):
        runs = buffered_runs(*numbers, seed, ahead=ahead, mismatch=mismatch)
        for change in CHANGES:
            asked = split.AskedSplit(*(round(number * times) for number, times in zip(numbers, change)))
            (predicted, *_) = split.weigh_splits(runs, "split", asked)
            other = buffered_runs(asked.trainers or 0, asked.rollouts or 0, seed, ahead=ahead, mismatch=mismatch)
            truth_s = next(run for run in other if run.role == "actor").step_s()
            yield abs(predicted[11] / 1e9 / truth_s - 1)
