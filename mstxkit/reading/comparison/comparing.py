"""Compares two runs, or two parts of one; says what cannot be compared, and why."""

from __future__ import annotations

import os
from typing import Any, Iterator, NamedTuple

from ...errors import ReadError
from . import rows, surroundings
from .difference import STEPS_NEEDED
from .rows import STAGE, STEP, ComparedTime
from .sides import Side, measure_lengths
from .surroundings import SideChange

CONFIDENCE = 0.95
# Where the tokens of a step differ by more, times of steps say nothing about who has become slower.
OTHER_WORK = 0.1
# Of the form as JSON.
SCHEMA = 1


class Comparison(NamedTuple):
    """Two sides, compared: steps, stages and ranks that both have; what else is different `with_it`, and what could not
    be compared, a sentence each. `other_work`: do their steps do so different work that times say little?
    """

    before: Side
    after: Side
    rows: list[ComparedTime]
    with_it: list[SideChange]
    left_out: list[str]
    other_work: bool

    def of(self, what: str) -> list[ComparedTime]:
        """Rows of steps, stages or ranks."""
        return [row for row in self.rows if row.of == what]

    @property
    def first(self) -> ComparedTime | None:
        """The stage that changed first, of those that did as the steps did; else of those that became slower.

        It is the one that changed as soon as any did, and of several the one that a step comes to first.
        """
        of_steps = {row.verdict for row in self.of(STEP)}
        is_faster = "faster" in of_steps and "slower" not in of_steps and not self.other_work
        changed = [row for row in self.of(STAGE) if row.verdict == ("faster" if is_faster else "slower")]
        return min(changed, key=lambda row: row.since_step or 0, default=None)

    def over(self, limit_ratio: float) -> list[ComparedTime]:
        """Steps and stages that have become slower by more than that, and for sure slower; by the time of a token where
        tokens are known; steps by what the same work takes, and where the work is nearly the same.
        """
        both = (*(() if self.other_work else self.of(STEP)), *self.of(STAGE))
        return [row for row in both if row.judged.ratio > limit_ratio and row.verdict == "slower"]


def compare_sides(before: Side, after: Side) -> Comparison:
    """Compare two sides. Raises ReadError: they cannot be compared; the message says why, and what can be done."""
    _check_sides(before, after)
    times = rows.of_sides(before, after, CONFIDENCE)
    if not times:
        raise ReadError(f"{before.path} and {after.path} have no stage and no length of steps in common")
    tokens = [row.tokens for row in times if row.of == STAGE and row.tokens is not None]
    has_other_work = any(change.low > OTHER_WORK or change.high < -OTHER_WORK for change in tokens)
    with_it = surroundings.find_changes(before, after, times)
    return Comparison(before, after, times, with_it, list(_left_out(before, after)), has_other_work)


def _check_sides(before: Side, after: Side) -> None:
    for side in (before, after):
        what = f"{side.path}, steps {side.wanted}" if side.wanted is not None else side.path
        if not side.steps:
            raise ReadError(
                f"{what}: no step is over in which a stage has ended; a step is what mstxkit.step() or a patched "
                "framework counts (mstxkit report shows what there is)"
            )
        most = max(int((measure_lengths(steps) > 0).sum()) for steps in side.steps.values())
        if most < STEPS_NEEDED:
            needed = f"what is not at least {STEPS_NEEDED} steps long cannot be compared"
            raise ReadError(f"{what}: only {most} steps; {needed}")
    common = [role for role in before.steps if role in after.steps]
    if not common:
        roles = [", ".join(role or "no role" for role in side.steps) for side in (before, after)]
        raise ReadError(
            f"{before.path} and {after.path} have no role in common: {roles[0]}; {roles[1]}. A role is what "
            "identify(role=…) or MSTXKIT_ROLE says"
        )
    is_same = os.path.realpath(before.path) == os.path.realpath(after.path)
    both = ([{step.step for step in side.steps[role]} for side in (before, after)] for role in common)
    shared = [role for role, steps in zip(common, both) if steps[0] & steps[1]]
    if is_same and shared:
        raise ReadError(
            f"{before.path}: the two sides have steps of one run in common; give two parts of it that do not overlap, "
            "--before 0:99 --after 100:199 say"
        )


def _left_out(before: Side, after: Side) -> Iterator[str]:
    for side, other in ((before, after), (after, before)):
        for role in (role for role in side.steps if role not in other.steps):
            yield f"role {role or '(none)'}: only {side.path} has it"
    for role in (role for role in before.steps if role in after.steps):
        stages = [_list_stages(side, role) for side in (before, after)]
        for stage in sorted(stages[0] ^ stages[1]):
            yield f"stage {stage}: only {before.path if stage in stages[0] else after.path} has it"
        members = [{peer.rank for step in side.steps[role] for peer in step.members} for side in (before, after)]
        if members[0] != members[1]:
            yield f"ranks of {role or 'the job'}: the two sides do not have the same ones"


def _list_stages(side: Side, role: str) -> set[str]:
    beside = [step for group, steps in side.beside.items() if group[0] == role for step in steps]
    return {stage for step in (*side.steps[role], *beside) for stage in step.stages}


def as_json(comparison: Comparison, limit_ratio: float | None) -> dict[str, Any]:
    """Plain values: times in ns, ratios as such."""
    first, sides = comparison.first, dict[str, Any]()
    for name, side in (("before", comparison.before), ("after", comparison.after)):
        sides[name] = {"path": side.path, "run": side.run.id, "first_step": side.first_step}
        sides[name] |= {"last_step": side.last_step, "role_steps": sum(map(len, side.steps.values()))}
    return {
        "schema": SCHEMA, **sides,
        "rows": [_row_as_json(row) for row in comparison.rows],
        "first": None if first is None else _row_as_json(first),
        "with_it": [change._asdict() for change in comparison.with_it],
        "left_out": comparison.left_out, "other_work": comparison.other_work,
        "fail_over_ratio": limit_ratio,
        "over": [] if limit_ratio is None else [_row_as_json(row) for row in comparison.over(limit_ratio)],
    }  # fmt: skip


def _row_as_json(row: ComparedTime) -> dict[str, Any]:
    work, of_work = ("work", "same_work_ns") if row.of == STEP else ("tokens", "per_token_ns")
    parts = {"time_ns": row.time, work: row.tokens, of_work: row.per_token}
    fields = {name: part._asdict() for name, part in parts.items() if part is not None}
    for name in fields.keys() & {"time_ns", of_work}:
        fields[name].update({end: 1e9 * fields[name][end] for end in ("before", "after")})
    own = ("of", "role", "stage", "rank", "verdict", "waits", "since_step")
    return {**{name: getattr(row, name) for name in own}, **fields}
