"""`Run.stragglers()`: who takes longer than the others for the same work, in which steps, and how sure that is.

Waiting is no part of it: of a piece in which members wait, what counts is the time since the last of them has come.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple

import numpy as np
import polars as pl

from .. import excess
from ..role_runs import RoleRun, Seconds, shown_ns

INSIDE = "inside"
SCHEMA = {
    "role": pl.String, "stage": pl.String, "where": pl.String, "rank": pl.Int32, "host": pl.String,
    "first_step": pl.Int64, "last_step": pl.Int64, "steps": pl.Int64, "effect_ratio": pl.Float64,
    "more_ns": pl.Int64, "step_ratio": pl.Float64, "confidence": pl.Float64, "who": pl.String,
}  # fmt: skip
# What is less than this is no straggler: of its own time, of the step, of certainty; and steps.
EFFECT_AT_LEAST, STEP_AT_LEAST, CONFIDENCE_AT_LEAST, STEPS_AT_LEAST = 0.03, 0.002, 0.9, 3


class Straggler(NamedTuple):
    """One member that is slow in one piece.

    Args:
        member, piece: Their places.
        where: BEFORE the stage, IN it, or INSIDE of it, between its collectives.
        since, until: Places of the first step and of the one after the last.
        steps: In so many of them it was seen.
        effect: Mean logarithm of its time over what is expected for its work.
        more_s: Seconds a step that this is.
        step_ratio: The same as a share of the step.
        confidence: 0 to 1.
    """

    member: int
    piece: int
    where: str
    since: int
    until: int
    steps: int
    effect: float
    more_s: float
    step_ratio: float
    confidence: float


def table(runs: tuple[RoleRun, ...]) -> pl.DataFrame:
    """The one that costs most first.

    `effect_ratio`: by how much it takes longer than the others for the same work, as a
    share; `more_ns`: that in ns a step, `step_ratio`: as a share of the step; `where`: before the stage, in it, or
    inside of it, between its collectives, which only rings or ranges around them tell of.
    """
    rows = []
    for run in runs:
        for slow in of_role(run):
            peer = run.members[slow.member]
            rows.append((
                run.role, run.stage(slow.piece), slow.where, peer.rank, peer.host, int(run.steps[slow.since]),
                int(run.steps[slow.until - 1]), slow.steps, float(np.expm1(slow.effect)), shown_ns(slow.more_s),
                slow.step_ratio, slow.confidence, peer.who,
            ))  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort(
        "step_ratio", "role", "stage", "rank", descending=[True, False, False, False]
    )


def of_role(run: RoleRun) -> list[Straggler]:
    """Those of one role, what costs most first; of one member and stage either in it or inside of it."""
    return run.once("stragglers", lambda: _of_role(run))


def _of_role(run: RoleRun) -> list[Straggler]:
    inside = list(_of_kind(run, excess.of_inside(run), run.inside_s, True))
    hidden = {(slow.member, slow.piece) for slow in inside}
    plain = list(_of_kind(run, excess.of_own(run), run.own_s, False))
    kept = [slow for slow in plain if (slow.member, slow.piece) not in hidden]
    of_plain = {(slow.member, slow.piece): slow for slow in plain}
    inside = [_better(slow, of_plain.get((slow.member, slow.piece))) for slow in inside]
    return sorted([*kept, *inside], key=lambda slow: (-slow.step_ratio, slow.member, slow.piece))


def _better(inside: Straggler, plain: Straggler | None) -> Straggler:
    """What is seen in every step says more than what few rings tell, where both do."""
    return plain if plain is not None and plain.more_s >= 0.7 * inside.more_s else inside


def _of_kind(run: RoleRun, values: Seconds, time_s: Seconds, is_inside: bool) -> Iterator[Straggler]:
    if not np.isfinite(values).any():
        return
    slow = excess.stretches(values)
    step_s, base_s = run.step_s(), excess.base_s(run)
    wanted = (slow.steps >= STEPS_AT_LEAST) & (slow.confidence >= CONFIDENCE_AT_LEAST) & slow.stands_out
    if run.is_free:  # in a gap it has nothing to do
        wanted[:, [piece for piece in range(len(run.kinds)) if run.is_gap(piece)]] = False
    for member, piece in np.argwhere(wanted & (slow.effect >= np.log1p(EFFECT_AT_LEAST))).tolist():
        since, until = int(slow.since[member, piece]), int(slow.until[member, piece])
        effect = float(slow.effect[member, piece])
        spent = time_s[since:until, member, piece]
        more_s = float(np.nanmean(spent[np.isfinite(spent)]) + base_s) * -float(np.expm1(-effect))
        where = INSIDE if is_inside else run.where(piece)
        if step_s > 0 and more_s >= STEP_AT_LEAST * step_s:
            yield Straggler(
                member, piece, where, since, until, int(slow.steps[member, piece]), effect, more_s, more_s / step_s,
                float(slow.confidence[member, piece]),
            )  # fmt: skip
