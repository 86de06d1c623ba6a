"""`Run.critical_path()`: what each step's time went to, one thing after the other, across ranks and stages.

The path goes back from the member that ended the step last: where members waited for each other, it goes on with the
one that came last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from ..role_runs import RoleRun, Seconds, Whole, last_of
from .bubbles import ns_column

SCHEMA = {
    "step": pl.Int64, "role": pl.String, "place": pl.Int32, "rank": pl.Int32, "stage": pl.String, "where": pl.String,
    "start_ns": pl.Int64, "duration_ns": pl.Int64, "more_ns": pl.Int64,
}  # fmt: skip


def table(runs: tuple[RoleRun, ...], origin_ns: int = 0) -> pl.DataFrame:
    """`step, role, place, rank, stage, where, start_ns, duration_ns, more_ns`, by step, in the order of the path.

    Where members wait for each other, the durations of a step add up to its length. `rank` is whose time it was, in
    the stage or before it (`where`); `more_ns`: by how much that was longer than in the middle of those that it meets.

    Args:
        runs: Of each role.
        origin_ns: The instant from which their seconds count.
    """
    parts = [_of_role(run, origin_ns) for run in runs]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *parts]).sort("step", "role", "place", maintain_order=True)


def _of_role(run: RoleRun, origin_ns: int) -> pl.DataFrame:
    steps = np.arange(len(run.steps))
    with np.errstate(all="ignore"):
        ends = np.fmax.reduce(run.done_s, axis=2)
    member = np.nanargmax(np.where(np.isfinite(ends), ends, -np.inf), axis=1)
    until = ends[steps, member]
    began = run.spans_s()[1] - run.length_s()
    parts: list[dict[str, Any]] = []
    for piece in reversed(range(len(run.kinds))):
        parts.append(_segment(run, piece, member, until, began))
        until = parts[-1]["since"]
        if run.waits[piece]:
            member = _who_came_last(run, piece, member)
    return _frame(run, list(reversed(parts)), origin_ns)


def _segment(run: RoleRun, piece: int, member: Whole, until: Seconds, began: Seconds) -> dict[str, Any]:
    """The path's part in one piece: since when, until when, and whose; a rank that was not there takes no time."""
    steps = np.arange(len(run.steps))
    came = run.came_s[steps, member, piece]
    since = last_of(run.came_s[:, :, piece], run.labels[:, piece])[steps, member] if run.waits[piece] else came
    since = np.where(np.isfinite(since), np.maximum(since, began), until if piece else began)
    since = np.minimum(since, until)
    own = run.own_s[:, :, piece]
    more = np.full(len(steps), np.nan)
    for at in steps.tolist():
        same = run.labels[:, piece] == run.labels[member[at], piece]
        others = own[at, same]
        if np.isfinite(others).any():
            more[at] = own[at, member[at]] - np.nanmedian(others)
    return {"piece": piece, "member": member, "since": since, "until": until, "more": more}


def _who_came_last(run: RoleRun, piece: int, member: Whole) -> Whole:
    came, steps = run.came_s[:, :, piece], np.arange(len(run.steps))
    same = run.labels[:, piece][None] == run.labels[member, piece][:, None]
    last = np.where(same & np.isfinite(came), came, -np.inf)
    return np.where(np.isfinite(came[steps, member]), last.argmax(axis=1), member)


def _frame(run: RoleRun, parts: list[dict[str, Any]], origin_ns: int) -> pl.DataFrame:
    ranks = pl.Series(run.ranks, dtype=pl.Int32)
    frames = [
        pl.DataFrame({
            "step": run.steps, "place": place, "rank": ranks.gather(pl.Series(part["member"])),
            "start_ns": ns_column(part["since"]) + origin_ns,
            "duration_ns": ns_column(part["until"] - part["since"]),
            "more_ns": ns_column(part["more"]),
        }).with_columns(
            role=pl.lit(run.role), stage=pl.lit(run.stage(part["piece"])), where=pl.lit(run.where(part["piece"])),
        )
        for place, part in enumerate(parts)
    ]  # fmt: skip
    rows = pl.concat(frames).filter(pl.col("duration_ns") > 0)
    return rows.select(*SCHEMA).cast(SCHEMA)  # type: ignore[arg-type]
