"""What an async job would do with other numbers of trainers and rollouts: rows of `Run.what_if()`.

Rollouts make batches, trainers use them up; each waits for the other where it has to. What a share of the work costs is
learned from how times change with tokens from step to step: a stage that tells of none takes as long as before. Steps
are then gone through once more, with another share of each batch for everybody.
"""

from __future__ import annotations

import math
from typing import Any, Iterator, NamedTuple

import numpy as np

from ...errors import ReadError
from ...judging.columns import LEAST_NOISE
from ...stages import canonical_key
from .. import replay
from ..role_runs import RoleRun, Seconds, shown_ns

MAKES, USES = ("actor_generate",), ("actor_update", "actor_compute_log_prob")
# Moved from one side to the other, as shares of the smaller side.
_MOVED = (0.125, 0.25, 0.5)
# What is supposed of a stage before its steps are looked at: twice the tokens take twice as long, more or less.
_SUPPOSED, _MORE_OR_LESS = (1.0, 0.0), 0.3
# Of its mean time; and members of which the last one counts.
_SHORTEST, _MEMBERS_AT_MOST = 0.05, 4096
_ALIKE, _SPREAD = 0.2, 0.618
# How far off simulated jobs were at most, with costs that nothing tells of: of the same numbers, and of twice as many.
_OFF_AT_LEAST, _OFF_BY_TWICE = 0.02, 0.1


class AskedSplit(NamedTuple):
    """Numbers that somebody asks for; None: as many as there are."""

    trainers: int | None = None
    rollouts: int | None = None


def asked_for(trainers: int | None, rollouts: int | None) -> AskedSplit | None:
    """What is asked for; None: nothing. Raises ReadError: a number is below 1."""
    if any(number is not None and number < 1 for number in (trainers, rollouts)):
        raise ReadError(f"trainers={trainers}, rollouts={rollouts}: give whole numbers from 1 on")
    return None if trainers is None and rollouts is None else AskedSplit(trainers, rollouts)


def weigh_splits(runs: tuple[RoleRun, ...], kind: str, asked: AskedSplit | None = None) -> Iterator[tuple[Any, ...]]:
    """Rows of that kind, with the one that is asked for; none where no two roles make and use up tokens.
    Raises ReadError: nothing tells of what is asked for.
    """
    rollouts = next((run for run in runs if _has_stages(run, MAKES) and not _has_stages(run, USES)), None)
    trainers = next((run for run in runs if _has_stages(run, USES) and not _has_stages(run, MAKES)), None)
    if rollouts is None or trainers is None:
        _refuse_numbers(asked, "one role generates and another one trains")
        return
    if not all(np.nansum(run.work[..., 0]) > 0 for run in (rollouts, trainers)):
        _refuse_numbers(asked, "both roles tell of their tokens (attribute tokens)")
        return
    n, m, step_s = len(trainers.members), len(rollouts.members), trainers.step_s()
    now_s = _step_s(trainers, rollouts, n, m)
    if not (now_s > 0 and step_s > 0):
        _refuse_numbers(asked, "steps take some time")
        return
    moves = sorted({round(min(n, m) * share) for share in _MOVED} - {0})
    moved = [(n + more, m - more) for more in [*(-move for move in reversed(moves)), *moves]]
    first = [] if asked is None else [(asked.trainers or n, asked.rollouts or m)]
    for more_trainers, more_rollouts in dict.fromkeys([*first, *(split for split in moved if min(split) > 0)]):
        then_s = step_s * _step_s(trainers, rollouts, more_trainers, more_rollouts) / now_s
        off = _OFF_AT_LEAST + _OFF_BY_TWICE * math.hypot(math.log2(more_trainers / n), math.log2(more_rollouts / m))
        yield (
            kind, trainers.role, None, None, None, None, more_trainers, more_rollouts, int(trainers.steps[0]),
            int(trainers.steps[-1]), shown_ns(step_s), shown_ns(then_s), shown_ns(step_s - then_s),
            1 - then_s / step_s, then_s / step_s * off, None, None,
        )  # fmt: skip


def _refuse_numbers(asked: AskedSplit | None, needed: str) -> None:
    if asked is not None:
        raise ReadError(f"what other numbers of trainers and rollouts do is known only of a run in which {needed}")


def _has_stages(run: RoleRun, stages: tuple[str, ...]) -> bool:
    return any(canonical_key(kind.stage) in stages for kind in run.kinds)


def _step_s(trainers: RoleRun, rollouts: RoleRun, n: int, m: int) -> float:
    """How long a step takes with so many, in the mean."""
    # Own times with so many times the work for each member, and nothing to wait for before a step.
    own_s: Seconds = trainers.own_s.copy()
    own_s[:, :, 0] = np.fmin.reduce(own_s[:, :, 0], axis=0)
    for piece in np.flatnonzero(~trainers.is_gap).tolist():  # who has most says how long all take: they meet
        most_s, most = (np.fmax.reduce(values[:, :, piece], axis=1) for values in (own_s, trainers.work[..., :1]))
        cost = _Cost(most_s, most)
        own_s[:, :, piece] *= (cost.times(most * (len(trainers.members) / n)) / cost.times(most))[:, None]
    uses_s = replay.lengths_s(trainers, own_s)
    makes_s = _shared_out(rollouts, min(m, max(_MEMBERS_AT_MOST, len(rollouts.members))))
    # So many batches rollouts were seen to be ahead; 1 at least, or else nothing would go on at once.
    begun, used = np.fmin.reduce(rollouts.came_s[:, :, ~rollouts.is_gap], axis=2), trainers.spans_s()[1]
    in_use = trainers.steps[np.minimum(np.searchsorted(used, begun, "right"), len(used) - 1)]
    ahead = int((rollouts.steps[:, None] - in_use).max(where=np.isfinite(begun), initial=0))
    # Steps of rollouts in the time of one of trainers, by how fast both went on.
    ended = ((run.steps, run.spans_s()[1]) for run in (trainers, rollouts))
    a_step_s, other_s = (float(ends[-1] - ends[0]) / max(1, int(steps[-1] - steps[0])) for steps, ends in ended)
    ratio = a_step_s / other_s if a_step_s > 0 and other_s > 0 else 1.0
    return find_pace(uses_s, makes_s * (1.0 if abs(ratio - 1) < _ALIKE else ratio), max(1, min(ahead, len(used))))


def find_pace(uses_s: Seconds, makes_s: Seconds, ahead: int) -> float:
    """How long a step takes, in the mean: trainers begin with a whole batch, rollouts go on while few batches wait.

    Args:
        uses_s: (T,) seconds that trainers need for a batch.
        makes_s: (S, M) seconds that each rollout needs for its share of one; gone through again from its begin.
        ahead: So many batches may be begun beyond the one that is used.
    """
    over, free = np.zeros(len(uses_s) + ahead + 1), np.zeros(makes_s.shape[1])  # of earlier batches there are zeros
    for at, use_s in enumerate(uses_s):
        free = np.maximum(free, over[at]) + makes_s[at % len(makes_s)]
        over[at + ahead + 1] = max(over[at + ahead], free.max()) + use_s
    first = ahead + 1 if len(uses_s) > 1 else 0
    return float(over[-1] - over[first]) / max(1, len(uses_s) - 1)


def _shared_out(run: RoleRun, count: int) -> Seconds:
    """(T, count) seconds that so many members need for the same work, shared out among them anew."""
    took_s = np.nan_to_num(run.own_s[:, :, ~run.is_gap]).sum(axis=2)
    work = run.work[:, :, int(np.nansum(run.work[..., 0], axis=(0, 1)).argmax()), ::2]
    cost, (tokens, longest) = _Cost(took_s, work), np.moveaxis(np.nan_to_num(work), 2, 0)
    there, rows = took_s.shape[1], np.arange(len(work))[:, None]
    edges = np.union1d(np.arange(there + 1) * count, np.arange(count + 1) * there)
    # (P,) of what members had, cut so that others get equal shares: whose, from where in it, how much, for whom.
    member, at = edges[:-1] // count, edges[:-1] // there
    begin, share = edges[:-1] % count / count, np.diff(edges) / count
    # In another step a part is like one of its size: only one part has what was the longest of all.
    elsewhere = (rows + (_SPREAD * len(work) * np.arange(len(share))).astype(np.int64)) % len(work)
    values = np.sort(longest, axis=None)
    places = ((np.searchsorted(values, longest) + 0.5) / values.size)[elsewhere, member] ** (1 / share)
    has_longest = (((rows + member) * _SPREAD) % 1 - begin) % 1 < share
    whole = longest[:, member]
    longest_there = np.where(has_longest, whole, np.minimum(np.quantile(values, places), whole))
    others, shares = tokens.copy(), np.zeros((len(work), count, 2))
    np.subtract.at(others.T, member, longest_there.T)
    np.add.at(shares[..., 0].T, at, (share * others[:, member] + longest_there).T)
    np.maximum.at(shares[..., 1].T, at, longest_there.T)
    rest = np.ones((len(work), count))
    rest[:, at] = (took_s / cost.times(work))[np.where(has_longest, rows, elsewhere), member]
    return np.asarray(cost.times(shares) * rest)


class _Cost:
    """How long a stage takes, by tokens and the longest response, as its times tell.

    Args:
        times_s: (…) seconds.
        work: (…, F) of each; NaN: not known.
    """

    def __init__(self, times_s: Seconds, work: Seconds) -> None:
        with np.errstate(all="ignore"):
            axes = tuple(range(times_s.ndim))
            self._mean_s = float(np.nan_to_num(times_s).sum() / np.isfinite(times_s).sum())
            self._mean = np.nan_to_num(work).sum(axis=axes) / np.isfinite(work).sum(axis=axes)
            longer, more = times_s / self._mean_s - 1, self._more_work(work)
        more, longer = more[np.isfinite(longer)], longer[np.isfinite(longer)]
        # (F,) how much longer a stage takes, for how much more of each there is: by least squares, a second time with
        # less weight for what lies far out; as far as that is not noise.
        learnt, weights, rest = np.zeros(more.shape[1]), np.ones(len(longer)), np.zeros(0)
        ridge = 1e-6 * np.eye(more.shape[1]) * max(1.0, float((more**2).sum()))
        for _ in range(2):
            weighted = more * weights[:, None]
            learnt = np.linalg.lstsq(weighted.T @ more + ridge, weighted.T @ longer, rcond=None)[0]
            rest = np.abs(longer - more @ learnt)
            weights = np.minimum(1.0, 3 * np.median(rest) / np.maximum(rest, 1e-12)) if len(rest) else weights
        noise = max(LEAST_NOISE, float(np.median(rest)) / 0.6745) if len(rest) else 1.0
        supposed, precision = np.array(_SUPPOSED[: more.shape[1]]), more.T @ more / noise**2
        prior = np.eye(len(supposed)) / _MORE_OR_LESS**2
        self._by = supposed + np.linalg.solve(precision + prior, precision @ (learnt - supposed))

    def _more_work(self, work: Seconds) -> Seconds:
        with np.errstate(all="ignore"):
            return np.asarray(np.nan_to_num(work / self._mean - 1))

    def times(self, work: Seconds) -> Seconds:
        """(…) seconds for so much work."""
        return np.asarray(self._mean_s * np.maximum(_SHORTEST, 1 + self._more_work(work) @ self._by))
