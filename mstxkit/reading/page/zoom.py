"""A page's close look, role by role: the ranges of a few steps and ranks; of the slowest, the middle, the last step."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import polars as pl

from ...stages import canonical_key
from ..report.choice import ReportChoice
from ..report.escape import escape_name
from ..role_runs import RoleRun
from ..run import Run
from .figures import pack_array

STEPS_AT_MOST, RANKS_AT_MOST, DEPTH_AT_MOST = 6, 24, 3
# Steps that are longer than the one in the middle by so many times what others are off are there too, so many at most.
_FAR, _FAR_STEPS_AT_MOST = 6.0, 12
_NS = 1e9


def of_run(
    run: Run, roles: Sequence[RoleRun], choice: ReportChoice, stragglers: list[int], ranges: int
) -> dict[str, Any] | None:
    """Ranges of chosen steps and ranks, role by role; None where the run has no steps.

    Steps that are asked for come first; `stragglers` are among the ranks that are shown. `ranges`: of a step at most,
    of all roles together, the longest.
    """
    if not roles:
        return None
    names: dict[str, int] = {}  # of ranges and stages, each with its place
    shown = [_of_role(run, role, choice, stragglers, names, ranges // len(roles)) for role in roles]
    return {"roles": shown, "names": list(names)}


def _of_role(
    run: Run, role: RoleRun, choice: ReportChoice, stragglers: list[int], names: dict[str, int], at_most: int
) -> dict[str, Any]:
    steps, why = _choose_steps(role, choice)
    ranks = sorted({rank for rank in role.ranks if rank is not None})
    if len(ranks) > RANKS_AT_MOST:  # those that must be there, and of the others some, evenly
        kept = [rank for rank in dict.fromkeys(stragglers) if rank in set(ranks)][: RANKS_AT_MOST // 2]
        evenly = np.linspace(0, len(ranks) - 1, RANKS_AT_MOST - len(kept)).astype(int)
        ranks = sorted({*kept, *(ranks[place] for place in evenly)})
    at_most = at_most * STEPS_AT_MOST // max(STEPS_AT_MOST, len(steps))  # more steps are no larger page
    rows = _read_rows(run, role, steps, ranks)
    of_steps = [rows.filter(pl.col("step") == step) for step in steps]
    longest = (of_step.sort("duration_ns", descending=True).head(at_most) for of_step in of_steps)
    shown_steps = [_of_step(rows.sort("rank", "label", "track", "start_ns"), names) for rows in longest]
    return {
        "steps": [{"step": step, "why": why[step], **of_it} for step, of_it in zip(steps, shown_steps)],
        "ranks": len(ranks), "all_ranks": len(set(role.ranks)),
        "ranges": at_most, "all_ranges": max((of_step.height for of_step in of_steps), default=0),
    }  # fmt: skip


def _choose_steps(role: RoleRun, choice: ReportChoice) -> tuple[list[int], dict[int, str]]:
    lengths = np.nan_to_num(role.lengths_s)
    numbers = role.steps.tolist()
    if choice.steps is not None:
        asked = [step for step in numbers if choice.steps.first <= step <= choice.steps.last][:STEPS_AT_MOST]
        if asked:
            return asked, dict.fromkeys(asked, "")
    order = np.argsort(lengths, kind="stable")
    order = order[order > 0] if len(numbers) > 2 else order  # the first is no step like others
    places = [
        ("the slowest", order[-1]), ("in the middle", order[len(order) // 2]), ("the fastest", order[0]),
        ("the first", 0), ("the last", len(numbers) - 1),
    ]  # fmt: skip
    late_s = lengths - np.median(lengths[order])
    far = [place for place in order[::-1] if late_s[place] > _FAR * np.median(np.abs(late_s[order]))]
    places += [("far longer than others", place) for place in far[:_FAR_STEPS_AT_MOST]]
    why: dict[int, str] = {}
    for words, place in places:
        why.setdefault(numbers[int(place)], words)
    return sorted(why), why


def _read_rows(run: Run, role: RoleRun, steps: list[int], ranks: list[int]) -> pl.DataFrame:
    """Ranges of these steps and ranks of a role that have ended, the outer ones; stages by their canonical names.

    Of the attempt at a step that the role's own steps are of: else a step that was done twice would last for hours.
    """
    part = run.files.part(ranks=ranks or None, steps=steps)
    processes = run.processes().select("process", "attempt", "label")
    attempts, labels = (dict(processes.select("process", key).iter_rows()) for key in ("attempt", "label"))
    its_attempt = pl.Series([attempts.get(process.name) for process in part.processes], dtype=pl.Int64)
    its_label = pl.Series([labels.get(process.name) for process in part.processes], dtype=pl.String)
    names = [peer.process for peer in role.members]
    did = dict(zip(role.steps.tolist(), np.asarray(np.isfinite(role.came_s).any(axis=2))))
    by = [max((attempts.get(names[at], 0) for at in np.flatnonzero(did[step])), default=0) for step in steps]
    done = pl.DataFrame({"step": steps, "attempt": by}, schema={"step": pl.Int64, "attempt": pl.Int64})
    texts, pieces = pl.col("name", "stage", "role", "part").cast(pl.String), []
    for ranges, _ in part.batches():
        rows = ranges.select("rank", "track", "depth", pl.col("step").cast(pl.Int64), "start_ns", "duration_ns", texts)
        label = pl.when(pl.col("rank").is_null()).then(its_label.gather(ranges["process"]))  # who has a rank needs none
        pieces.append(rows.with_columns(attempt=its_attempt.gather(ranges["process"]), label=label))
    rows = pl.concat(pieces).join(done, on=["step", "attempt"], how="semi")
    is_own = pl.col("role").fill_null(role.role) == role.role
    rows = rows.filter(is_own & pl.col("duration_ns").is_not_null() & (pl.col("depth") < DEPTH_AT_MOST))
    return rows.with_columns(stage=pl.Series([name and canonical_key(name) for name in rows["stage"]], dtype=pl.String))


def _of_step(rows: pl.DataFrame, names: dict[str, int]) -> dict[str, Any]:
    whose = list(rows.select("rank", "role", "part", "label").iter_rows())
    lanes: dict[Any, str] = {}
    for rank, role, part, label in dict.fromkeys(whose):
        is_plain = part in (None, "", "trainer")
        words = " ".join(filter(None, (f"rank {rank}", "" if is_plain else escape_name(part))))
        lanes[rank, role, part, label] = label or words
    numbers = {key: number for number, key in enumerate(lanes)}
    begin = int(rows["start_ns"].min() or 0)  # type: ignore[arg-type]
    for name in (*rows["name"].unique(maintain_order=True), *rows["stage"].unique(maintain_order=True).drop_nulls()):
        names.setdefault(escape_name(name), len(names))
    return {
        "lanes": list(lanes.values()),
        "lane": pack_array([numbers[key] for key in whose], "u2"),
        "start": pack_array((rows["start_ns"] - begin).to_numpy() / _NS, "f4"),
        "length": pack_array(rows["duration_ns"].to_numpy() / _NS, "f4"),
        "depth": pack_array(rows["depth"].to_numpy(), "u1"),
        "name": pack_array([names[escape_name(name)] for name in rows["name"]], "u2"),
        "stage": pack_array([65535 if name is None else names[escape_name(name)] for name in rows["stage"]], "u2"),
    }  # fmt: skip
