"""`Run.tails()`: how long a stage without waiting goes on after most are done with it: generation's long tail."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import polars as pl

from ..role_runs import RoleRun, Seconds, shown_ns

SCHEMA = {
    "step": pl.Int64, "role": pl.String, "stage": pl.String, "ranks": pl.Int32, "middle_ns": pl.Int64,
    "p90_ns": pl.Int64, "last_ns": pl.Int64, "tail_ns": pl.Int64, "tail_ratio": pl.Float64, "idle_ns": pl.Int64,
    "last_rank": pl.Int32, "tokens": pl.Float64, "longest_response": pl.Float64, "last_rank_tokens": pl.Float64,
    "last_rank_longest": pl.Float64,
}  # fmt: skip


def table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """A row a step and stage that tells of its work and in which nobody waits for others.

    How long the rank in the middle, nine in ten, and the last one took; `tail_ns` is the last less the middle,
    `tail_ratio` that over the last. `idle_ns`: what all together wait for the last one; null in a role in which nobody
    waits. Tokens and responses say whether the last rank had more to do; null where nobody does.
    """
    rows = [row for run in runs for row in _of_role(run)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("step", "role", maintain_order=True)


def _of_role(run: RoleRun) -> Iterator[tuple[Any, ...]]:
    for stage, pieces in run.stages().items():
        if run.waits[pieces].any() or not np.isfinite(run.work[:, :, pieces[0]]).any():
            continue
        for at, step in enumerate(run.steps.tolist()):
            own = run.own_of(pieces)[at]
            there = np.flatnonzero(np.isfinite(own))
            if len(there) > 1:
                yield step, run.role, stage, len(there), *_figures(run, at, pieces[0], own[there], there)


def _figures(run: RoleRun, at: int, piece: int, own: Seconds, there: Any) -> tuple[Any, ...]:
    last = there[own.argmax()]
    middle, high, most = np.quantile(own, [0.5, 0.9, 1.0]).tolist()
    tokens, longest = run.work[at, :, piece, 0], run.work[at, :, piece, 2]
    return (
        shown_ns(middle), shown_ns(high), shown_ns(most), shown_ns(most - middle),
        (most - middle) / most if most > 0 else None,
        None if run.is_free else shown_ns(float((most - own).sum())), run.members[last].rank,
        _known(np.nansum(tokens) if np.isfinite(tokens).any() else np.nan),
        _known(np.nanmax(longest) if np.isfinite(longest).any() else np.nan), _known(tokens[last]),
        _known(longest[last]),
    )  # fmt: skip


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
