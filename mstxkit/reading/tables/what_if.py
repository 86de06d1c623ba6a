"""`Run.what_if()`: how long a step would take without a straggler, a wait, a slow link, a long tail.

Of async jobs also: with other numbers of trainers and rollouts.

Each row replays the steps of a role with changed times of its members: where members wait for each other, all go on
when the last of them has come.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from ...judging import meeting
from ...judging.cutting import BEFORE
from ...judging.evidence import Peer
from ...judging.measuring import BEHIND_GAP, FREE, INSIDE, UNKNOWN, WAITS
from ...stages import canonical_key
from ...store import verdicts as verdict_kinds
from ...store.values import finite_number
from ...store.verdicts import ALL_SLOW, COMMUNICATION, Verdict
from ...triggers.late_rank import middle_of
from .. import replay
from ..frames import make_schema
from ..report.units import write_spans
from ..role_runs import RoleRun, Seconds, shown_ns
from . import split, stragglers

STRAGGLER, ALONE, BUBBLE, LINK = "straggler", "alone", "bubble", "link"
TAIL, CHANGE, SPLIT = "tail", "change", "split"
SCHEMA = make_schema(
    "kind role stage where rank group trainers rollouts first_step last_step step_ns without_ns saved_ns saved_ratio "
    "error_ratio who steps"
)
# So many of each kind and role are gone through; of steps with many collectives so many.
_STRAGGLERS_AT_MOST, _STEPS_SAMPLED = 12, 100
# Few are told of where at most so much of what the last one takes too long is of others, in so many steps of each of
# several, from such a share of the run's time on, beyond what one saves alone; of steps most of which show it.
_OF_OTHERS, _STEPS_EACH, _SAVES_LEAST, _BEYOND_ONE, _MOSTLY, _APART = 0.2, 8, 0.05, 1.2, 0.8, 2.0
# What several have become slower in, as the judge says it.
_KIND_OF = {ALL_SLOW: CHANGE, COMMUNICATION: LINK, verdict_kinds.LINK: LINK}
TAIL_STAGES = ("actor_generate",)


def table(
    runs: tuple[RoleRun, ...], verdicts: Sequence[Verdict] = (), asked: split.AskedSplit | None = None
) -> pl.DataFrame:
    """What saves most first. `step_ns`: how long a step took from `first_step` to `last_step`, in the mean;
    `without_ns`: how long it would have taken. `error_ratio`: so far may `saved_ratio` be off, of a `split`: the more,
    the farther its numbers are from those that were recorded. `steps`: in so many of them it is seen, where that is not
    in most.

    - `straggler`: with `rank`, and those that are slow together with it (a host), as fast as the others for their work;
      of `group`, with all of these few, of whom nearly always one is last.
    - `alone`: without what less than half of them do in `stage`, by `rank` or `group` as above.
    - `bubble`: if all came at the same time to where they wait, in (or before) `stage`, or to collectives inside of it.
    - `link`: with the collectives of the ranks of `group` as fast as before, or as those of other groups.
    - `tail`: if nobody was longer in the stage than the member in the middle.
    - `change`: with the stage as fast for its work as before the step from which on all were slower, or as in others.
    - `split`: of an async job, with so many `trainers` and `rollouts`; what is saved may be less than nothing.

    Verdicts also tell since when all are slower. Raises ReadError: nothing tells of the split that is `asked` for.
    """
    rows = [row for run in runs for row in _of_role(runs, run, verdicts)] + list(split.weigh_splits(runs, SPLIT, asked))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("saved_ratio", descending=True, maintain_order=True)


def _of_role(runs: tuple[RoleRun, ...], run: RoleRun, verdicts: Iterable[Verdict]) -> Iterator[tuple[Any, ...]]:
    named = stragglers.of_role(runs, run, verdicts)[:_STRAGGLERS_AT_MOST]
    for slow in named:
        steps = slow.since, slow.until
        yield _make_row(run, STRAGGLER, slow.piece, slow.saved, slow.where, run.members[slow.member], steps)
    every, changes = range(len(run.steps)), list(_list_changes(runs, run, verdicts))
    for piece in range(len(run.kinds)):
        yield from _last_few(runs, run, piece, [slow for slow in named if slow.piece == piece])
        if run.mode[piece] in (WAITS, FREE, UNKNOWN) and run.stage(piece) not in {row[2] for row in changes}:
            yield from _few_steps(runs, run, piece)
        if run.waits[piece] and np.nansum(run.wait_s[:, :, piece]) > 0:
            # All come to it at the same time: since they last waited, each takes the mean.
            own: Seconds = run.busy_s
            for before in run.since_met(piece).tolist():
                own[:, :, before] = _mean_met(run, own[:, :, before], before)
            less = replay.take_away(run, run.own_s - own)
            yield _make_row(run, BUBBLE, piece, replay.saved_s(runs, run, less, every), run.where(piece))
        steps_told = np.flatnonzero((run.uneven_s[:, :, piece] > 0).any(axis=1))
        if len(some := steps_told[:: 1 + len(steps_told) // _STEPS_SAMPLED]):
            # What each has for itself between the collectives of it, beyond the mean of all.
            inside_s, uneven_s = run.inside_s[some, :, piece], np.zeros(run.own_s.shape)
            over_s = np.fmax(inside_s - _mean_met(run, inside_s, piece), run.uneven_s[some, :, piece])
            uneven_s[some, :, piece] = np.fmin(over_s, inside_s)
            less = replay.take_away(run, uneven_s, is_inside=True)
            yield _make_row(run, BUBBLE, piece, replay.saved_s(runs, run, less, some), INSIDE)
        if not run.waits[piece] and canonical_key(run.stage(piece)) in TAIL_STAGES and not run.is_gap[piece]:
            own_s = run.own_s[:, :, piece]
            with np.errstate(all="ignore"):
                less = _taken_from(run, piece, np.fmax(own_s - middle_of(own_s.T)[:, None], 0.0))
            yield _make_row(run, TAIL, piece, replay.saved_s(runs, run, less, every), "in")
    yield from changes


def _make_row(
    run: RoleRun, kind: str, piece: int, saved: tuple[float, float], where: str, peer: Peer | None = None,
    steps: tuple[int, int] | None = None, group: Iterable[int | None] = (), seen_steps: int | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    (since, until), (step_s, saved_s) = steps or (0, len(run.steps)), saved
    ranks = write_spans(rank for rank in group if rank is not None)
    who = peer.who if peer else f"ranks {ranks}" if kind in (STRAGGLER, ALONE) else None
    return (
        kind, run.role, run.stage(piece), where, peer and peer.rank, ranks or None, None, None, int(run.steps[since]),
        int(run.steps[until - 1]), shown_ns(step_s), shown_ns(step_s - saved_s), shown_ns(saved_s),
        saved_s / step_s if step_s > 0 else None, None, who, seen_steps,
    )  # fmt: skip


def _last_few(
    runs: tuple[RoleRun, ...], run: RoleRun, piece: int, named: Sequence[stragglers.Straggler]
) -> Iterator[tuple[Any, ...]]:
    """The few of whom nearly always one is last, where they cost more than whoever is `named`: their times tell that,
    also of too few steps to be judged, and of what is seen now and then.
    """
    own_s = run.own_s[:, :, piece]
    are_alone = not run.is_gap[piece] and 2 * np.isfinite(own_s).any(axis=0).sum() < len(run.members)
    usual_s = 0.0 * own_s if are_alone else run.expected_s(np.fmax(run.excess[:, :, piece], 0.0), own_s)
    over_s = np.nan_to_num(own_s - usual_s)
    few, late = _find_last(over_s)
    if len(few) > 1 and not are_alone:  # held to the others, not to the middle of all, where they are many
        of_others = np.delete(own_s - run.expected_s(run.excess[:, :, piece], own_s), few, axis=1)
        over_s[:, few] += (over_s[:, few] > 0) * np.nan_to_num(np.fmax(-middle_of(of_others.T), 0.0))[:, None]
    ranks, least_s = [run.members[member].rank for member in few], _SAVES_LEAST * run.step_s() * len(run.steps)
    if not ranks or over_s.max(axis=1).sum() < least_s or (None in ranks and ranks != [None]):
        return
    steps, seen_steps = _find_span(run, late)
    saved = replay.saved_s(runs, run, _taken_from(run, piece, over_s, few), range(*steps))
    if saved[1] >= max([least_s / (steps[1] - steps[0]), *(_BEYOND_ONE * slow.saved[1] for slow in named)]):
        peer, group = (None, ranks) if len(few) > 1 else (run.members[few[0]], ())
        kind = ALONE if are_alone else STRAGGLER
        yield _make_row(run, kind, piece, saved, run.where(piece), peer, steps, group, seen_steps)


def _find_last(over_s: Seconds) -> tuple[list[int], list[int]]:
    """Members without whom next to nothing is left of what the last one takes too long, as few as that takes, and the
    steps in which that is much; nobody where these are many, several in few steps, or hardly apart from the others.
    """
    sums_s, peak_s = over_s.sum(axis=0), over_s.max(axis=1)
    order = np.argsort(-sums_s, kind="stable")
    rest_s = np.maximum.accumulate(over_s[:, order[::-1]], axis=1).sum(axis=0)[::-1]  # without the first so many
    few = order[: np.count_nonzero(rest_s > _OF_OTHERS * rest_s[0])].tolist()
    late = np.flatnonzero(peak_s >= stragglers.half_of_much(peak_s)).tolist()
    are_apart = sums_s[few[-1:]].sum() > _APART * sums_s[order[len(few) : len(few) + 1]].sum()
    are_few = len(few) == 1 or (2 * len(few) <= len(order) and len(late) >= _STEPS_EACH * len(few))
    return (few, late) if are_few and are_apart and len(order) > 1 else ([], [])


def _find_span(run: RoleRun, late: Sequence[int]) -> tuple[tuple[int, int], int | None]:
    """From the first to behind the last of these steps; where they are not most of those, all steps, and how many."""
    since, until = int(late[0]), int(late[-1]) + 1
    is_dense = len(late) >= _MOSTLY * (until - since)
    return ((since, until), None) if is_dense else ((0, len(run.steps)), len(late))


def _mean_met(run: RoleRun, own_s: Seconds, piece: int) -> Seconds:
    """(T, M) the mean of all whom each meets in a piece; NaN where one is not there."""

    def mean(values: Seconds) -> Seconds:
        count = np.maximum(1, np.isfinite(values).sum(axis=0))
        return np.where(np.isfinite(values), np.nansum(values, axis=0) / count, np.nan)

    return np.asarray(meeting.by_group(own_s.T, run.labels[:, piece], mean).T)


def _taken_from(run: RoleRun, piece: int, less_s: Seconds, members: Any = slice(None)) -> replay.Taken:
    """(T, M) seconds less in one piece, of these members."""
    every: Seconds = np.zeros(run.own_s.shape)
    every[:, members, piece] = less_s[:, members]
    return replay.take_away(run, every)


def _list_changes(runs: tuple[RoleRun, ...], run: RoleRun, verdicts: Iterable[Verdict]) -> Iterator[tuple[Any, ...]]:
    """What all, or all of a group, have become slower in, by as much as the judge says that it takes longer."""
    for verdict in verdicts:
        is_of_role = (verdict.role or "") == run.role and verdict.rank is None and verdict.kind in _KIND_OF
        places = [at for at in range(len(run.kinds)) if run.stage(at) == verdict.stage]
        if not is_of_role or not places or verdict.since_step is None or not verdict.is_blaming:
            continue
        since, until = int(np.searchsorted(run.steps, verdict.since_step)), len(run.steps)
        if since < until:
            at = max(places, key=lambda at: run.is_gap[at] == (verdict.evidence.get("where") in (BEFORE, BEHIND_GAP)))
            less_s = np.minimum(run.own_s[:, :, at], finite_number(verdict.evidence.get("lost_s")) or 0.0)
            less_s[:since] = 0.0
            members = [member for member, rank in enumerate(run.ranks) if not verdict.group or rank in verdict.group]
            saved = replay.saved_s(runs, run, _taken_from(run, at, less_s, members), range(since, until))
            yield _make_row(run, _KIND_OF[verdict.kind], at, saved, run.where(at), None, (since, until), verdict.group)


def _few_steps(runs: tuple[RoleRun, ...], run: RoleRun, piece: int) -> Iterator[tuple[Any, ...]]:
    """The steps, less than half, in which all take far longer than in the others, by more than work or waiting."""
    own_s, work = run.own_s[:, :, piece], middle_of(run.work[:, :, piece].swapaxes(0, 1))
    if run.mode[piece] == UNKNOWN:  # perhaps for the last of them
        came_s = np.fmax.reduce(run.came_s[:, :, piece], axis=1, keepdims=True)
        own_s = np.minimum(own_s, np.fmax(run.done_s[:, :, piece] - came_s, 0.0))
    with np.errstate(all="ignore"):
        more_work = np.fmax(np.fmax.reduce(work / middle_of(work), axis=1), 1.0)
    level_s = middle_of(own_s.T)
    longer_s = np.nan_to_num(np.fmax(level_s - middle_of(level_s) * more_work, 0.0))
    late = np.flatnonzero(longer_s >= max(1e-9, stragglers.half_of_much(longer_s)))
    rest_s, least_s = np.delete(longer_s, late), _SAVES_LEAST * run.step_s() * len(run.steps)
    if 0 < len(late) < len(rest_s) and longer_s[late].min() > _APART * rest_s.max() and longer_s[late].sum() >= least_s:
        less_s = np.where(longer_s > rest_s.max(), longer_s, 0.0)[:, None]
        steps, seen_steps = _find_span(run, late.tolist())
        saved = replay.saved_s(runs, run, _taken_from(run, piece, np.minimum(own_s, less_s)), range(*steps))
        yield _make_row(run, CHANGE, piece, saved, run.where(piece), None, steps, (), seen_steps)
