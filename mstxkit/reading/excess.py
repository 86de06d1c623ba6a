"""How much longer a member takes than the others for the same work: waiting is no part of it.

The logarithm of a time is predicted from tokens, responses and the longest response. What one member has more of in
every step tells nothing of what work costs, so that only how its work changes from step to step is learned from. Where
nobody's work ever changes, it explains what goes in proportion to it, and no more.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..judging.meeting import after_those
from ..triggers.late_rank import middle_of
from .role_runs import RoleRun, Seconds

# Of a step: times shorter than that are all alike.
BASE_RATIO = 1e-3
# Standard deviations that are taken for noise, step by step, where a stretch of slow steps is looked for.
_SLACK = 0.75
# Standard deviations, added up, from which on a stretch counts; and times the sum of the stretch in which a member was
# quicker than the others: noise of real machines goes both ways, in bouts, and is not normal.
_SURE_FROM, _OVER_QUICKER = 9.0, 3.0
_STEPS_TO_LEARN = 8
LEAST_NOISE = 0.005


class SlowStretches(NamedTuple):
    """The steps in which each member was slow in each piece; (M, K) each.

    Args:
        since, until: Places of the first step and of the one after the last.
        steps: In so many of them it was seen.
        effect: Mean logarithm of time over expected time there.
        confidence: 0 to 1: how sure it is that this is no chance, however many members and steps were looked at.
        stands_out: Is it far more than noise makes of this member: than the steps in which it was quicker than others?
    """

    since: npt.NDArray[np.int64]
    until: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    effect: Seconds
    confidence: Seconds
    stands_out: npt.NDArray[np.bool_]


def of_own(run: RoleRun) -> Seconds:
    """(T, M, K) logarithm of own time over what is expected for its work; NaN: not there, or alone there."""
    return run.once("excess of own", lambda: _excess(run, run.own_s, ~run.waits))


def of_inside(run: RoleRun) -> Seconds:
    """The same of the time between collectives, in the steps of which these tell."""
    return run.once("excess inside", lambda: _excess(run, run.inside_s, np.ones(len(run.kinds), bool)))


def base_s(run: RoleRun) -> float:
    """What is added to each time before it is compared."""
    return max(1e-6, BASE_RATIO * run.step_s())


def _excess(run: RoleRun, time_s: Seconds, by_work: npt.NDArray[np.bool_]) -> Seconds:
    with np.errstate(all="ignore"):
        times = np.log(time_s + base_s(run))
        work = np.log(np.where(run.work > 0, run.work, np.nan))
        excess = np.empty_like(times)
        for piece in range(times.shape[2]):
            own = times[:, :, piece]
            if by_work[piece]:
                own = own - _predicted(own, work[:, :, piece])
            excess[:, :, piece] = after_those(own.T, run.labels[:, piece]).T
            is_alone = np.isfinite(own).astype(int) @ (run.labels[:, piece] == run.labels[:, piece][:, None]) == 1
            excess[:, :, piece][is_alone] = np.nan
    return excess


def _predicted(times: Seconds, work: Seconds) -> Seconds:
    """(T, M) what the work explains of each time; (T, M, F) work, NaN where it is not known."""
    features = work - _middle(work)
    features = np.nan_to_num(features)
    is_of_use = features.std(axis=(0, 1)) > 1e-9
    if not is_of_use.any():
        return np.zeros_like(times)
    features = features[:, :, is_of_use]
    varying, target = features - features.mean(axis=0, keepdims=True), times - _middle(times)
    if not (varying.std(axis=(0, 1)) > 1e-9).any():  # each does the same in all steps: in proportion to it, at most
        return np.asarray(features @ np.clip(slopes(features[np.isfinite(target)], target[np.isfinite(target)]), 0, 1))
    if len(times) < _STEPS_TO_LEARN:
        varying = features
    else:
        target = target - middle_of(target)[None]
    return np.asarray(features @ slopes(varying[np.isfinite(target)], target[np.isfinite(target)]))


def slopes(features: Seconds, target: Seconds) -> Seconds:
    """Least squares, and a second time with less weight for what lies far out. *Shape*: (S, F) and (S,) to (F,)."""
    factors, weights = np.zeros(features.shape[1]), np.ones(len(target))
    ridge = 1e-6 * np.eye(features.shape[1]) * max(1.0, float((features**2).sum()))
    for _ in range(2):
        weighted = features * weights[:, None]
        factors = np.linalg.lstsq(weighted.T @ features + ridge, weighted.T @ target, rcond=None)[0]
        rest = np.abs(target - features @ factors)
        weights = np.minimum(1.0, 3 * np.median(rest) / np.maximum(rest, 1e-12)) if len(rest) else weights
    return np.asarray(factors)


def _middle(values: Seconds) -> Seconds:
    """The middle over members, of (T, M) or (T, M, F)."""
    return middle_of(np.moveaxis(values, 1, 0))[:, None]


def noise_of(excess: Seconds) -> Seconds:
    """(K,) standard deviation of excesses in healthy steps: by the middle, so that few slow ones do not count."""
    with np.errstate(all="ignore"):
        changes = np.abs(np.diff(excess, axis=0)).reshape(-1, excess.shape[2])
        noise = np.nan_to_num(middle_of(changes)) / (0.6745 * math.sqrt(2))
    return np.asarray(np.maximum(noise, LEAST_NOISE))


def stretches(excess: Seconds) -> SlowStretches:
    """The steps in which each member was slower than the others, all in all.

    Args:
        excess: (T, M, K), as of `of_own`.
    """
    noise = noise_of(excess)
    seen = np.isfinite(excess)
    values = np.where(seen, np.clip(excess / noise, -4, 4) - _SLACK, 0.0)
    since, until, most = _longest(values)
    quicker = np.where(seen, np.clip(-excess / noise, -4, 4) - _SLACK, 0.0)
    stands_out = (most >= _SURE_FROM) & (most >= _OVER_QUICKER * _longest(quicker)[2])
    since, until = _closer(excess, seen, since, until)
    steps, effect = _in_between(excess, seen, since, until)
    compared = max(1, int(seen.any(axis=0).sum())) * max(1, len(excess))
    with np.errstate(all="ignore"):
        deviations = effect / noise * np.sqrt(steps)
    chance = np.array([math.erfc(max(0.0, d) / math.sqrt(2)) / 2 for d in np.nan_to_num(deviations).ravel()])
    confidence = np.clip(1 - chance.reshape(steps.shape) * compared, 0.0, 1.0)
    return SlowStretches(since, until, steps, effect, confidence, stands_out)


def _closer(
    excess: Seconds, seen: npt.NDArray[np.bool_], since: npt.NDArray[np.int64], until: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The same stretches without steps at their ends that are nearer to none than to the mean: these came by chance."""
    half = _in_between(excess, seen, since, until)[1] / 2
    at = np.arange(len(excess))[:, None, None]
    is_inside = (at >= since) & (at < until)
    values = np.where(is_inside, np.where(seen, np.clip(excess - half, -half, half), 0.0), -np.inf)
    begin, end, most = _longest(values)
    return np.where(most > 0, begin, since), np.where(most > 0, end, until)


def _longest(values: Seconds) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Seconds]:
    """(M, K) first place and the one after the last of the stretch with the largest sum, and that sum."""
    shape = values.shape[1:]
    total, best = np.zeros(shape), np.zeros(shape)
    begin, since, until = (np.zeros(shape, np.int64) for _ in range(3))
    for at, now in enumerate(values):
        begin = np.where(total <= 0, at, begin)
        total = np.maximum(0.0, total) + now
        is_best = total > best
        best, since, until = (
            np.where(is_best, total, best),
            np.where(is_best, begin, since),
            np.where(is_best, at + 1, until),
        )
    return since, until, best


def _in_between(
    excess: Seconds, seen: npt.NDArray[np.bool_], since: npt.NDArray[np.int64], until: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], Seconds]:
    """(M, K) steps that were seen from one place to another, and the mean over them."""
    zero = np.zeros((1, *since.shape))
    counts = np.concatenate([zero, np.cumsum(seen, axis=0)])
    sums = np.concatenate([zero, np.cumsum(np.where(seen, excess, 0.0), axis=0)])

    def between(cumulated: Seconds) -> Seconds:
        ends = (np.take_along_axis(cumulated, place[None], axis=0)[0] for place in (until, since))
        return np.asarray(next(ends) - next(ends))

    steps = between(counts)
    return steps.astype(np.int64), np.asarray(between(sums) / np.maximum(1, steps))
