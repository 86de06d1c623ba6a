"""What devices did in each stage, as a report shows it: from imports and the run's own profiles. And who came last by
device ranges: of the newest steps that were profiled, and which of them to parse.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

import polars as pl
from rich.console import RenderableType
from rich.text import Text

from ...errors import ReadError
from ...store.values import group_by
from ..run import Run
from ..tables import device_entries, lateness
from .choice import ReportChoice, names_of
from .escape import NAME_LIMIT, escape_name, for_rich
from .number_table import NOTHING, PlainTable
from .units import write_duration, write_spans

# What the time of a stage is divided into; transfer and waiting are parts of communicating, told or bounded.
PARTS = ("computing", "communicating", "transfer", "waiting", "free")
_APART = ("transfer", "waiting")
BOUNDS = tuple(f"{part}_{end}_ns" for part in _APART for end in ("from", "to"))
TIMES = ("stage_ns", *(f"{part}_ns" for part in PARTS))
_STAGES_SHOWN, _RANKS_SHOWN, _WINDOWS_SHOWN = 16, 4, 3


def summarise_devices(run: Run, choice: ReportChoice) -> list[dict[str, Any]]:
    """Of each stage, the longest first, and rank: `take_means`. *Cost*: the run's own profiles are joined the first
    time, a gigabyte of them at most.
    """
    rows = run.device().filter(choice.rows())
    if choice.stages is not None:
        try:
            stages = names_of("stage", choice.stages, rows["stage"].unique())
        except ReadError:  # the report has it, and no device did anything in it
            return []
        rows = rows.filter(pl.col("stage").is_in(stages))
    most = pl.col("stage_ns").max().over("stage")
    of_ranks = take_means(rows, "stage", "rank")
    return of_ranks.sort(most, "stage", "rank", descending=[True, False, False], nulls_last=True).to_dicts()


def take_means(rows: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Of each group of rows of `Run.device()` the keys, `steps, stage_ns` and each of PARTS in ns, a step.

    In the mean of the steps; what no file tells is null. Transfer and waiting are so where one row does not tell them:
    then `known` is `bounded`, and BOUNDS hold the means of their bounds; `guessed`: an older version kept them, and it
    guessed some. Last come `first_step, last_step, sources, clocks, error_ns`: of which steps, of what kinds of files,
    how clocks were compared, and the largest bound of each number.
    """
    each = pl.col("known")
    how = pl.when(each.is_null().any()).then(None).when((each == "guessed").any()).then(pl.lit("guessed"))
    means = {name: pl.col(name).mean().round().cast(pl.Int64) for name in (*TIMES, *BOUNDS, "spans_ns")}
    for name in (*(f"{part}_ns" for part in _APART), *BOUNDS):
        means[name] = pl.when(pl.col(name).is_not_null().all()).then(means[name])
    return rows.group_by(keys).agg(
        pl.col("step").n_unique().cast(pl.Int64).alias("steps"), **means,
        known=how.when((each == "bounded").any()).then(pl.lit("bounded")).otherwise(pl.lit("told")),
        first_step=pl.col("step").min(), last_step=pl.col("step").max(), sources=pl.col("source").unique().sort(),
        clocks=pl.col("clock").unique().sort(), error_ns=pl.col("error_ns").max(),
    )  # fmt: skip


def write_times(row: dict[str, Any], nothing: str, names: tuple[str, ...] = TIMES) -> list[str]:
    """Times of a row of `take_means` as they are shown: what is bounded with both ends, what is guessed with its
    mark.
    """
    listed = []
    for part in (name[: -len("_ns")] for name in names):
        value, least, most = (row.get(f"{part}{end}_ns") for end in ("", "_from", "_to"))
        if value is not None:
            listed.append(("about " if part in _APART and row["known"] == "guessed" else "") + write_duration(value))
        elif least is None or most is None:
            listed.append(nothing)
        else:
            listed.append((f"{write_duration(least)} to " if least else "up to ") + write_duration(most))
    return listed


def write_origin(devices: list[dict[str, Any]]) -> str:
    """`Ascend DB of ranks 0-5, steps 0 to 9, right to 12 µs`: what the rows are from."""
    ranks = write_spans(row["rank"] for row in devices if row["rank"] is not None)
    steps = {row[key] for row in devices for key in ("first_step", "last_step") if row[key] is not None}
    of_ranks = f" of rank{'s' * (not ranks.isdecimal())} {ranks}" if ranks else ""
    ends = " to ".join(map(str, sorted({min(steps), max(steps)}))) if steps else ""
    of_steps = f", step{'s' * (len(steps) > 1)} {ends}" if steps else ""
    error = max((row["error_ns"] for row in devices if row["error_ns"] is not None), default=None)
    by = " by the wall clock" if any("wall clock" in row["clocks"] for row in devices) else ""
    right = "" if not error else f", right to {write_duration(error)}{by}"
    sources = " and ".join(sorted({escape_name(source) for row in devices for source in row["sources"]}))
    return f"{sources}{of_ranks}{of_steps}{right}"


def render_devices(devices: list[dict[str, Any]], everything: bool) -> list[RenderableType]:
    """A table, where there is anything to show, and what it is from."""
    if not devices:
        return []
    stages = group_by(devices, lambda row: str(row["stage"]))
    numbers = ("steps", "recorded", *PARTS)
    table = PlainTable("devices, of a step", *numbers, right=numbers)
    for stage in list(stages) if everything else list(stages)[:_STAGES_SHOWN]:
        rows, shown = stages[stage], len(stages[stage]) if everything else _RANKS_SHOWN
        for row in rows if len(rows) <= shown + 1 else rows[:shown]:
            name = for_rich(stage, NAME_LIMIT).append(f"  rank {row['rank']}")
            table.add_row(name, str(row["steps"]), *write_times(row, NOTHING))
        if len(rows) > shown + 1:
            table.add_row(Text(f"  … {len(rows) - shown} more ranks (--all)", "dim"))
    hidden = 0 if everything else len(stages) - _STAGES_SHOWN
    more = [Text(f"… {hidden} shorter stages (--all)", "dim")] if hidden > 0 else []
    return [table, *more, Text(f"  from {write_origin(devices)}", "dim")]


def find_last(run: str | os.PathLike[str], run_id: str) -> list[dict[str, Any]]:
    """`request, stage, step, is_parsed, group, rank, late_ns, error_ns` of the newest windows, the oldest first: which
    `rank` came last to the collective of which `group`, by more than the bound; None: nobody did, or `mstxkit profiles
    --analyse` has not parsed it for two ranks yet. *Cost*: reads their databases.
    """
    latest = []
    windows = [window for window in device_entries.find_windows(run, run_id) if window.is_parsed or window.is_of_npu]
    for window in windows[-_WINDOWS_SHOWN:]:
        about = {key: getattr(window, key) for key in ("request", "stage", "step", "is_parsed")}
        late = (row for row in lateness.of_device(window) if row.late_ns > row.error_ns)
        last = max(late, key=lambda row: row.late_ns - row.error_ns, default=None)
        nobody = {"group": "", "rank": None, "late_ns": 0, "error_ns": 0}
        latest.append({**about, **{key: getattr(last, key, unset) for key, unset in nobody.items()}})
    return latest


def tell_last(latest: Mapping[str, Any], run: str) -> str:
    """One of them. Names in it come from files that anybody wrote: escape it."""
    of_step = "several steps" if latest["step"] is None else f"step {latest['step']}"
    where = f"by device ranges of {of_step} in {latest['stage']}"
    if not latest["is_parsed"]:
        return f"{where}: not known yet; `mstxkit profiles {run} --analyse` parses that profile"
    if latest["rank"] is None:
        return f"{where}: no rank came later than the others by more than the bound"
    late, error = latest["late_ns"] / 1e6, latest["error_ns"] / 1e6
    who = f"rank {latest['rank']} came last of ranks {latest['group']}"
    return f"{where}: {who}, {late:.1f} ms after the first (to {error:.1f} ms)"
