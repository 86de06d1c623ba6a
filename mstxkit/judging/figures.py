"""The figures of the steps that were judged last: by role, and by the public names that `mstxkit.metrics()` gives."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Container, Iterable, Iterator, Mapping

import numpy as np

from ..store.job_file import LATE_AT_MOST, STAGES_AT_MOST, Latecomer, RoleFigures, StageFigures
from ..store.metrics_setting import NOTHING_KNOWN, Flops
from .evidence import RoleStep

if TYPE_CHECKING:
    from .evidence import Seconds

PREFIX = "mstxkit"
_NS = 1e9
# Less late than this is no lateness: clocks and schedulers.
_LATE_FROM_S = 1e-3


def of_step(
    step: RoleStep, origin_ns: int = 0, flops: Flops = NOTHING_KNOWN, waiting_in: Container[str] = ()
) -> RoleFigures:
    """Of each stage the longest time of a member, the median, who is slowest, and tokens a second where they are known;
    which share of the step a member waits for the last to come; and who came last.

    Args:
        step: As it was judged.
        origin_ns: Wall clock at which its times count 0.
        flops: What a token costs, and what a device can do.
        waiting_in: Stages in which members wait for each other.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of slices that are all NaN
        stages = tuple(_of_stage(step, number, origin_ns, flops, waiting_in) for number in _shown(step))
        begin_s, end_s = float(np.nanmin(step.entered_s)), float(np.nanmax(step.left_s))
        return RoleFigures(
            step.role, step.step, len(step.members), _wait_ratio(step), origin_ns + round(begin_s * _NS),
            origin_ns + round(end_s * _NS), stages, tuple(_late(step)),
        )  # fmt: skip


def _shown(step: RoleStep) -> list[int]:
    """Stages that anybody was in."""
    was_in = np.flatnonzero(np.isfinite(step.total_s).any(axis=0))
    return [int(number) for number in was_in[:STAGES_AT_MOST]]


def _of_stage(step: RoleStep, number: int, origin_ns: int, flops: Flops, waiting_in: Container[str]) -> StageFigures:
    stage, total_s = step.stages[number], step.total_s[:, number]
    members = int(np.isfinite(total_s).sum())
    longest_s, tokens = float(np.nanmax(total_s)), float(np.nansum(step.work.tokens[:, number]))
    tokens_per_s = tokens / longest_s if tokens > 0 and longest_s > 0 else None
    return StageFigures(
        stage, longest_s, float(np.nanmedian(total_s)), _slowest(step, number, stage in waiting_in),
        origin_ns + round(float(np.nanmin(step.entered_s[:, number])) * _NS),
        origin_ns + round(float(np.nanmax(step.left_s[:, number])) * _NS), members, tokens_per_s,
        None if tokens_per_s is None else flops.mfu_ratio(stage, tokens_per_s, members),
    )  # fmt: skip


def _slowest(step: RoleStep, number: int, is_waiting: bool) -> int | None:
    """The rank with the longest time; where members wait for each other, the last to come: they wait for that one."""
    is_worker = np.array([not peer.is_controller for peer in step.members])
    compared = np.flatnonzero(is_worker & np.isfinite(step.entered_s[:, number]))
    if not len(compared):
        return None
    came_s = step.entered_s[compared, number]
    last = int(came_s.argmax())
    is_late = came_s[last] - came_s.min() >= max(_LATE_FROM_S, step.error_s[compared[last]])
    slowest = last if is_waiting and is_late else int(np.nanargmax(step.total_s[compared, number]))
    rank: int | None = step.members[compared[slowest]].rank
    return rank


def _wait_ratio(step: RoleStep) -> float:
    kept = np.array([not peer.is_controller for peer in step.members])
    entered_s, left_s = step.entered_s[kept], step.left_s[kept]
    if len(entered_s) < 2:
        return 0.0
    lasts_s = float(np.nanmax(left_s) - np.nanmin(entered_s))
    return min(1.0, float(np.nanmax(_waits_s(entered_s), initial=0.0)) / lasts_s) if lasts_s > 0 else 0.0


def _waits_s(entered_s: Seconds) -> Seconds:
    return np.asarray(np.nanmean(np.nanmax(entered_s, axis=0) - entered_s, axis=0))


def _late(step: RoleStep) -> Iterator[Latecomer]:
    """Who entered a stage later than half of the others did, each where that was worst."""
    late_s = step.entered_s - np.nanmedian(step.entered_s, axis=0)
    late_s[np.isnan(late_s) | np.array([peer.is_controller for peer in step.members])[:, None]] = 0.0
    worst_s = late_s.max(axis=1, initial=0.0)
    first = np.argsort(-worst_s, kind="stable")[:LATE_AT_MOST]
    for member in first[worst_s[first] >= np.maximum(_LATE_FROM_S, step.error_s[first])]:
        peer, stage = step.members[member], step.stages[int(late_s[member].argmax())]
        yield Latecomer(peer.rank, peer.host, stage, float(worst_s[member]))


def together(roles: Iterable[RoleFigures], blaming: int) -> dict[str, float]:
    """By their public names: each stage as the role that has it; the most that anybody waits."""
    values: dict[str, float] = {}
    wait_ratio = 0.0
    for role in roles:
        for stage in role.stages:
            values.update(_by_name(stage))
        wait_ratio = max(wait_ratio, role.wait_ratio)
        values[f"{PREFIX}/wait_ratio"] = wait_ratio
    return {**values, f"{PREFIX}/verdicts": float(blaming)} if values else {}


def _by_name(stage: StageFigures) -> Mapping[str, float]:
    name = f"{PREFIX}/time_s/{stage.stage}"
    values: dict[str, float | None] = {
        f"{name}/max": stage.max_s, f"{name}/median": stage.median_s, f"{name}/slowest_rank": stage.slowest_rank,
        f"{PREFIX}/tokens_per_s/{stage.stage}": stage.tokens_per_s, f"{PREFIX}/mfu/{stage.stage}": stage.mfu_ratio,
    }  # fmt: skip
    return {key: float(value) for key, value in values.items() if value is not None}
