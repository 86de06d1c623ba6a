"""`Run.bubbles()`: how long each rank waited in each step, for which rank, and in which stage that one was late.

Waiting alone: a rank that computes slowly is in `Run.stragglers()`, those that wait for it are here.
"""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

import numpy as np
import polars as pl

from ..role_runs import RoleRun, Seconds, Whole, most_of

SCHEMA = {
    "step": pl.Int64, "role": pl.String, "stage": pl.String, "where": pl.String, "rank": pl.Int32,
    "wait_ns": pl.Int64, "gate_rank": pl.Int32, "gate_stage": pl.String, "gate_where": pl.String,
    "gate_more_ns": pl.Int64,
}  # fmt: skip


class WaitGates(NamedTuple):
    """Of each step and member that waits in one piece, (T, M), who came last, and in which piece it was late.

    Args:
        member, piece: Their places; -1 where nobody waits.
        more_s: Seconds by which it was longer in that piece than those in the middle.
    """

    member: Whole
    piece: Whole
    more_s: Seconds


def table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """A row for each step, rank and stage (`where`: in it, before it, or inside of it between its collectives) in which
    ranks wait for each other, or for what somebody hands over, by step and rank.

    The gate is whoever came last; `gate_stage` is where it
    was longer than the others since all met last, by `gate_more_ns`: what held up the step. Null: not known.
    """
    parts = [pl.DataFrame(schema=SCHEMA)]
    for run in runs:
        for piece in range(len(run.kinds)):
            if run.waits[piece] or np.nansum(run.wait_s[:, :, piece]) > 0:
                gate = gates(run, piece) if run.waits[piece] else _handed_on(run, piece)
                parts.append(_frame(run, piece, run.where(piece), run.wait_s[:, :, piece], gate))
        parts += _of_inside(run)
    return pl.concat(parts).sort("step", "role", "rank", maintain_order=True)


def gates(run: RoleRun, piece: int) -> WaitGates:
    """Who held up whom in one piece in which members wait."""
    last, before = run.came_last(piece), run.since_met(piece)
    here = np.nan_to_num(run.more_s[:, :, before])
    in_step_before = np.concatenate([np.zeros_like(here[:1]), here[:-1]])
    more_s = np.where(before < piece, here, in_step_before)[np.arange(len(last))[:, None], last]
    most = more_s.argmax(axis=2)
    return WaitGates(last, before[most], np.take_along_axis(more_s, most[:, :, None], axis=2)[:, :, 0])


def held_up(run: RoleRun) -> WaitGates:
    """(T,) of each step, by the piece in which most is waited: who came last for whom waited longest in it."""
    waits_s, steps = np.where(run.waits, np.nan_to_num(run.wait_s), 0.0), np.arange(len(run.steps))
    piece = waits_s.sum(axis=1).argmax(axis=1)
    member = waits_s[steps, :, piece].argmax(axis=1)
    held = WaitGates(np.full(len(steps), -1), np.full(len(steps), -1), np.full(len(steps), np.nan))
    for at in np.flatnonzero(run.waits).tolist():
        here = np.flatnonzero((piece == at) & (waits_s[steps, member, at] > 0))
        for part, of_members in zip(held, gates(run, at)):
            part[here] = of_members[here, member[here]]
    return held


def _handed_on(run: RoleRun, piece: int) -> WaitGates:
    """Where something is handed on: whoever has the same place in the row before, where rows are known."""
    shape, rows = run.wait_s.shape[:2], run.rows[:, piece]
    before, where = np.full(shape[1], -1), -1
    is_known = (rows >= 0).all() and len(set(np.bincount(rows).tolist())) == 1
    for row in range(1, int(rows.max()) + 1 if is_known else 0):
        before[rows == row], where = np.flatnonzero(rows == row - 1), piece
    return WaitGates(np.tile(before, (shape[0], 1)), np.full(shape, where), np.full(shape, np.nan))


def _of_inside(run: RoleRun) -> Iterator[pl.DataFrame]:
    """Where collectives tell: how much earlier each was ready than the last of those that it meets."""
    for piece in np.flatnonzero(np.isfinite(run.inside_s).any(axis=(0, 1))).tolist():
        own_s = run.inside_s[:, :, piece]
        last, at = most_of(own_s, run.labels[:, piece]), np.arange(len(own_s))[:, None]
        more_s = run.over_middle(own_s, piece)[at, last]
        yield _frame(run, piece, "inside", own_s[at, last] - own_s, WaitGates(last, np.full(last.shape, piece), more_s))


def _frame(run: RoleRun, piece: int, where: str, wait_s: Seconds, gate: WaitGates) -> pl.DataFrame:
    is_handed = where != "inside" and not run.waits[piece]
    steps, members = np.nonzero(wait_s > 0 if is_handed else np.isfinite(wait_s) & (gate.member >= 0))
    ranks = pl.Series(run.ranks, dtype=pl.Int32)
    pieces = range(len(run.kinds))
    wheres = ["inside" if where == "inside" else run.where(at) for at in pieces]
    kinds = pl.DataFrame({"stage": [run.stage(at) for at in pieces], "where": wheres})
    gate_member, gate_piece = (pl.Series(part[steps, members]).replace(-1, None) for part in (gate.member, gate.piece))
    columns: dict[str, Any] = {
        "step": pl.Series(run.steps[steps]), "role": pl.repeat(run.role, len(steps), dtype=pl.String, eager=True),
        "stage": pl.repeat(run.stage(piece), len(steps), dtype=pl.String, eager=True),
        "where": pl.repeat(where, len(steps), dtype=pl.String, eager=True),
        "rank": ranks.gather(pl.Series(members)), "wait_ns": ns_column(wait_s[steps, members]),
        "gate_rank": ranks.gather(gate_member),
        "gate_stage": kinds["stage"].gather(gate_piece), "gate_where": kinds["where"].gather(gate_piece),
        "gate_more_ns": ns_column(gate.more_s[steps, members]),
    }  # fmt: skip
    return pl.DataFrame(columns).cast(SCHEMA)  # type: ignore[arg-type]


def ns_column(seconds: Seconds) -> pl.Series:
    """Whole ns; null of what is not known."""
    ns: pl.Series = pl.Series(np.round(seconds * 1e9), dtype=pl.Float64).fill_nan(None).cast(pl.Int64)
    return ns
