"""The figures of the steps that were judged last, by their public names: what `mstxkit.metrics()` gives."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Iterable

import numpy as np

from .evidence import RoleStep

if TYPE_CHECKING:
    from .evidence import Seconds

PREFIX = "mstxkit"
_STAGES_AT_MOST = 64
_WAIT = f"{PREFIX}/wait_ratio"


def of_step(step: RoleStep) -> dict[str, float]:
    """Of each stage the time of its slowest member, who that is, the median, and tokens a second where they are known;
    and which share of the step a member waits for the last to come, in the stage in which that is most.
    """
    values: dict[str, float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of slices that are all NaN
        for number, stage in enumerate(step.stages[:_STAGES_AT_MOST]):
            values.update(_of_stage(step, number, f"{PREFIX}/time_s/{stage}"))
            tokens, slowest_s = np.nansum(step.work.tokens[:, number]), np.nanmax(step.total_s[:, number])
            if tokens > 0 and slowest_s > 0:
                values[f"{PREFIX}/tokens_per_s/{stage}"] = float(tokens / slowest_s)
        values[_WAIT] = _wait_ratio(step)
    return values


def _of_stage(step: RoleStep, number: int, name: str) -> dict[str, float]:
    total_s = step.total_s[:, number]
    slowest = int(np.nanargmax(total_s))
    values = {f"{name}/max": float(total_s[slowest]), f"{name}/median": float(np.nanmedian(total_s))}
    rank = step.members[slowest].rank
    return values if rank is None else {**values, f"{name}/slowest_rank": float(rank)}


def _wait_ratio(step: RoleStep) -> float:
    kept = np.array([not peer.is_controller for peer in step.members])
    entered_s, left_s = step.entered_s[kept], step.left_s[kept]
    if len(entered_s) < 2:
        return 0.0
    lasts_s = float(np.nanmax(left_s) - np.nanmin(entered_s))
    return min(1.0, float(np.nanmax(_waits_s(entered_s), initial=0.0)) / lasts_s) if lasts_s > 0 else 0.0


def _waits_s(entered_s: Seconds) -> Seconds:
    return np.asarray(np.nanmean(np.nanmax(entered_s, axis=0) - entered_s, axis=0))


def together(of_roles: Iterable[dict[str, float]], blaming: int) -> dict[str, float]:
    """Of all roles: each stage as the role that has it; the most that anybody waits."""
    values: dict[str, float] = {}
    for of_role in of_roles:
        values.update({**of_role, _WAIT: max(of_role[_WAIT], values.get(_WAIT, 0.0))})
    return {**values, f"{PREFIX}/verdicts": float(blaming)} if values else {}
