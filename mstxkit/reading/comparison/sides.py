"""One side of a comparison: the steps of a run, or some of them, as rows of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, NamedTuple

import numpy as np

from ...judging.evidence import RoleStep
from ..report.choice import Bounds
from ..tables import role_steps

if TYPE_CHECKING:
    import polars as pl

    from ...judging.evidence import Seconds
    from ..run import Run


class Series(NamedTuple):
    """Values by step: (N,) each, steps in order; NaN where there is no value."""

    steps: tuple[int, ...]
    values: Seconds


class Side(NamedTuple):
    """What is compared.

    Args:
        path: The run's folder.
        wanted: Which of its steps were asked for; None: all.
        run: The run.
        steps: Its steps by role, in order; controllers left out.
        beside: Steps of those that work beside a rank's own processes, by role and by what they are.
        processes: Its `processes()`.
    """

    path: str
    wanted: Bounds | None
    run: Run
    steps: dict[str, list[RoleStep]]
    beside: dict[tuple[str, str], list[RoleStep]]
    processes: pl.DataFrame

    @property
    def first_step(self) -> int | None:
        """The first one of any role."""
        return min((steps[0].step for steps in self.steps.values()), default=None)

    @property
    def last_step(self) -> int | None:
        """The last one of any role."""
        return max((steps[-1].step for steps in self.steps.values()), default=None)


def side_of(run: Run, wanted: Bounds | None = None) -> Side:
    """The steps of a run that are over, of these those that are wanted.

    *Cost*: a table of stages and about a millisecond a step.
    """
    processes = run.processes()
    by_group = _by_group(role_steps.of_run(run, processes), wanted, processes)
    own: dict[str, str] = {}  # which group of a role is compared: of its ranks' own processes, where there are any
    for role, beside in sorted(by_group, key=lambda group: (group[1] != "", -len(stages_of(by_group[group])))):
        own.setdefault(role, beside)
    steps = {role: by_group[role, beside] for role, beside in own.items()}
    others = {group: steps for group, steps in by_group.items() if own[group[0]] != group[1]}
    return Side(run.path, wanted, run, steps, others, processes)


def _by_group(
    steps: Iterable[RoleStep], wanted: Bounds | None, processes: pl.DataFrame
) -> dict[tuple[str, str], list[RoleStep]]:
    """Steps in order, by role and by what they are who work beside a rank's own; the last attempt has each."""
    beside = {entry["process"]: role_steps.beside(entry) for entry in processes.to_dicts()}
    groups: dict[tuple[str, str], dict[int, RoleStep]] = {}
    for step in steps:  # attempt by attempt
        if wanted is None or wanted.first <= step.step <= wanted.last:
            groups.setdefault((step.role, beside.get(step.members[0].process, "")), {})[step.step] = step
    return {group: [numbered[number] for number in sorted(numbered)] for group, numbered in groups.items()}


def lengths(steps: list[RoleStep]) -> Series:
    """How long each step of a role takes: until the same processes begin the one with the next number; else until all
    have left its last stage. Seconds.
    """
    began = [_first(step) for step in steps]
    took = [_last(step) - begin for step, begin in zip(steps, began)]
    for at in range(len(steps) - 1):
        until_next = began[at + 1] - began[at]
        if until_next > 0 and _is_next(steps[at], steps[at + 1]):
            took[at] = until_next
    return Series(tuple(step.step for step in steps), np.array(took))


def _is_next(step: RoleStep, other: RoleStep) -> bool:
    """Is it the next one, and done by the same? Up to what a restarted job does first, the restart takes time."""
    same = {peer.process for peer in step.members} & {peer.process for peer in other.members}
    return other.step == step.step + 1 and bool(same)


def of_stage(steps: list[RoleStep], stage: str) -> Series:
    """How long the member that takes longest is in a stage, step by step. Seconds."""
    values = [np.nan if at < 0 else _most(step.total_s[:, at], step) for step, at in _at(steps, stage)]
    return Series(tuple(step.step for step in steps), np.array(values))


def tokens_of(steps: list[RoleStep], stage: str) -> Series:
    """How many tokens all members together had in a stage, step by step; NaN where nobody says so."""
    values = [np.nan if at < 0 else _sum(step.work.tokens[:, at]) for step, at in _at(steps, stage)]
    return Series(tuple(step.step for step in steps), np.array(values))


def of_ranks(steps: list[RoleStep], stage: str) -> dict[int, Series]:
    """How long each rank is in a stage, step by step; the longest, where it has several processes. Seconds."""
    numbers = tuple(step.step for step in steps)
    tables: dict[int, Seconds] = {}
    for place, (step, at) in enumerate(_at(steps, stage)):
        for member, peer in enumerate(step.members):
            if at >= 0 and peer.rank is not None and not peer.is_controller:
                values = tables.setdefault(peer.rank, np.full(len(numbers), np.nan))
                values[place] = np.fmax(values[place], step.total_s[member, at])
    return {rank: Series(numbers, values) for rank, values in sorted(tables.items())}


def stages_of(steps: Iterable[RoleStep]) -> list[str]:
    """Every stage of these, in the order in which a step goes through them."""
    entered: dict[str, list[float]] = {}
    for step in steps:
        begin = _first(step)
        for at, stage in enumerate(step.stages):
            entered.setdefault(stage, []).append(_least(step.entered_s[:, at]) - begin)
    return sorted(entered, key=lambda stage: float(np.nanmedian(entered[stage])))


def _at(steps: list[RoleStep], stage: str) -> list[tuple[RoleStep, int]]:
    return [(step, step.stages.index(stage) if stage in step.stages else -1) for step in steps]


def _first(step: RoleStep) -> float:
    return _least(step.entered_s)


def _last(step: RoleStep) -> float:
    return float(np.nanmax(step.left_s)) if np.isfinite(step.left_s).any() else np.nan


def _least(values: Seconds) -> float:
    return float(np.nanmin(values)) if np.isfinite(values).any() else np.nan


def _most(values: Seconds, step: RoleStep) -> float:
    works = np.array([not peer.is_controller for peer in step.members], dtype=bool)
    kept = values[works] if works.any() else values
    return float(np.nanmax(kept)) if np.isfinite(kept).any() else np.nan


def _sum(values: Seconds) -> float:
    return float(np.nansum(values)) if np.isfinite(values).any() else np.nan
