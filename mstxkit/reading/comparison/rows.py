"""Rows of a comparison: of each role its steps, its stages, and the ranks in them."""

from __future__ import annotations

from typing import Iterator, NamedTuple

import numpy as np

from ...judging.evidence import RoleStep
from ...judging.meeting import left_together
from ..role_runs import Seconds
from . import sides
from .difference import Difference, find_onset, measure_difference
from .sides import Side

# What a row is of.
STEP, STAGE, RANK = "step", "stage", "rank"


class ComparedTime(NamedTuple):
    """One thing that both sides have. Seconds.

    Args:
        of: STEP, STAGE or RANK.
        role: "" where none is known.
        stage: Its key; None of whole steps.
        rank: Of a rank's own process; None of what all of a role do.
        time: How long it takes: of steps and ranks themselves, of a stage in the member that takes longest.
        waits: Members wait for each other in it: it is longer for all where one of them is late.
        since_step: From which step of the second side on it is as changed as in the end; None where it is not changed.
        tokens: How many of them a step has had, where that is known: of a rank its own, or all, where members wait; of
            a stage all, or those of one member where more count them on one side. Of whole steps their work, see
            `sides.measure_works`.
        per_token: How long one of them takes, by the time above; of whole steps as long as the same work takes.
    """

    of: str
    role: str
    stage: str | None
    rank: int | None
    time: Difference
    waits: bool = False
    since_step: int | None = None
    tokens: Difference | None = None
    per_token: Difference | None = None

    @property
    def judged(self) -> Difference:
        """What decides: the time of one token, where tokens are known."""
        return self.time if self.per_token is None else self.per_token

    @property
    def telling(self) -> Difference:
        """What the verdict tells of: what decides; the whole time, where the work explains it."""
        return self.time if self.has_other_work else self.judged

    @property
    def has_other_work(self) -> bool:
        """Does the work explain it: it takes longer with more tokens, or less with fewer, and a token takes as long?"""
        if self.tokens is None or self.judged.direction or not self.time.direction:
            return False
        return self.tokens.direction == self.time.direction

    @property
    def verdict(self) -> str:
        """`slower`, `faster`, `more work`, `less work`, or `alike`: no difference is seen."""
        if self.has_other_work:
            return "more work" if self.time.direction > 0 else "less work"
        return {1: "slower", -1: "faster", 0: "alike"}[self.judged.direction]


def of_sides(before: Side, after: Side, confidence: float) -> list[ComparedTime]:
    """Steps, stages and ranks that both have, in the order of roles and of their stages.
    `confidence`: of all intervals together: each of them is as much wider as there are many.
    """
    pairs = list(_pair_values(before, after))
    own = {of: 1 - (1 - confidence) / max(1, sum(pair[0] == of for pair in pairs)) for of in (STEP, STAGE, RANK)}
    rows = []
    for of, role, stage, rank, waits, first, second, tokens, steps in pairs:
        if (time := measure_difference(first, second, own[of])) is None:
            continue
        row, each = ComparedTime(of, role, stage, rank, time, waits), second
        if tokens is not None:
            counts = [np.where(tokens_of > 0, tokens_of, np.nan) for tokens_of in tokens]
            each = second / counts[1]
            per_token = measure_difference(first / counts[0], each, own[of])
            row = row._replace(tokens=measure_difference(*tokens, own[of]), per_token=per_token)
        if row.verdict != "alike":
            changed = row.telling  # by what has decided it
            since = find_onset(changed.before, second if changed is row.time else each, changed.ratio)
            row = row._replace(since_step=steps[since].step)
        rows.append(row)
    return rows


_Both = tuple["list[RoleStep]", "list[RoleStep]"]
_Pair = tuple[
    str, str, "str | None", "int | None", bool, Seconds, Seconds, "tuple[Seconds, Seconds] | None", "list[RoleStep]"
]


def _pair_values(before: Side, after: Side) -> Iterator[_Pair]:
    """What is compared: of what, role, stage, rank, do they wait, values on both sides, tokens on both, later steps."""
    for role in (role for role in before.steps if role in after.steps):
        own = before.steps[role], after.steps[role]
        first, second = map(sides.measure_lengths, own)
        yield STEP, role, None, None, False, first, second, sides.measure_works(*own), own[1]
        yield from _pair_stages(role, own)
        of_ranks = {stage for steps in own for stage in sides.stages_of(steps)}
        for group in (group for group in before.beside if group[0] == role and group in after.beside):
            yield from _pair_stages(role, (before.beside[group], after.beside[group]), of_ranks)


def _pair_stages(role: str, both: _Both, but: set[str] | None = None) -> Iterator[_Pair]:
    """Stages that both have, and the ranks in them. Of those who work beside the ranks' own processes, stages alone,
    and none of those `but`.
    """
    is_of_ranks = but is None
    waiting = {stage for steps in both if is_of_ranks for _, stage in left_together(steps)}
    here = set(sides.stages_of(both[0])) - (but or set())
    for stage in (stage for stage in sides.stages_of(both[1]) if stage in here):
        first, second = (sides.of_stage(steps, stage) for steps in both)
        is_each = is_of_ranks and sides.is_by_member(*both, stage)
        tokens = sides.tokens_of(both[0], stage, is_each), sides.tokens_of(both[1], stage, is_each)
        yield STAGE, role, stage, None, stage in waiting, first, second, tokens, both[1]
        ranks = [sides.of_ranks(steps, stage) if is_of_ranks else {} for steps in both]
        # Where members wait, a rank is in it for as long as the work of all takes.
        is_own = stage not in waiting and sides.is_by_own_tokens(*ranks)
        for rank in ranks[0] if ranks[0].keys() == ranks[1].keys() and len(ranks[0]) > 1 else ():
            (first, own_before), (second, own_after) = ranks[0][rank], ranks[1][rank]
            work = (own_before, own_after) if is_own else tokens
            yield RANK, role, stage, rank, stage in waiting, first, second, work, both[1]
