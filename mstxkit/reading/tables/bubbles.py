"""`Run.bubbles()`: how long each rank waited in each step, for which rank, and in which stage that one was late.

Waiting alone: a rank that computes slowly is in `Run.stragglers()`, those that wait for it are here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...judging.measuring import INSIDE
from ..frames import make_schema
from ..role_runs import RoleRun, Seconds, Whole, most_of

SCHEMA = make_schema("step role stage where rank wait_ns gate_rank gate_stage gate_where gate_more_ns")


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
    ranks wait for each other, or for what somebody hands over, by step and rank. The gate is whoever came last;
    `gate_stage` is where it was longer than the others since all met last, by `gate_more_ns`. Null: not known.
    """
    parts = [pl.DataFrame(schema=SCHEMA)]
    for run in runs:
        for piece in range(len(run.kinds)):
            if run.waits[piece] or np.nansum(run.wait_s[:, :, piece]) > 0:
                gate = find_gates(run, piece) if run.waits[piece] else _handed_on(run, piece)
                parts.append(_make_frame(run, piece, run.where(piece), run.wait_s[:, :, piece], gate))
        for piece in np.flatnonzero((run.inside_wait_s > 0).any(axis=(0, 1))).tolist():
            parts.append(_make_frame(run, piece, INSIDE, run.inside_wait_s[:, :, piece], _gates_inside(run, piece)))
    return pl.concat(parts).sort("step", "role", "rank", maintain_order=True)


def find_gates(run: RoleRun, piece: int) -> WaitGates:
    """Who held up whom in one piece in which members wait."""
    last, before = run.came_last[:, :, piece], run.since_met(piece)
    here = np.nan_to_num(run.more_s[:, :, before])
    in_step_before = np.concatenate([np.zeros_like(here[:1]), here[:-1]])
    more_s = np.where(before < piece, here, in_step_before)[np.arange(len(last))[:, None], last]
    most = more_s.argmax(axis=2)
    return WaitGates(last, before[most], np.take_along_axis(more_s, most[:, :, None], axis=2)[:, :, 0])


def held_up(run: RoleRun) -> WaitGates:
    """(T,) of each step, by where most is waited, in a piece or inside of it: who came last for whom waited longest."""
    waits_s = np.concatenate([np.where(run.waits, np.nan_to_num(run.wait_s), 0.0), run.inside_wait_s], axis=2)
    steps, count = np.arange(len(run.steps)), len(run.kinds)
    place = waits_s.sum(axis=1).argmax(axis=1)
    member = waits_s[steps, :, place].argmax(axis=1)
    held = WaitGates(np.full(len(steps), -1), np.full(len(steps), -1), np.full(len(steps), np.nan))
    for at in np.flatnonzero((waits_s > 0).any(axis=(0, 1))).tolist():
        here = np.flatnonzero((place == at) & (waits_s[steps, member, at] > 0))
        gate = find_gates(run, at) if at < count else _gates_inside(run, at - count)
        for part, of_members in zip(held, gate):
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


def _gates_inside(run: RoleRun, piece: int) -> WaitGates:
    """Where collectives tell: most of it for who has most of its own between them."""
    own_s, at = run.inside_s[:, :, piece], np.arange(len(run.steps))[:, None]
    last = most_of(own_s, run.labels[:, piece])
    return WaitGates(last, np.full(last.shape, piece), run.over_middle(own_s, piece)[at, last])


def _make_frame(run: RoleRun, piece: int, where: str, wait_s: Seconds, gate: WaitGates) -> pl.DataFrame:
    is_handed = where != INSIDE and not run.waits[piece]
    steps, members = np.nonzero(wait_s > 0 if is_handed else np.isfinite(wait_s) & (gate.member >= 0))
    ranks = pl.Series(run.ranks, dtype=pl.Int32)
    pieces = range(len(run.kinds))
    wheres = [INSIDE if where == INSIDE else run.where(at) for at in pieces]
    kinds = pl.DataFrame({"stage": [run.stage(at) for at in pieces], "where": wheres})
    gate_member, gate_piece = (pl.Series(part[steps, members]).replace(-1, None) for part in (gate.member, gate.piece))
    columns = {
        "step": pl.Series(run.steps[steps]), "rank": ranks.gather(pl.Series(members)),
        "wait_ns": ns_column(wait_s[steps, members]), "gate_rank": ranks.gather(gate_member),
        "gate_stage": kinds["stage"].gather(gate_piece), "gate_where": kinds["where"].gather(gate_piece),
        "gate_more_ns": ns_column(gate.more_s[steps, members]),
    }  # fmt: skip
    same = {"role": pl.lit(run.role), "stage": pl.lit(run.stage(piece)), "where": pl.lit(where)}
    return pl.DataFrame(columns).with_columns(**same).select(*SCHEMA).cast(SCHEMA)  # type: ignore[arg-type]


def ns_column(seconds: Seconds) -> pl.Series:
    """Whole ns; null of what is not known."""
    ns: pl.Series = pl.Series(np.round(seconds * 1e9), dtype=pl.Float64).fill_nan(None).cast(pl.Int64)
    return ns
