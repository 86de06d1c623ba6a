"""One side of a comparison: the steps of a run, or some of them, as values by step: (N,), NaN where there is none."""

from __future__ import annotations

from typing import Any, Callable, Iterable, NamedTuple

import numpy as np
import polars as pl

from ...judging.evidence import RoleStep
from ..report.choice import Bounds
from ..role_runs import Seconds
from ..run import Run
from ..tables import role_steps

# Of how far apart the tokens of ranks are, so far apart are times that follow them, at least.
_ALIKE = 0.25


class Side(NamedTuple):
    """A run that is compared, or some of its steps, those that are `wanted`: `steps` by role, in order, controllers
    left out; `beside`: of those that work beside a rank's own processes, by role and by what they are.
    """

    path: str
    wanted: Bounds | None
    run: Run
    steps: dict[str, list[RoleStep]]
    beside: dict[tuple[str, str], list[RoleStep]]
    processes: pl.DataFrame

    @property
    def first_step(self) -> int:
        """The first one of any role."""
        return min(steps[0].step for steps in self.steps.values())

    @property
    def last_step(self) -> int:
        """The last one of any role."""
        return max(steps[-1].step for steps in self.steps.values())


def side_of(run: Run, wanted: Bounds | None = None) -> Side:
    """The steps of a run that are over, of these those that are wanted.

    *Cost*: a table of stages and about a millisecond a step.
    """
    processes = run.processes()
    beside_of = {entry["process"]: role_steps.name_kind(entry) for entry in processes.to_dicts()}
    numbered: dict[tuple[str, str], dict[int, RoleStep]] = {}
    for step in role_steps.of_run(run.files.stage_rows, processes, has_beside=True):  # the last attempt has each
        if wanted is None or wanted.first <= step.step <= wanted.last:
            numbered.setdefault((step.role, beside_of.get(step.members[0].process, "")), {})[step.step] = step
    by_group = {group: [steps[number] for number in sorted(steps)] for group, steps in numbered.items()}
    own: dict[str, str] = {}  # which group of a role is compared: of its ranks' own processes, where there are any
    for role, beside in sorted(by_group, key=lambda group: (group[1] != "", -len(stages_of(by_group[group])))):
        own.setdefault(role, beside)
    others = {group: steps for group, steps in by_group.items() if own[group[0]] != group[1]}
    return Side(run.path, wanted, run, {role: by_group[role, own[role]] for role in own}, others, processes)


def measure_lengths(steps: list[RoleStep]) -> Seconds:
    """How long each step of a role takes: until the same processes begin the one with the next number; else until all
    have left its last stage. Seconds.
    """
    began = [_of_known(np.min, step.entered_s) for step in steps]
    took = [_of_known(np.max, step.left_s) - begin for step, begin in zip(steps, began)]
    for at, (step, other) in enumerate(zip(steps, steps[1:])):
        until_next = began[at + 1] - began[at]
        # Up to what a restarted job does first, the restart takes time.
        has_others = {peer.process for peer in step.members}.isdisjoint(peer.process for peer in other.members)
        if until_next > 0 and other.step == step.step + 1 and not has_others:
            took[at] = until_next
    return np.array(took)


def of_stage(steps: list[RoleStep], stage: str) -> Seconds:
    """How long the member that takes longest is in a stage, step by step. Seconds."""
    took = np.full(len(steps), np.nan)
    for number, (step, at) in enumerate(_steps_with(steps, stage)):
        if at >= 0:
            works = np.array([not peer.is_controller for peer in step.members], dtype=bool)
            took[number] = _of_known(np.max, step.total_s[works if works.any() else slice(None), at])
    return took


def tokens_of(steps: list[RoleStep], stage: str, is_each: bool = False) -> Seconds:
    """How many tokens all members together had in a stage, step by step, or each of those that count them, in the mean;
    NaN where nobody says so.
    """
    together = np.mean if is_each else np.sum
    places = _steps_with(steps, stage)
    return np.array([np.nan if at < 0 else _of_known(together, step.work.tokens[:, at]) for step, at in places])


def is_by_member(before: list[RoleStep], after: list[RoleStep], stage: str) -> bool:
    """Do more members count tokens on one side? Then what one of them has says how long the stage should take."""
    medians = set()
    for steps in (before, after):
        counts = [np.isfinite(step.work.tokens[:, at]).sum() for step, at in _steps_with(steps, stage) if at >= 0]
        medians.add(float(np.median(counts or [0])))
    return len(medians) > 1


def measure_works(before: list[RoleStep], after: list[RoleStep]) -> tuple[Seconds, Seconds] | None:
    """How much work each step of two sides is, 1 as much as one before; None where no stage counts tokens on both.

    A stage counts as its tokens do, by its share of a step's length; the rest of a step is as much work in each.
    """
    stages = {}  # of a step's length what a stage takes, and how many tokens it has, as medians before; by member?
    for stage in stages_of(before):
        is_each = is_by_member(before, after, stage)
        tokens = tokens_of(before, stage, is_each)
        shares = of_stage(before, stage) / measure_lengths(before)
        kept = (tokens > 0) & np.isfinite(shares)
        if kept.any() and (tokens_of(after, stage) > 0).any():
            stages[stage] = float(np.median(shares[kept])), float(np.median(tokens[kept])), is_each
    return (_weigh_steps(before, stages), _weigh_steps(after, stages)) if stages else None


def _weigh_steps(steps: list[RoleStep], stages: dict[str, tuple[float, float, bool]]) -> Seconds:
    whole = max(1.0, sum(share for share, _, _ in stages.values()))  # stages may overlap
    work = np.ones(len(steps))
    for stage, (share, usual, is_each) in stages.items():
        work += share / whole * np.nan_to_num(tokens_of(steps, stage, is_each) / usual - 1)
    return work


def of_ranks(steps: list[RoleStep], stage: str) -> dict[int, Seconds]:
    """(2, N) how long each rank is in a stage, of several processes the longest, and how many tokens it has there."""
    own = [{at: p.rank for at, p in enumerate(s.members) if p.rank is not None and not p.is_controller} for s in steps]
    places = {rank: place for place, rank in enumerate(sorted({rank for ranks in own for rank in ranks.values()}))}
    table = np.full((len(places), 2, len(steps)), np.nan)
    for number, ((step, at), ranks) in enumerate(zip(_steps_with(steps, stage), own)):
        if at >= 0:
            rows, members = [places[rank] for rank in ranks.values()], list(ranks)
            values = np.stack((step.total_s[members, at], step.work.tokens[members, at]), axis=1)
            np.fmax.at(table[:, :, number], rows, values)
    return {rank: table[row] for rank, row in places.items()}


def is_by_own_tokens(*both: dict[int, Seconds]) -> bool:
    """May the tokens of a rank say how long it is in a stage? Not where ranks with other tokens are as long in it."""
    apart = np.zeros(2)
    for ranks in both:
        logs = ([np.log(each[each > 0]) for each in pair] for pair in ranks.values())
        own = np.array([[_of_known(np.median, values) for values in pair] for pair in logs]).reshape(-1, 2)
        own = own[np.isfinite(own).all(axis=1)]
        apart += np.std(own, axis=0) if len(own) else 0
    return bool(apart[0] >= _ALIKE * apart[1])


def stages_of(steps: Iterable[RoleStep]) -> list[str]:
    """Every stage of these, in the order in which a step goes through them."""
    entered: dict[str, list[float]] = {}
    for step in steps:
        begin = _of_known(np.min, step.entered_s)
        for at, stage in enumerate(step.stages):
            entered.setdefault(stage, []).append(_of_known(np.min, step.entered_s[:, at]) - begin)
    return sorted(entered, key=lambda stage: float(np.nanmedian(entered[stage])))


def _steps_with(steps: list[RoleStep], stage: str) -> list[tuple[RoleStep, int]]:
    return [(step, step.stages.index(stage) if stage in step.stages else -1) for step in steps]


def _of_known(together: Callable[[Seconds], Any], values: Seconds) -> float:
    """One number of those that are known; NaN where none is."""
    kept = values[np.isfinite(values)]
    return float(together(kept)) if len(kept) else np.nan
