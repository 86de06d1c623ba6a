"""The figures of the steps that were judged last: by role, and by the public names that `mstxkit.metrics()` gives."""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping

import numpy as np

from ..store.job_file import LATE_AT_MOST, STAGES_AT_MOST, Latecomer, RoleFigures, StageFigures
from ..store.metrics_setting import NOTHING_KNOWN, Flops
from ..triggers.late_rank import middle_of
from .columns import or_zero
from .cutting import IN, Piece
from .evidence import RoleStep, Seconds, Whole
from .measuring import FREE, WAITS
from .shaping import pick_compared

PREFIX = "mstxkit"
_NS = 1e9
# Less late than this is no lateness: clocks and schedulers.
_LATE_FROM_S = 1e-3
NOBODY_KNOWS: Mapping[Piece, int] = {}


def of_step(
    step: RoleStep, origin_ns: int = 0, flops: Flops = NOTHING_KNOWN, modes: Mapping[Piece, int] = NOBODY_KNOWS,
    wait_ratio: float = 0.0,
) -> RoleFigures:  # fmt: skip
    """Of each stage the longest time of a member, the median, who is slowest, and tokens a second where they are known;
    and who came last. A controller's wait is in none of it, but where nobody works: then it has the stages to itself,
    and no members. `origin_ns`: wall clock at which its times count 0. `modes`: where members wait for each other.
    `wait_ratio`: for which share of the step.
    """
    working = pick_compared(step)
    has_work = bool(np.isfinite(working.entered_s).any())
    step = working if has_work else step
    begin_s, end_s = float(np.nanmin(step.entered_s)), float(np.nanmax(step.left_s))
    return RoleFigures(
        step.role, step.step, len(step.members) * has_work, wait_ratio * has_work,
        origin_ns + round(begin_s * _NS), origin_ns + round(end_s * _NS),
        tuple(_stages_of(step, has_work, origin_ns, flops, modes)), tuple(_late_in(step, modes)) if has_work else (),
    )  # fmt: skip


def _stages_of(
    step: RoleStep, has_work: bool, origin_ns: int, flops: Flops, modes: Mapping[Piece, int]
) -> Iterator[StageFigures]:
    """Those that anybody was in: all of them at once, as there may be many, and few members of each."""
    shown = np.flatnonzero(np.isfinite(step.total_s).any(axis=0))[:STAGES_AT_MOST]
    total_s, entered_s = step.total_s[:, shown], step.entered_s[:, shown]
    columns = (
        np.fmax.reduce(total_s, axis=0), middle_of(total_s), np.fmin.reduce(entered_s, axis=0),
        np.fmax.reduce(step.left_s[:, shown], axis=0), np.isfinite(total_s).sum(axis=0) * has_work,
        or_zero(step.work.tokens[:, shown]).sum(axis=0), *_find_slowest(step, total_s, entered_s),
    )  # fmt: skip
    for number, of_stage in zip(shown.tolist(), zip(*(column.tolist() for column in columns))):
        longest_s, median_s, begin_s, end_s, members, tokens, longest, last = of_stage
        stage, tokens_per_s = step.stages[number], tokens / longest_s if tokens > 0 and longest_s > 0 else None
        slowest = last if last >= 0 and modes.get(Piece(IN, stage)) == WAITS else longest
        yield StageFigures(
            stage, longest_s, median_s, step.members[slowest].rank if has_work else None,
            origin_ns + round(begin_s * _NS), origin_ns + round(end_s * _NS), members, tokens_per_s,
            None if tokens_per_s is None else flops.mfu_ratio(stage, tokens_per_s, members),
        )  # fmt: skip


def _find_slowest(step: RoleStep, total_s: Seconds, entered_s: Seconds) -> tuple[Whole, Whole]:
    """(S,) who takes longest, and who came late as the last, for whom those wait who wait; -1: nobody."""
    is_there = np.isfinite(entered_s)
    longest = np.where(is_there & np.isfinite(total_s), total_s, -np.inf).argmax(axis=0)
    came_s = np.where(is_there, entered_s, -np.inf)
    last = came_s.argmax(axis=0)
    late_s = came_s.max(axis=0) - np.where(is_there, entered_s, np.inf).min(axis=0)
    is_late = late_s >= np.maximum(_LATE_FROM_S, step.error_s[last])
    return longest, np.where(is_late, last, -1)


def _late_in(step: RoleStep, modes: Mapping[Piece, int]) -> Iterator[Latecomer]:
    """Who entered a stage in which others may wait for it later than half of them did, each where that was worst."""
    is_free = np.array([modes.get(Piece(IN, stage)) == FREE for stage in step.stages], bool)
    late_s = np.where(is_free, 0.0, or_zero(step.entered_s - middle_of(step.entered_s)))
    worst_s = late_s.max(axis=1, initial=0.0)
    first = np.argsort(-worst_s, kind="stable")[:LATE_AT_MOST]
    for member in first[worst_s[first] >= np.maximum(_LATE_FROM_S, step.error_s[first])]:
        peer, stage = step.members[member], step.stages[int(late_s[member].argmax())]
        yield Latecomer(peer.rank, peer.host, stage, float(worst_s[member]))


def join_figures(roles: Iterable[RoleFigures], blaming: int) -> dict[str, float]:
    """By their public names: each stage as the role that takes longest in it, of those that work; the longest wait."""
    roles = list(roles)
    every = sorted((stage for role in roles for stage in role.stages), key=lambda of: (of.members > 0, of.max_s))
    by_name: dict[str, float | None] = {}
    for stage in {of.stage: of for of in every}.values():
        name = f"{PREFIX}/time_s/{stage.stage}"
        by_name |= {
            f"{name}/max": stage.max_s, f"{name}/median": stage.median_s, f"{name}/slowest_rank": stage.slowest_rank,
            f"{PREFIX}/tokens_per_s/{stage.stage}": stage.tokens_per_s, f"{PREFIX}/mfu/{stage.stage}": stage.mfu_ratio,
        }  # fmt: skip
    values = {key: float(value) for key, value in by_name.items() if value is not None}
    wait_ratio = max((role.wait_ratio for role in roles), default=0.0)
    return {**values, f"{PREFIX}/wait_ratio": wait_ratio, f"{PREFIX}/verdicts": float(blaming)} if values else {}
