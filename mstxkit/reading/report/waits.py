"""What the report says of controllers that wait: for each stage how long, how long workers were busy, and the rest."""

from __future__ import annotations

from typing import Any

import polars as pl
from rich.text import Text

from ..run import Run
from ..tables import waits
from .escape import escape_name
from .units import write_duration

_SUMMED = ("count", "waited_ns", "busy_ns", "unaccounted_ns", "before_ns", "between_ns", "after_ns")
# A part of the rest that is smaller is not told on a terminal, nor are more names than these.
_LEAST_SHARE, _MOST_NAMES = 0.05, 3
_PLACES = {"before_ns": "before they began", "between_ns": "between", "after_ns": "after they ended"}


def summarise_waits(
    run: Run, waiting: pl.DataFrame, names: list[dict[str, Any]], steps: tuple[int, int] | None
) -> list[dict[str, Any]]:
    """Of each controller and stage the sums over all steps, in order of begin; without any steps, over all there is.

    `stage, controller, steps, count, waited_ns, busy_ns, unaccounted_ns, before_ns, between_ns, after_ns, slowest,
    slowest_ns, meanwhile`; `slowest` of the workers is the one that was so in the longest of its steps. `waiting`: of
    the run's `waits()` the rows of these `steps`, the first and the last; `names`: what names each process, by its row.
    """
    waiting = waits.in_steps(waiting)
    others = waits.measure_meanwhile(run.files, steps) if waiting.height else {}
    grouped = waiting.group_by("process", "stage", maintain_order=True).agg(
        *(pl.col(name).sum() for name in _SUMMED),
        pl.col("slowest", "slowest_ns").sort_by("slowest_ns").last(),
        steps=pl.col("step").n_unique() - pl.col("step").is_null().any(),
    )
    entries = grouped.to_dicts()
    for entry in entries:
        process, slowest = entry.pop("process"), entry["slowest"]
        entry["controller"] = names[process]
        entry["slowest"] = None if slowest is None else names[slowest]
        entry["meanwhile"] = others.get((process, entry["stage"]), [])
    return entries


def render_waits(entries: list[dict[str, Any]]) -> list[Text]:
    """A line for each stage, in time of a step: what the driver waited, what workers were busy, where the rest went."""
    if not entries:
        return []
    has_steps = any(entry["steps"] for entry in entries)
    several = len({entry["controller"]["label"] for entry in entries}) > 1
    lines = [Text.assemble("\n", ("Driver and workers", "bold"), ", a step" if has_steps else "")]
    for entry in entries:
        steps, stage = max(entry["steps"], 1), escape_name(entry["stage"])
        times = (write_duration(entry[name] / steps) for name in ("waited_ns", "busy_ns", "unaccounted_ns"))
        who = f"driver {escape_name(entry['controller']['label'])}" if several else "driver"
        sentence = "{} waited {}, workers were busy {}, unaccounted {}".format(who, *times)
        # Where the unaccounted time lies, and what other ranges tell of it.
        least_ns = max(_LEAST_SHARE * entry["unaccounted_ns"], 1)
        lying = [(entry[name], text) for name, text in _PLACES.items()] if entry["busy_ns"] else []
        parts = ", ".join(f"{write_duration(ns / steps)} {text}" for ns, text in lying if ns >= least_ns)
        telling = [other for other in entry["meanwhile"] if other["ns"] >= least_ns][:_MOST_NAMES]
        names = ", ".join(f"{escape_name(other['name'])} {write_duration(other['ns'] / steps)}" for other in telling)
        clauses = "; ".join(filter(None, [parts, f"in it {names}" if names else ""]))
        lines.append(Text.assemble((stage, "bold"), f": {sentence}", (f" ({clauses})" if clauses else "", "dim")))
    return lines
