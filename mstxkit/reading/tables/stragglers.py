"""`Run.stragglers()`: who takes longer than the others for the same work, in which steps, and how sure that is.

It is whom the judge names, of all steps of the run, also where that is over. Waiting is no part of it: of a piece in
which members wait, what counts is the time since the last of them has come.
"""

from __future__ import annotations

from typing import Iterable, Iterator, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...judging.cutting import BEFORE
from ...judging.measuring import INSIDE
from ...judging.stalls import NOW_AND_THEN
from ...judging.whole_run import PLAIN
from ...stages import canonical_key
from ...store.values import group_by
from ...store.verdicts import COMPUTE, INPUT, JITTER, Verdict
from .. import replay
from ..frames import make_schema
from ..role_runs import RoleRun, Seconds, shown_ns

SCHEMA = make_schema(
    "role stage where rank host first_step last_step steps effect_ratio more_ns step_ratio confidence who"
)
_KINDS = (COMPUTE, INPUT, JITTER)
# Of a step: what all steps of the run show to be less than that is no straggler.
STEP_AT_LEAST = 0.002
_SMOOTHED_STEPS, _NEARLY, _MOSTLY = 9, 0.8, 0.5


class Straggler(NamedTuple):
    """One member that is slow in one piece.

    Args:
        member, piece: Their places.
        where: BEFORE the stage, IN it, or INSIDE of it, between its collectives.
        since, until: Places of the first step and of the one after the last.
        steps: In so many of them it was seen.
        effect: Mean share by which it takes longer than expected for its work.
        more_s: Seconds a step that this is.
        confidence: 0 to 1: as the verdict has it.
        too_much_s: (until - since,) seconds that it took too long in each step.
        saved: Seconds that a step took, and that it would have been shorter by without it, and all that are slow there
            or elsewhere by the same cause: means.
    """

    member: int
    piece: int
    where: str
    since: int
    until: int
    steps: int
    effect: float
    more_s: float
    confidence: float
    too_much_s: Seconds
    saved: tuple[float, float] = (0.0, 0.0)

    @property
    def step_ratio(self) -> float:
        """Share of the step that is lost by it."""
        return max(0.0, self.saved[1] / self.saved[0]) if self.saved[0] > 0 else 0.0


def table(runs: tuple[RoleRun, ...], verdicts: Iterable[Verdict] = ()) -> pl.DataFrame:
    """The one that costs most first.

    `effect_ratio`: by how much it takes longer than the others for the same work, as a share; `more_ns`: that in ns a
    step; `step_ratio`: by which share the step would be shorter without that, of several that are slow together (a
    host), or of one in several stages, without all of it, as verdicts and `Run.what_if()` have it; `where`: before the
    stage, in it, or inside of it, between its collectives, which only rings or ranges around them tell of. Verdicts
    that are withdrawn count too.
    """
    rows = []
    for run in runs:
        for slow in of_role(runs, run, verdicts):
            peer = run.members[slow.member]
            rows.append((
                run.role, run.stage(slow.piece), slow.where, peer.rank, peer.host, int(run.steps[slow.since]),
                int(run.steps[slow.until - 1]), slow.steps, slow.effect, shown_ns(slow.more_s),
                slow.step_ratio, slow.confidence, peer.who,
            ))  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort(
        "step_ratio", "role", "stage", "rank", descending=[True, False, False, False]
    )


def of_role(runs: tuple[RoleRun, ...], run: RoleRun, verdicts: Iterable[Verdict]) -> list[Straggler]:
    """Those of one role, what costs most first; of one member and piece the one that costs most in all its steps."""
    costliest: dict[tuple[int, int], Straggler] = {}
    for verdict in verdicts:
        lasts = verdict.kind in _KINDS and verdict.evidence.get("where") != NOW_AND_THEN
        if lasts and (verdict.role or "") == run.role:
            for slow in _of_verdict(runs, run, verdict):
                before = costliest.get((slow.member, slow.piece), slow)
                costliest[slow.member, slow.piece] = max(before, slow, key=lambda each: each.saved[1] * each.steps)
    return sorted(costliest.values(), key=lambda slow: (-slow.step_ratio, slow.member, slow.piece))


def _of_verdict(runs: tuple[RoleRun, ...], run: RoleRun, verdict: Verdict) -> Iterator[Straggler]:
    """Each member that it blames, in each stage in which, or before which, it is slow."""
    where = PLAIN.get(str(verdict.evidence.get("where")), str(verdict.evidence.get("where")))
    also_in = filter(None, str(verdict.evidence.get("also_in", "")).split(", "))
    blamed = verdict.group if verdict.rank is None and not verdict.process else (verdict.rank,)
    members = [
        member for member, peer in enumerate(run.members)
        if peer.rank in blamed and (peer.rank is not None or peer.who == verdict.process)
    ]  # fmt: skip
    places = [(verdict.stage or "", where), *((stage, "") for stage in also_in)]
    each = (_where_slowest(run, verdict, member, *place) for place in places for member in members)
    for together in group_by(filter(None, each), lambda slow: slow.where == INSIDE).values():
        less_s, is_inside = np.zeros(run.own_s.shape), together[0].where == INSIDE
        for slow in together:
            less_s[slow.since : slow.until, slow.member, slow.piece] = slow.too_much_s
        steps = np.arange(min(slow.since for slow in together), max(slow.until for slow in together))
        is_told = np.isfinite(run.inside_s[steps]).any(axis=(1, 2)) if is_inside else np.ones(len(steps), bool)
        saved = replay.saved_s(runs, run, replay.take_away(run, less_s, is_inside), steps[is_told])
        yield from (slow._replace(saved=saved) for slow in together)


def _where_slowest(run: RoleRun, verdict: Verdict, member: int, stage: str, where: str) -> Straggler | None:
    """Of the pieces of a stage, in which of its steps; None: in none. `where`: "": in it or before it."""
    is_gap, is_inside = (where == BEFORE,) if where else (False, True), where == INSIDE
    own_s, excess = (values[:, member] for values in run.spent(is_inside))
    last_step = (verdict.step or 0) if verdict.withdrawn else run.steps[-1]
    steps = (run.steps >= (verdict.since_step or 0)) & (run.steps <= last_step)
    more_s = np.nan_to_num(own_s - run.expected_s(excess, own_s))
    of_stage = (at for at in range(len(run.kinds)) if canonical_key(run.stage(at)) == canonical_key(stage))
    pieces = [at for at in of_stage if run.is_gap[at] in is_gap and (excess[steps, at] > 0).any()]
    if not pieces:
        return None
    piece = max(pieces, key=lambda at: float(more_s[steps, at].sum()))
    is_slow = excess[:, piece] >= half_of_much(np.fmax(excess[steps, piece], 0.0))
    since, until = _find_stretch(is_slow, np.isfinite(excess[:, piece]), steps)
    here = np.flatnonzero(np.isfinite(excess[since:until, piece])) + since
    spent_s, lost_s, step_s = float(own_s[here, piece].mean()), float(more_s[here, piece].mean()), run.step_s()
    if step_s <= 0 or lost_s < STEP_AT_LEAST * step_s:
        return None
    stretch_s, too_much = own_s[since:until, piece], np.maximum(0.0, _smooth_values(excess[since:until, piece]))
    if is_slow[here].mean() < _MOSTLY:  # now and then: then it is all of it
        too_much = np.where(is_slow, excess[:, piece], 0.0)[since:until]
    return Straggler(
        member, piece, where if is_inside else run.where(piece), since, until, len(here),
        lost_s / max(spent_s - lost_s, 1e-9), lost_s, verdict.confidence,
        stretch_s - run.expected_s(too_much, stretch_s),
    )  # fmt: skip


def half_of_much(values: Seconds) -> float:
    """Half of their mean, each as it weighs: where few steps are slow too, of what these have."""
    return float((values**2).sum() / max(values.sum(), 1e-9) / 2)


def _find_stretch(
    is_slow: npt.NDArray[np.bool_], is_seen: npt.NDArray[np.bool_], steps: npt.NDArray[np.bool_]
) -> tuple[int, int]:
    """Places of the first slow step, and of the one after the last. A verdict does not count the steps before it may
    judge: where nearly as many of these are slow, it has begun with them.
    """
    slow, often = np.flatnonzero(steps & is_slow), is_slow[steps & is_seen].mean()
    begin = np.stack([is_slow, is_seen])[:, : slow[0] + 1]
    slow_since, seen_since = np.cumsum(begin[:, ::-1], axis=1)[:, ::-1]
    first = np.flatnonzero(begin[0] & (slow_since >= _NEARLY * often * seen_since))[0]
    return int(first), int(slow[-1]) + 1


def _smooth_values(values: Seconds) -> Seconds:
    """Each value as the mean of its neighbours; NaN as none."""
    seen = np.isfinite(values).astype(float)
    window = np.ones(min(_SMOOTHED_STEPS, len(values)))
    sums = np.convolve(np.nan_to_num(values), window, "same")
    return np.asarray(sums / np.maximum(1.0, np.convolve(seen, window, "same")))
