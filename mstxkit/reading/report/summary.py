"""A run in one structure of plain values: what `mstxkit report` shows, in the terminal and as JSON. Times in ns."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from ..tables import stages
from . import waits

if TYPE_CHECKING:
    import polars as pl

    from ..run import Run

LOSSES = (
    "dropped", "evicted", "coalesced", "slots_overflowed", "attributes_lost", "names_capped", "texts_cut", "faults",
)  # fmt: skip

# What names a process here, from its row in the table of processes.
_NAMES = ("rank", "host", "pid", "role", "part", "under", "label")
# As the engines write it: both keys, in this order.
_COALESCED = r'^\{"coalesced":(\d+),"total_ns":\d+,'


def summarise(run: Run, step: int | None = None) -> dict[str, Any]:
    """Stages by rank, endings, losses, coalesced ranges and damage of `run`; stages of one `step` if given."""
    import polars as pl

    processes, occurrences = run.processes(), run.occurrences()
    steps, states = occurrences["step"].drop_nulls(), processes["state"].to_list()
    if step is not None:
        occurrences = occurrences.filter(pl.col("step") == step)
    gone = _gone(processes, run.open_ranges())
    return {
        "run": run.id, "path": run.path, "processes": processes.height,
        "states": {state: states.count(state) for state in sorted(set(states))},
        "first_step": steps.min(), "last_step": steps.max(), "step": step,
        "stages": _stages(occurrences, processes.select(_NAMES).to_dicts()),
        "waits": waits.summarise(run, processes.select(_NAMES).to_dicts(), step),
        "killed": _killed(gone), "endings": _endings(gone),
        "losses": _losses(processes),
        "coalesced": _coalesced(run) if processes["coalesced"].sum() else [],
        "damage": [part._asdict() for part in run.damage],
    }  # fmt: skip


def is_something_wrong(summary: dict[str, Any]) -> bool:
    """Was a process killed, a record lost, or a file damaged?"""
    has_losses = any(process["dropped"] or process["faults"] for process in summary["losses"])
    return bool(summary["killed"] or summary["damage"] or has_losses)


def _stages(occurrences: pl.DataFrame, names: list[dict[str, Any]]) -> list[dict[str, Any]]:
    totals = {row["stage"]: row for row in stages.totals(occurrences).iter_rows(named=True)}
    by_stage: dict[str, dict[str, Any]] = {}
    for row in stages.by_process(occurrences).iter_rows(named=True):
        stage = row.pop("stage")
        entry = by_stage.setdefault(stage, {**totals[stage], "total_ns": 0, "slowest": None, "ranks": []})
        entry["ranks"].append({**row, **names[row["process"]]})
    for entry in by_stage.values():
        entry["total_ns"] = sum(row["total_ns"] for row in entry["ranks"])
        entry["slowest"] = _slowest(entry["ranks"])
    return list(by_stage.values())


def _slowest(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The process with the longest mean, if there are others; `median_ns` is that of all processes' means."""
    if len(rows) < 2:
        return None
    slowest = max(rows, key=lambda row: row["mean_ns"])
    median_ns = statistics.median(row["mean_ns"] for row in rows)
    return {**{key: slowest[key] for key in (*_NAMES, "mean_ns")}, "median_ns": median_ns}


def _killed(gone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that were killed, worst first: inside of a range before outside of any, and who was gone first."""
    killed = [process for process in gone if process["state"] == stages.KILLED]
    return sorted(killed, key=lambda process: (not process["inside"], process["last_seen_ns"] or 0))


def _endings(gone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How the others ended, where they did not just say so: `state`, `how`, and `processes` as those of `killed`."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for process in gone:
        if process["state"] != stages.KILLED and process["how"]:
            groups.setdefault((process["state"], process["how"]), []).append(process)
    return [{"state": state, "how": how, "processes": alike} for (state, how), alike in sorted(groups.items())]


def _gone(processes: pl.DataFrame, open_ranges: pl.DataFrame) -> list[dict[str, Any]]:
    """Every process with how it ended, and what it was inside of where it is gone without a word."""
    inside: dict[int, list[dict[str, Any]]] = {}
    for opened in stages.endings(processes, open_ranges).to_dicts():
        inside.setdefault(opened.pop("row"), []).append(opened)
    return [
        {key: process[key] for key in (*_NAMES, "attempt", "last_seen_ns", "state")}
        | {"how": process["ending"], "inside": inside.get(row, [])}
        for row, process in enumerate(processes.iter_rows(named=True))
    ]


def _coalesced(run: Run) -> list[dict[str, Any]]:
    """Ranges whose calls were added up: name, calls and records of each, by calls."""
    import polars as pl

    calls = pl.col("attributes").str.extract(_COALESCED).cast(pl.Int64, strict=False).alias("calls")
    parts = [ranges.select(pl.col("name").cast(pl.String), calls).drop_nulls() for ranges, _ in run.batches()]
    if not parts:
        return []
    grouped = pl.concat(parts).group_by("name").agg(pl.col("calls").sum(), pl.len().alias("records"))
    return grouped.sort("calls", "name", descending=[True, False]).to_dicts()


def _losses(processes: pl.DataFrame) -> list[dict[str, Any]]:
    """Processes that lost anything, with their counters."""
    kept = (*_NAMES, *LOSSES)
    rows = [{key: process[key] for key in kept} for process in processes.iter_rows(named=True)]
    return [row for row in rows if any(row[name] for name in LOSSES)]
