"""`Run.samples()`: single samples of generation, where each has a range of its own: which held up a step, and how long.

Samples are occurrences of a stage that makes responses, of which a process has several in a step. One that holds all
the others is no sample but what encloses them.
"""

from __future__ import annotations

import polars as pl

from ...stages import canonical

GENERATES = "actor_generate"
_OF_A_STEP = ("process", "step")
# A long sample may hold the others by chance; what encloses samples does so in this share of a process's steps.
_ENCLOSED_STEPS, _STEPS_NEEDED = 0.75, 2


def table(occurrences: pl.DataFrame) -> pl.DataFrame:
    """`step, rank, process, stage, start_ns, duration_ns, tokens, samples, alone_ns, is_last`, longest first in a step.

    `samples`: so many of them the process had in that step; `alone_ns`: how long this one went on after all others of
    the process had ended (0 for all but the last): what the step would save without it, there. What comes one after the
    other inside of an occurrence on its own track, an engine's steps say, are no samples.

    Args:
        occurrences: As `Run.occurrences()`.
    """
    names = [
        name for name in occurrences["stage"].cast(pl.String).unique().drop_nulls() if canonical(name) == GENERATES
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
