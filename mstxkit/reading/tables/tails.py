"""`Run.tails()`: how long a stage without waiting goes on after most are done with it: generation's long tail.

And `Run.samples()`, where each sample of generation has a range of its own: which held up a step, and how long. Samples
are occurrences of a stage that makes responses, of which a process has several in a step. One that holds all the others
is no sample but what encloses them.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ...stages import canonical_key
from ..frames import make_schema
from ..role_runs import RoleRun, shown_ns

SCHEMA = make_schema(
    "step role stage ranks middle_ns p90_ns last_ns tail_ns tail_ratio idle_ns last_rank tokens longest_response "
    "last_rank_tokens last_rank_longest"
)
GENERATES = "actor_generate"
_OF_A_STEP = ("process", "step")
# A long sample may hold the others by chance; what encloses samples does so in this share of a process's steps.
_ENCLOSED_STEPS, _STEPS_NEEDED = 0.75, 2


def table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """A row a step and stage that tells of its work and in which nobody waits for others.

    How long the rank in the middle, nine in ten, and the last one took; `tail_ns` is the last less the middle,
    `tail_ratio` that over the last. `idle_ns`: what all together wait for the last one; null in a role in which nobody
    waits. Tokens and responses say whether the last rank had more to do; null where nobody does.
    """
    rows = []
    working = ((run, stage, pieces) for run in runs for stage, pieces in run.stages().items())
    for run, stage, pieces in working:
        if run.waits[pieces].any() or not np.isfinite(run.work[:, :, pieces[0]]).any():
            continue
        for step, own, work in zip(run.steps.tolist(), run.own_of(pieces), run.work[:, :, pieces[0]]):
            there = np.flatnonzero(np.isfinite(own))
            if len(there) < 2:
                continue
            own, last = own[there], there[own[there].argmax()]
            middle, high, most = np.quantile(own, [0.5, 0.9, 1.0]).tolist()
            tokens, longest = work[:, 0], work[:, 2]
            rows.append((
                step, run.role, stage, len(there), *map(shown_ns, (middle, high, most, most - middle)),
                (most - middle) / most if most > 0 else None,
                None if run.is_free else shown_ns(float((most - own).sum())), run.members[last].rank,
                _known_or_none(np.nansum(tokens) if np.isfinite(tokens).any() else np.nan),
                _known_or_none(np.fmax.reduce(longest)), _known_or_none(tokens[last]), _known_or_none(longest[last]),
            ))  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("step", "role", maintain_order=True)


def _known_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def list_samples(occurrences: pl.DataFrame) -> pl.DataFrame:
    """Longest first in a step. `samples`: so many of them the process had in that step; `alone_ns`: how long this one
    went on after all others of the process had ended (0 for all but the last): what the step would save without it,
    there. What comes one after the other inside of an occurrence on its own track, an engine's steps say, are no
    samples.
    """
    names = [
        name for name in occurrences["stage"].cast(pl.String).unique().drop_nulls() if canonical_key(name) == GENERATES
    ]
    rows = occurrences.filter(pl.col("stage").cast(pl.String).is_in(names) & pl.col("step").is_not_null())
    rows = rows.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"), samples=pl.len().over(_OF_A_STEP))
    rows = _without_enclosing(rows.filter(pl.col("samples") > 1))
    rows = rows.with_columns(samples=pl.len().over(_OF_A_STEP)).filter(pl.col("samples") > 1)
    rows = rows.sort("step", "process", "end_ns")
    before = pl.col("end_ns").shift(1).over(_OF_A_STEP)
    is_last = pl.col("end_ns").rank("ordinal").over(_OF_A_STEP) == pl.col("samples")
    alone = pl.when(is_last).then(pl.col("end_ns") - pl.max_horizontal(before, "start_ns")).otherwise(0)
    return rows.select(
        "step", "rank", "process", pl.col("stage").cast(pl.String), "start_ns", "duration_ns", "tokens",
        pl.col("samples").cast(pl.Int64), alone_ns=alone.cast(pl.Int64), is_last=is_last,
    ).sort("step", "duration_ns", descending=[False, True])  # fmt: skip


def _without_enclosing(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without those that, one after the other, hold all other ones of their step, in nearly all steps."""
    rows = rows.sort("process", "step", "start_ns", "end_ns", descending=[False, False, False, True])
    rows = rows.with_columns(others_ns=pl.col("end_ns").cum_max().shift(1).over(_OF_A_STEP))
    is_inside = (pl.col("end_ns") <= pl.col("others_ns")).fill_null(False)
    rows = rows.with_columns(is_inside=is_inside, holder=(~is_inside).cum_sum().over(_OF_A_STEP))
    held = pl.col("tokens").filter(pl.col("is_inside")).sum().over(*_OF_A_STEP, "holder")
    holds = (pl.len().over(*_OF_A_STEP, "holder") > 1) & (pl.col("tokens") >= held).fill_null(True)
    rows = rows.with_columns(holds=holds)  # older ones of polars take no window inside of another
    comes_after = (pl.col("start_ns") >= pl.col("others_ns")).fill_null(True)
    rows = rows.with_columns(is_enclosed=(pl.col("is_inside") | (pl.col("holds") & comes_after)).all().over(_OF_A_STEP))
    share = pl.col("is_enclosed").filter(~pl.col("is_inside")).mean().over("process")
    is_usual = (share >= _ENCLOSED_STEPS) & (pl.col("step").n_unique().over("process") >= _STEPS_NEEDED)
    return rows.filter(pl.col("is_inside") | ~(pl.col("is_enclosed") & is_usual))
