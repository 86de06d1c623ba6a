"""Where a longer duration in a stage is waiting, and for whom: so that nobody is called slow who waits for another.

A verdict's cause comes first. Without one, whoever enters last again and again what all leave together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, NamedTuple

import numpy as np

from ...stages import canonical
from ..role_runs import RoleRun

if TYPE_CHECKING:
    from ...store.verdicts import Verdict

# A wait counts that is such a share of a rank's time in the stage. Without a verdict, it is for a rank that makes up
# such a share of all that is waited there.
_SHARE_AT_LEAST, _BY_ONE_AT_LEAST = 0.1, 0.6


class Waited(NamedTuple):
    """How long a process waits in a stage, a step, until the last of its role has come.

    Args:
        by_last: Rank that came last to the time that was waited for it, ns, as a mean of the steps.
        most: The rank for which most is waited in this stage, by all together; None: for no one in particular.
    """

    by_last: Mapping[int | None, float]
    most: int | None


def waited(runs: Iterable[RoleRun], steps: frozenset[int]) -> dict[tuple[str, str], Waited]:
    """(process, stage) to its wait, of the stages that the members of a role leave together.
    `steps`: in which that is looked at.
    """
    made: dict[tuple[str, str], Waited] = {}
    for run in runs:
        kept = np.isin(run.steps, list(steps))
        for piece in np.flatnonzero(run.waits).tolist():
            labels = run.labels[:, piece]
            for label in np.unique(labels) if not run.is_gap(piece) else ():
                made.update(_of_group(run, piece, np.flatnonzero(labels == label), kept))
    return made


def _of_group(run: RoleRun, piece: int, group: Any, kept: Any) -> Iterator[tuple[tuple[str, str], Waited]]:
    """Of members who wait for each other there."""
    came = np.where(np.isfinite(run.came_s), run.came_s, -np.inf)[kept][:, group, piece]
    waits_ns = np.nan_to_num(run.wait_s[kept][:, group, piece]) * 1e9
    ranks = [run.members[group[at]].rank for at in came.argmax(axis=1).tolist()]
    of_all = {last: sum(waits_ns[at].sum() for at, rank in enumerate(ranks) if rank == last) for last in set(ranks)}
    most = max(of_all, key=lambda last: of_all[last], default=None)
    most = most if of_all and of_all[most] >= _BY_ONE_AT_LEAST * sum(of_all.values()) else None
    for place, member in enumerate(group.tolist()):
        count = int(np.isfinite(came[:, place]).sum())
        by_last = {
            last: float(sum(waits_ns[at, place] for at, rank in enumerate(ranks) if rank == last)) / count
            for last in (set(ranks) if count else ())
        }
        yield (run.members[member].process, canonical(run.stage(piece))), Waited(by_last, most)


def give(
    entries: list[dict[str, Any]], verdicts: Iterable[Verdict], waits: dict[tuple[str, str], Waited], names: list[str]
) -> None:
    """Give each row of the report's stages its `waits_for` and `is_cause`, and each stage the `slowest` by its cause.

    Args:
        entries: Of `measuring`; rows are put into another order: whoever waits comes last.
        verdicts: Those that hold and blame a rank, the most costly first.
        waits: As `waited` gives them.
        names: Of processes, by their row in the table of processes.
    """
    verdicts = [verdict for verdict in verdicts if verdict.rank is not None or verdict.process]
    for entry in entries:
        for row in entry["ranks"]:
            wait = waits.get((names[row["process"]], canonical(entry["stage"])))
            of_rank = (verdict for verdict in verdicts if _blames(verdict, row))
            row["is_cause"] = any(_is_in(verdict, entry["stage"]) for verdict in of_rank)
            row["waits_for"] = _waits_for(row, entry["stage"], verdicts, wait)
        entry["ranks"].sort(key=lambda row: (row["waits_for"] is not None, not row["is_cause"]))
        entry["slowest"] = _slowest(entry)


def _blames(verdict: Verdict, row: dict[str, Any]) -> bool:
    if verdict.rank is None:
        return bool(row["label"] == verdict.process)
    return bool(verdict.rank == row["rank"]) and _is_of(verdict, row)


def _is_of(verdict: Verdict, row: dict[str, Any]) -> bool:
    """Is a row of the role and group that a verdict is of?"""
    in_group = not verdict.group or row["rank"] in verdict.group
    return row["rank"] is not None and (not verdict.role or verdict.role == (row["role"] or "")) and in_group


def _is_in(verdict: Verdict, stage: str) -> bool:
    """Is it of this stage, and not of the time before it?"""
    is_before = verdict.evidence.get("where") in ("before", "behind_gap")
    return verdict.stage is not None and canonical(verdict.stage) == canonical(stage) and not is_before


def _waits_for(row: dict[str, Any], stage: str, verdicts: list[Verdict], wait: Waited | None) -> dict[str, Any] | None:
    """`rank, stage, ns`: for whom it waits here, where that one is slow (None: not known), how long a step."""
    if row["is_cause"]:
        return None
    of_row = [verdict for verdict in verdicts if _is_of(verdict, row)]
    for verdict in (verdict for verdict in of_row if verdict.rank != row["rank"]):
        ns = _long_ns(row, wait, verdict.rank)
        # Is it slow inside of this stage, behind a barrier that is in there too?
        has_barrier = wait is not None or verdict.waits_for.endswith(f" in {verdict.stage}")
        if ns is not None or (has_barrier and _is_in(verdict, stage)):
            return {"rank": verdict.rank, "stage": verdict.stage, "ns": ns}
    is_blamed = any(verdict.rank == row["rank"] for verdict in of_row)
    if wait is None or is_blamed or wait.most in (None, row["rank"]):
        return None
    ns = _long_ns(row, wait, wait.most)
    return None if ns is None else {"rank": wait.most, "stage": None, "ns": ns}


def _long_ns(row: dict[str, Any], wait: Waited | None, last: int | None) -> int | None:
    """How long a row waits for that rank, where that is long enough to be told."""
    ns = 0.0 if wait is None else wait.by_last.get(last, 0.0)
    return int(ns) if row["step_ns"] is not None and ns >= max(1.0, _SHARE_AT_LEAST * row["step_ns"]) else None


def _slowest(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Of several: the cause; else, where the longest only wait, for whom; else the longest.

    `cause` is the stage in which it makes the others wait; None where it is just the longest.
    """
    slowest: dict[str, Any] | None = entry["slowest"]
    rows = [row for row in entry["ranks"] if row["step_ns"] is not None]
    if slowest is None or not rows:
        return slowest
    of_rank = {(row["role"], row["rank"]): row for row in reversed(rows)}
    waits = [(row["role"], row["waits_for"]) for row in rows if row["waits_for"] is not None]
    awaited = [(of_rank[role, wait["rank"]], wait) for role, wait in waits if (role, wait["rank"]) in of_rank]
    blamed = next((row for row in rows if row["is_cause"]), None)
    row = blamed or (awaited[0][0] if awaited else rows[0])
    cause = entry["stage"] if blamed else awaited[0][1]["stage"] if awaited else None
    of_row = {key: row[key] for key in slowest if key != "middle_ns"}
    return {**of_row, "middle_ns": slowest["middle_ns"], "cause": cause}
