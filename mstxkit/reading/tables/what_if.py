"""`Run.what_if()`: how long a step would take without a straggler, a wait, a slow link, a long tail.

Of async jobs also: with other numbers of trainers and rollouts.

Each row replays the steps of a role with changed times of its members: where members wait for each other, all go on
when the last of them has come.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

import numpy as np
import polars as pl

from ...judging import meeting
from ...judging.evidence import Peer
from ...judging.measuring import INSIDE
from ...stages import canonical
from ...store import verdicts as verdict_kinds
from ...store.values import finite_number
from ...store.verdicts import ALL_SLOW, COMMUNICATION, Verdict
from ...triggers.late_rank import middle_of
from .. import replay
from ..report.units import spans
from ..role_runs import RoleRun, Seconds, shown_ns
from . import split, stragglers
from .stragglers import Straggler

STRAGGLER, BUBBLE, LINK, TAIL, CHANGE, SPLIT = KINDS = ("straggler", "bubble", "link", "tail", "change", "split")
SCHEMA = {
    "kind": pl.String, "role": pl.String, "stage": pl.String, "where": pl.String, "rank": pl.Int32,
    "group": pl.String, "trainers": pl.Int32, "rollouts": pl.Int32, "first_step": pl.Int64, "last_step": pl.Int64,
    "step_ns": pl.Int64, "without_ns": pl.Int64, "saved_ns": pl.Int64, "saved_ratio": pl.Float64,
    "error_ratio": pl.Float64, "who": pl.String,
}  # fmt: skip
# So many of each kind and role are gone through.
_STRAGGLERS_AT_MOST, _SMOOTHED_STEPS = 12, 9
# What several have become slower in, as the judge says it.
_KIND_OF = {ALL_SLOW: CHANGE, COMMUNICATION: LINK, verdict_kinds.LINK: LINK}
TAIL_STAGES = ("actor_generate",)


def table(
    runs: tuple[RoleRun, ...], verdicts: Iterable[Verdict] | None = None, asked: split.AskedSplit | None = None
) -> pl.DataFrame:
    """`kind, role, stage, where, rank, group, trainers, rollouts, first_step, last_step, step_ns, without_ns, …`.

    Then `saved_ns, saved_ratio, error_ratio, who`; what saves most first. `step_ns`: how long a step took from
    `first_step` to `last_step`, in the mean; `without_ns`: how long it would have taken. `error_ratio`: so far may
    `saved_ratio` be off, of a `split`: the more, the farther its numbers are from those that were recorded.

    - `straggler`: with `rank` as fast as the others for its work.
    - `bubble`: if all came at the same time to where they wait, in (or before) `stage`.
    - `link`: with the collectives of the ranks of `group` as fast as before, or as those of other groups.
    - `tail`: if nobody was longer in the stage than the member in the middle.
    - `change`: with the stage as fast for its work as before the step from which on all were slower.
    - `split`: of an async job, with so many `trainers` and `rollouts`; what is saved may be less than nothing.

    Args:
        runs: Of each role.
        verdicts: As of `stragglers.table`; of them is known, too, since when all are slower.
        asked: A split that is to be among the rows.

    Raises:
        ReadError: nothing tells of what is asked for.
    """
    verdicts = stragglers.verdicts_of(runs) if verdicts is None else verdicts
    rows = [row for run in runs for row in _of_role(runs, run, verdicts)] + list(split.rows(runs, SPLIT, asked))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("saved_ratio", descending=True, maintain_order=True)


def _of_role(runs: tuple[RoleRun, ...], run: RoleRun, verdicts: Iterable[Verdict]) -> Iterator[tuple[Any, ...]]:
    slow = stragglers.of_role(run, verdicts)
    for straggler in slow[:_STRAGGLERS_AT_MOST]:
        yield _row(runs, run, STRAGGLER, straggler.piece, without(run, straggler), straggler.where,
                   run.members[straggler.member], (straggler.since, straggler.until))  # fmt: skip
    for piece in range(len(run.kinds)):
        if run.waits[piece] and np.nansum(run.wait_s[:, :, piece]) > 0:
            yield _row(runs, run, BUBBLE, piece, _balanced(run, piece), run.where(piece))
        if not run.waits[piece] and canonical(run.stage(piece)) in TAIL_STAGES and not run.is_gap(piece):
            yield _row(runs, run, TAIL, piece, _without_tail(run, piece), "in")
    yield from _changes(runs, run, [verdict for verdict in verdicts if verdict.is_blaming])


def _row(
    runs: tuple[RoleRun, ...], run: RoleRun, kind: str, piece: int, own: Seconds, where: str, peer: Peer | None = None,
    steps: tuple[int, int] | None = None, group: Iterable[int | None] = (),
) -> tuple[Any, ...]:  # fmt: skip
    since, until = steps or (0, len(run.steps))
    step_s, saved_s = replay.saved_s(runs, run, own, since, until)
    ranks = spans(rank for rank in group if rank is not None)
    return (
        kind, run.role, run.stage(piece), where, peer and peer.rank, ranks or None, None, None, int(run.steps[since]),
        int(run.steps[until - 1]), shown_ns(step_s), shown_ns(step_s - saved_s), shown_ns(saved_s),
        saved_s / step_s if step_s > 0 else None, None, peer and peer.who,
    )  # fmt: skip


def without(run: RoleRun, slow: Straggler) -> Seconds:
    """(T, M, K) own times with this member as fast as the others for its work, in the steps in which it was slow."""
    own: Seconds = run.own_s.copy()
    place = (slice(slow.since, slow.until), slow.member, slow.piece)
    if slow.where == INSIDE:
        members = run.labels[:, slow.piece] == run.labels[slow.member, slow.piece]
        own[slow.since : slow.until, members, slow.piece] *= 1 - _share_inside(run, slow)
        return own
    own[place] = run.expected_s(np.maximum(0.0, _smoothed(run.excess[place])), own[place])
    return own


def _share_inside(run: RoleRun, slow: Straggler) -> float:
    """By which share of a stage's time it would be over sooner, by the steps of which collectives tell."""
    steps = slice(slow.since, slow.until)
    inside = run.inside_s[steps, :, slow.piece].copy()
    members = run.labels[:, slow.piece] == run.labels[slow.member, slow.piece]
    inside = inside[:, members]
    at = int(members[: slow.member].sum())
    has_any = np.isfinite(inside[:, at])
    inside, lasted = inside[has_any], run.own_s[steps, slow.member, slow.piece][has_any]
    last = np.fmax.reduce(inside, axis=1)
    inside[:, at] /= 1 + slow.effect
    sooner = last - np.fmax.reduce(inside, axis=1)
    return float(np.nansum(sooner) / np.nansum(lasted)) if np.nansum(lasted) > 0 else 0.0


def _smoothed(values: Seconds) -> Seconds:
    """Each value as the mean of its neighbours; NaN as none."""
    seen = np.isfinite(values).astype(float)
    window = np.ones(min(_SMOOTHED_STEPS, len(values)))
    sums = np.convolve(np.nan_to_num(values), window, "same")
    return np.asarray(sums / np.maximum(1.0, np.convolve(seen, window, "same")))


def _balanced(run: RoleRun, piece: int) -> Seconds:
    """Own times in which all come to that piece at the same time: since they last waited, each takes the mean."""
    own: Seconds = run.own_s.copy()
    for before in reversed(range(piece)):
        own[:, :, before] = meeting.by_group(own[:, :, before].T, run.labels[:, before], _mean_of).T
        if run.waits[before]:
            break
    return own


def _mean_of(own_s: Seconds) -> Seconds:
    """(M, T) the mean of all; NaN where one is not there."""
    count = np.maximum(1, np.isfinite(own_s).sum(axis=0))
    return np.where(np.isfinite(own_s), np.nansum(own_s, axis=0) / count, np.nan)


def _without_tail(run: RoleRun, piece: int) -> Seconds:
    own: Seconds = run.own_s.copy()
    with np.errstate(all="ignore"):
        middle = middle_of(own[:, :, piece].T)
        own[:, :, piece] = np.fmin(own[:, :, piece], middle[:, None])
    return own


def _changes(runs: tuple[RoleRun, ...], run: RoleRun, verdicts: Iterable[Verdict]) -> Iterator[tuple[Any, ...]]:
    """What all, or all of a group, have become slower in, by as much as the judge says that it takes longer."""
    for verdict in verdicts:
        is_of_role = (verdict.role or "") == run.role and verdict.rank is None and verdict.kind in _KIND_OF
        places = [at for at, owner in enumerate(run.owners) if owner == verdict.stage]
        if not is_of_role or not places or verdict.since_step is None:
            continue
        since = int(np.searchsorted(run.steps, verdict.since_step))
        if since < len(run.steps):
            own, lost_s = run.own_s.copy(), finite_number(verdict.evidence.get("lost_s")) or 0.0
            members = [at for at, rank in enumerate(run.ranks) if not verdict.group or rank in verdict.group]
            own[since:, members, places[0]] = np.maximum(0.0, own[since:, members, places[0]] - lost_s)
            steps, kind = (since, len(run.steps)), _KIND_OF[verdict.kind]
            yield _row(runs, run, kind, places[0], own, "in", None, steps, verdict.group)
