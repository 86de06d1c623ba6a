"""`Run.what_if()`: how long a step would take without a straggler, a wait, a slow link, a long tail.

Of async jobs also: with other numbers of trainers and rollouts.

Each row replays the steps of a role with changed times of its members: where members wait for each other, all go on
when the last of them has come.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

import numpy as np
import polars as pl

from ...judging.evidence import Peer
from ...stages import canonical
from ...store.verdicts import Verdict
from ...triggers.late_rank import middle_of
from .. import excess, replay
from ..report.units import spans
from ..role_runs import RoleRun, Seconds, shown_ns
from . import split, stragglers
from .links import slow_links
from .stragglers import Straggler

STRAGGLER, BUBBLE, LINK, TAIL, CHANGE, SPLIT = KINDS = ("straggler", "bubble", "link", "tail", "change", "split")
SCHEMA = {
    "kind": pl.String, "role": pl.String, "stage": pl.String, "where": pl.String, "rank": pl.Int32,
    "group": pl.String, "trainers": pl.Int32, "rollouts": pl.Int32, "first_step": pl.Int64, "last_step": pl.Int64,
    "step_ns": pl.Int64, "without_ns": pl.Int64, "saved_ns": pl.Int64, "saved_ratio": pl.Float64,
    "error_ratio": pl.Float64, "who": pl.String,
}  # fmt: skip
# So many of each kind and role are gone through.
_STRAGGLERS_AT_MOST, _LINKS_AT_MOST, _SMOOTHED_STEPS = 12, 4, 9
# What all have become slower in, as the judge says it.
_OF_ALL = ("all_slow", "communication", "link")
TAIL_STAGES = ("actor_generate",)


def table(
    runs: tuple[RoleRun, ...], verdicts: Iterable[Verdict] = (), asked: split.AskedSplit | None = None
) -> pl.DataFrame:
    """`kind, role, stage, where, rank, group, trainers, rollouts, first_step, last_step, step_ns, without_ns, …`.

    Then `saved_ns, saved_ratio, error_ratio, who`; what saves most first. `step_ns`: how long a step took from
    `first_step` to `last_step`, in the mean; `without_ns`: how long it would have taken. `error_ratio`: so far may
    `saved_ratio` be off, of a `split`: the more, the farther its numbers are from those that were recorded.

    - `straggler`: with `rank` as fast as the others for its work.
    - `bubble`: if all came at the same time to where they wait, in (or before) `stage`.
    - `link`: with the collectives of the ranks of `group` as fast as those of other groups of their size.
    - `tail`: if nobody was longer in the stage than the member in the middle.
    - `change`: with the stage as fast for its work as before the step from which on all were slower.
    - `split`: of an async job, with so many `trainers` and `rollouts`; what is saved may be less than nothing.

    Args:
        runs: Of each role.
        verdicts: That hold; of them is known since when all are slower.
        asked: A split that is to be among the rows.

    Raises:
        ReadError: nothing tells of what is asked for.
    """
    rows = [row for run in runs for row in _of_role(runs, run, verdicts)] + list(split.rows(runs, SPLIT, asked))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("saved_ratio", descending=True, maintain_order=True)


def _of_role(runs: tuple[RoleRun, ...], run: RoleRun, verdicts: Iterable[Verdict]) -> Iterator[tuple[Any, ...]]:
    slow = stragglers.of_role(run)
    for straggler in slow[:_STRAGGLERS_AT_MOST]:
        yield _row(runs, run, STRAGGLER, straggler.piece, without(run, straggler), straggler.where,
                   run.members[straggler.member], (straggler.since, straggler.until))  # fmt: skip
    for link in slow_links(run)[:_LINKS_AT_MOST]:
        own = run.own_s.copy()
        own[:, list(link.members), link.piece] = np.maximum(0, own[:, list(link.members), link.piece] - link.more_s)
        yield _row(runs, run, LINK, link.piece, own, "in", None, None, [run.members[m].rank for m in link.members])
    for piece in range(len(run.kinds)):
        if run.waits[piece] and np.nansum(run.wait_s[:, :, piece]) > 0:
            yield _row(runs, run, BUBBLE, piece, _balanced(run, piece), run.where(piece))
        if not run.waits[piece] and canonical(run.stage(piece)) in TAIL_STAGES and not run.is_gap(piece):
            yield _row(runs, run, TAIL, piece, _without_tail(run, piece), "in")
    yield from _changes(runs, run, verdicts)


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
    if slow.where == stragglers.INSIDE:
        members = run.labels[:, slow.piece] == run.labels[slow.member, slow.piece]
        own[slow.since : slow.until, members, slow.piece] *= 1 - _share_inside(run, slow)
        return own
    base_s = excess.base_s(run)
    values = _smoothed(excess.of_own(run)[place])
    own[place] = np.maximum(0.0, (own[place] + base_s) * np.exp(-np.maximum(0.0, values)) - base_s)
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
    inside[:, at] *= np.exp(-slow.effect)
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
        own[:, :, before] = _mean(run, before)
        if run.waits[before]:
            break
    return own


def _mean(run: RoleRun, piece: int) -> Seconds:
    """(T, M) the mean of those that a member meets; NaN where it is not there."""
    mean = np.full(run.own_s.shape[:2], np.nan)
    for label in np.unique(run.labels[:, piece]):
        members = run.labels[:, piece] == label
        own = run.own_s[:, members, piece]
        count = np.maximum(1, np.isfinite(own).sum(axis=1, keepdims=True))
        mean[:, members] = np.where(np.isfinite(own), np.nansum(own, axis=1, keepdims=True) / count, np.nan)
    return mean


def _without_tail(run: RoleRun, piece: int) -> Seconds:
    own: Seconds = run.own_s.copy()
    with np.errstate(all="ignore"):
        middle = middle_of(own[:, :, piece].T)
        own[:, :, piece] = np.fmin(own[:, :, piece], middle[:, None])
    return own


def _changes(runs: tuple[RoleRun, ...], run: RoleRun, verdicts: Iterable[Verdict]) -> Iterator[tuple[Any, ...]]:
    for verdict in verdicts:
        is_of_role = (verdict.role or "") == run.role and verdict.rank is None and verdict.kind in _OF_ALL
        places = [k for k, owner in enumerate(run.owners) if owner == verdict.stage]
        if not is_of_role or not places or verdict.since_step is None:
            continue
        since = int(np.searchsorted(run.steps, verdict.since_step))
        if 0 < since < len(run.steps):
            own, piece = run.own_s.copy(), places[0]
            own[since:, :, piece] /= np.exp(max(0.0, _change(run, piece, since)))
            yield _row(runs, run, CHANGE, piece, own, "in", None, (since, len(run.steps)))


def _change(run: RoleRun, piece: int, since: int) -> float:
    """Logarithm of time for the work there was, of all in the middle: after a step against before it."""
    with np.errstate(all="ignore"):
        work = np.log(np.where(run.work[:, :, piece] > 0, run.work[:, :, piece], np.nan))
        times = middle_of(np.log(run.own_s[:, :, piece]).T)
        done = middle_of(work[:, :, 0].T)
        level = times - np.where(np.isfinite(done), done, 0.0)
        return float(np.nan_to_num(np.nanmedian(level[since:]) - np.nanmedian(level[:since])))
