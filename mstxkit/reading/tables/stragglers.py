"""`Run.stragglers()`: who takes longer than the others for the same work, in which steps, and how sure that is.

It is whom the judge names, of all steps of the run, also where that is over. Waiting is no part of it: of a piece in
which members wait, what counts is the time since the last of them has come.
"""

from __future__ import annotations

import math
from typing import Iterable, Iterator, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...judging import whole_run
from ...judging.columns import LEAST_NOISE
from ...judging.cutting import BEFORE
from ...judging.measuring import INSIDE
from ...judging.stalls import NOW_AND_THEN
from ...judging.whole_run import PLAIN
from ...stages import canonical
from ...store.verdicts import COMPUTE, INPUT, JITTER, Verdict
from ..role_runs import RoleRun, Seconds, shown_ns

SCHEMA = {
    "role": pl.String, "stage": pl.String, "where": pl.String, "rank": pl.Int32, "host": pl.String,
    "first_step": pl.Int64, "last_step": pl.Int64, "steps": pl.Int64, "effect_ratio": pl.Float64,
    "more_ns": pl.Int64, "step_ratio": pl.Float64, "confidence": pl.Float64, "who": pl.String,
}  # fmt: skip
_KINDS = (COMPUTE, INPUT, JITTER)
# Of a step: what all steps of the run show to be less than that is no straggler.
STEP_AT_LEAST = 0.002


class Straggler(NamedTuple):
    """One member that is slow in one piece.

    Args:
        member, piece: Their places.
        where: BEFORE the stage, IN it, or INSIDE of it, between its collectives.
        since, until: Places of the first step and of the one after the last.
        steps: In so many of them it was seen.
        effect: Mean share by which it takes longer than expected for its work.
        more_s: Seconds a step that this is.
        step_ratio: The same as a share of the step.
        confidence: 0 to 1: how sure it is that this is no chance, however many members and steps were looked at.
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


def table(runs: tuple[RoleRun, ...], verdicts: Iterable[Verdict] | None = None) -> pl.DataFrame:
    """The one that costs most first.

    `effect_ratio`: by how much it takes longer than the others for the same work, as a
    share; `more_ns`: that in ns a step, `step_ratio`: as a share of the step; `where`: before the stage, in it, or
    inside of it, between its collectives, which only rings or ranges around them tell of.

    Args:
        runs: Of each role.
        verdicts: What was judged of them, also where it is withdrawn; None: they are judged now.
    """
    rows = []
    verdicts = verdicts_of(runs) if verdicts is None else verdicts
    for run in runs:
        for slow in of_role(run, verdicts):
            peer = run.members[slow.member]
            rows.append((
                run.role, run.stage(slow.piece), slow.where, peer.rank, peer.host, int(run.steps[slow.since]),
                int(run.steps[slow.until - 1]), slow.steps, slow.effect, shown_ns(slow.more_s),
                slow.step_ratio, slow.confidence, peer.who,
            ))  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort(
        "step_ratio", "role", "stage", "rank", descending=[True, False, False, False]
    )


def verdicts_of(runs: tuple[RoleRun, ...]) -> tuple[Verdict, ...]:
    """All that the judge says of these steps."""
    by_judge = whole_run.judged(runs[0].every if runs else ())
    return (*by_judge.standing, *by_judge.withdrawn)


def of_role(run: RoleRun, verdicts: Iterable[Verdict]) -> list[Straggler]:
    """Those of one role, what costs most first; of one member and piece the one that goes on for longest."""
    longest: dict[tuple[int, int], Straggler] = {}
    for verdict in verdicts:
        lasts = verdict.kind in _KINDS and verdict.evidence.get("where") != NOW_AND_THEN
        if lasts and (verdict.role or "") == run.role:
            for slow in _of_verdict(run, verdict):
                before = longest.get((slow.member, slow.piece), slow)
                longest[slow.member, slow.piece] = max(before, slow, key=lambda each: each.until - each.since)
    return sorted(longest.values(), key=lambda slow: (-slow.step_ratio, slow.member, slow.piece))


def _of_verdict(run: RoleRun, verdict: Verdict) -> Iterator[Straggler]:
    """Each member that it blames, in each stage in which, or before which, it is slow."""
    where = PLAIN.get(str(verdict.evidence.get("where")), str(verdict.evidence.get("where")))
    also_in = filter(None, str(verdict.evidence.get("also_in", "")).split(", "))
    blamed = verdict.group if verdict.rank is None and not verdict.process else (verdict.rank,)
    for member, peer in enumerate(run.members):
        if peer.rank in blamed and (peer.rank is not None or peer.who == verdict.process):
            for stage, its_where in [(verdict.stage, where), *((stage, "") for stage in also_in)]:
                yield from _where_slowest(run, verdict, member, stage or "", its_where)


def _where_slowest(run: RoleRun, verdict: Verdict, member: int, stage: str, where: str) -> Iterator[Straggler]:
    """Of the pieces of a stage, in which of its steps. `where`: "": in it or before it."""
    is_gap = (where == BEFORE,) if where else (False, True)
    own_s, excess = (run.inside_s, run.excess_inside) if where == INSIDE else (run.own_s, run.excess)
    own_s, excess = own_s[:, member], excess[:, member]
    last_step = (verdict.step or 0) if verdict.withdrawn else run.steps[-1]
    steps = (run.steps >= (verdict.since_step or 0)) & (run.steps <= last_step)
    more_s = np.nan_to_num(own_s - run.expected_s(excess, own_s))
    of_stage = (at for at in range(len(run.kinds)) if canonical(run.stage(at)) == canonical(stage))
    pieces = [at for at in of_stage if run.is_gap(at) in is_gap and (excess[steps, at] > 0).any()]
    if not pieces:
        return
    piece = max(pieces, key=lambda at: float(more_s[steps, at].sum()))
    since, until = _stretch(excess[:, piece], steps)
    here = np.flatnonzero(np.isfinite(excess[since:until, piece])) + since
    spent_s, lost_s, step_s = float(own_s[here, piece].mean()), float(more_s[here, piece].mean()), run.step_s()
    values = excess[here, piece]
    chance = math.erfc(float(values.mean() / max(LEAST_NOISE, values.std())) * math.sqrt(len(values) / 2)) / 2
    if step_s > 0 and lost_s >= STEP_AT_LEAST * step_s:
        yield Straggler(
            member, piece, where if where == INSIDE else run.where(piece), since, until,
            len(here), lost_s / max(spent_s - lost_s, 1e-9), lost_s, lost_s / step_s,
            1 - min(1.0, chance * run.excess.size),
        )  # fmt: skip


def _stretch(excess: Seconds, steps: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Places of the first step, and of the one after the last, in which more than half of the excess is seen. A verdict
    does not count the steps before it may judge: where it is as slow in these, it has begun with them.
    """
    most = max(0.0, np.nanmedian(excess[steps])) / 2
    slow, quick = np.flatnonzero(steps & (excess >= most)), np.flatnonzero(excess < most)
    before = quick[quick < slow[0]]
    first = int(before[-1]) + 1 if len(before) else 0
    return first + int(np.isfinite(excess[first:]).argmax()), int(slow[-1]) + 1
