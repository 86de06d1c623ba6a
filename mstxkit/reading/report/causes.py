"""Where a longer duration in a stage is waiting, and for whom: so that nobody is called slow who waits for another.

Who is waited for says a verdict, and nothing else; how long is what the run's steps tell of it.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

import numpy as np

from ...stages import canonical_key
from ...store.verdicts import Verdict
from ..role_runs import RoleRun

# A wait counts that is such a share of a rank's time in the stage.
_SHARE_AT_LEAST = 0.1
# Rank that came last to the time that was waited for it, ns, as a mean of the steps.
Waited = Mapping["int | None", float]


def measure_waits(runs: Iterable[RoleRun], steps: frozenset[int]) -> dict[tuple[str, str], Waited]:
    """(process, stage) to how long it waits there for whom, of the stages that the members of a role leave together.
    `steps`: in which that is looked at.
    """
    waits: dict[tuple[str, str], Waited] = {}
    for run in runs:
        kept = np.isin(run.steps, list(steps))
        for piece in np.flatnonzero(run.waits & ~run.is_gap).tolist():
            last, waits_ns = run.came_last[:, :, piece][kept], np.nan_to_num(run.wait_s[kept][:, :, piece]) * 1e9
            counts = np.maximum(1, np.isfinite(run.came_s[kept][:, :, piece]).sum(axis=0))
            for member, of_member, ns, count in zip(run.members, last.T, waits_ns.T, counts.tolist()):
                who, at = np.unique(of_member, return_inverse=True)
                means = np.bincount(at.reshape(-1), weights=ns, minlength=len(who)) / count
                waited = zip(who.tolist(), means)
                of_ranks = {run.members[place].rank: float(mean) for place, mean in waited if place >= 0}
                waits[member.process, canonical_key(run.stage(piece))] = of_ranks
    return waits


def give_causes(
    entries: list[dict[str, Any]], verdicts: Iterable[Verdict], waits: dict[tuple[str, str], Waited], names: list[str]
) -> None:
    """Give each row of the report's stages its `waits_for` and `is_cause`, and each stage the `slowest` by its cause.

    Rows of the `entries` of `measuring` are put into another order: whoever waits comes last. `verdicts`: those that
    hold and blame a rank, the most costly first; `waits`: as `measure_waits` gives them; `names`: of processes, by
    their row.
    """
    verdicts = [verdict for verdict in verdicts if verdict.rank is not None or verdict.process]
    for entry in entries:
        for row in entry["ranks"]:
            wait = waits.get((names[row["process"]], canonical_key(entry["stage"])))
            row["is_cause"] = any(
                (row["label"] == of.process if of.rank is None else of.rank == row["rank"] and _is_of(of, row))
                for of in verdicts if _is_in(of, entry["stage"])
            )  # fmt: skip
            row["waits_for"] = _waits_for(row, entry["stage"], verdicts, wait)
        entry["ranks"].sort(key=lambda row: (row["waits_for"] is not None, not row["is_cause"]))
        entry["slowest"] = _name_slowest(entry)


def _is_of(verdict: Verdict, row: dict[str, Any]) -> bool:
    """Is a row of the role and group that a verdict is of?"""
    in_group = not verdict.group or row["rank"] in verdict.group
    return row["rank"] is not None and (not verdict.role or verdict.role == (row["role"] or "")) and in_group


def _is_in(verdict: Verdict, stage: str) -> bool:
    """Is it of this stage, and not of the time before it?"""
    is_before = verdict.evidence.get("where") in ("before", "behind_gap")
    return verdict.stage is not None and canonical_key(verdict.stage) == canonical_key(stage) and not is_before


def _waits_for(row: dict[str, Any], stage: str, verdicts: list[Verdict], wait: Waited | None) -> dict[str, Any] | None:
    """`rank, stage, ns`: for whom it waits here, where that one is slow, how long a step (None: not known)."""
    if row["is_cause"]:
        return None
    for verdict in (verdict for verdict in verdicts if _is_of(verdict, row) and verdict.rank != row["rank"]):
        ns = 0.0 if wait is None else wait.get(verdict.rank, 0.0)
        is_long = row["step_ns"] is not None and ns >= max(1.0, _SHARE_AT_LEAST * row["step_ns"])
        # Is it slow inside of this stage, behind a barrier that is in there too?
        has_barrier = wait is not None or verdict.waits_for.endswith(f" in {verdict.stage}")
        if is_long or (has_barrier and _is_in(verdict, stage)):
            return {"rank": verdict.rank, "stage": verdict.stage, "ns": int(ns) if is_long else None}
    return None


def _name_slowest(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Of several: the cause; else, where the longest only wait, for whom; else the longest.

    `cause` is the stage in which it makes the others wait; None where it is just the longest.
    """
    slowest: dict[str, Any] | None = entry["slowest"]
    if slowest is None:
        return None
    rows = [row for row in entry["ranks"] if row["step_ns"] is not None]
    of_rank = {(row["role"], row["rank"]): row for row in reversed(rows)}
    waits = [(row["role"], row["waits_for"]) for row in rows if row["waits_for"] is not None]
    awaited = [(of_rank[role, wait["rank"]], wait) for role, wait in waits if (role, wait["rank"]) in of_rank]
    blamed = next((row for row in rows if row["is_cause"]), None)
    row = blamed or (awaited[0][0] if awaited else rows[0])
    cause = entry["stage"] if blamed else awaited[0][1]["stage"] if awaited else None
    of_row = {key: row[key] for key in slowest if key != "middle_ns"}
    return {**of_row, "middle_ns": slowest["middle_ns"], "cause": cause}
