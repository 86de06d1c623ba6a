"""What the charts of a page show, as plain values: arrays of few bytes each, in which many steps or ranks are put
together, so that a page of 1,024 ranks stays small.
"""

from __future__ import annotations

import base64
from typing import Any, Iterable, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ..report.escape import escape_name
from ..report.units import write_spans
from ..role_runs import RoleRun
from ..run import Run

# Of a chart at most, whatever the run has.
STAGES_AT_MOST = 12
ROLES_AT_MOST = 4
BETWEEN, OTHERS, ALL = "between stages", "other stages, and between", "all ranks"
BARS_OF_RANKS = 12


class Detail(NamedTuple):
    """How finely a page shows a run: columns and rows of a chart, and ranges of a step that is looked at closely, at
    most.
    """

    columns: int
    rows: int
    ranges: int


# The finest first: a page of which that would be too large takes a coarser one.
DETAILS = (Detail(160, 96, 2500), Detail(120, 64, 1600), Detail(80, 48, 1000), Detail(60, 32, 500), Detail(40, 16, 200))
_MEANS = ("critical_path", "lateness", "held_up_by", "tails", "throughput")


def of_run(run: Run, roles: Iterable[RoleRun], summary: dict[str, Any], detail: Detail) -> list[dict[str, Any]]:
    """One of each of these roles; with the rows of the summary that are of it."""
    path, tails, rates = run.critical_path(), run.tails(), run.throughput()
    return [
        _of_role(role, detail, summary, *(rows.filter(pl.col("role") == role.role) for rows in (path, tails, rates)))
        for role in roles
    ]


def _of_role(
    role: RoleRun, detail: Detail, summary: dict[str, Any], path: pl.DataFrame, tails: pl.DataFrame, rates: pl.DataFrame
) -> dict[str, Any]:
    columns = find_bounds(len(role.steps), detail.columns)
    rows = find_bounds(len(role.members), detail.rows)
    own = {key: [row for row in summary[key] if row["role"] == role.role] for key in _MEANS}
    widest = int(np.diff(columns).max())
    works = [escape_name(stage) for stage, at in role.stages().items() if np.isfinite(role.work[:, :, at[0]]).any()]
    names, lines = [], []
    for begin, end in zip(rows[:-1], rows[1:]):
        ranks = [rank for rank in role.ranks[begin:end] if rank is not None]
        names.append(write_spans(ranks) if ranks else escape_name(role.members[begin].who))
    for row in own["throughput"][:STAGES_AT_MOST]:  # tokens a second while in a stage, step by step
        line = _by_step(role, rates.filter(pl.col("stage") == row["stage"]), "tokens_per_s")
        lines.append({"stage": escape_name(row["stage"]), "stage_rate": pack_array(find_means(line, columns), "f4")})
    return {
        "role": escape_name(role.role) or ALL, "members": len(role.members),
        "steps": pack_array(role.steps[columns[:-1]], "u4"),
        "per_column": "" if widest == 1 else f"each column is the mean of up to {widest} steps",
        "rows": names, "path": _draw_path(role, path, columns),
        "heat": _draw_heat(role, columns, rows),
        "tails": _draw_tails(role, tails, own["tails"], columns), "works": works, "rates": lines, "means": own,
    }  # fmt: skip


def _draw_path(role: RoleRun, path: pl.DataFrame, columns: Any) -> dict[str, Any]:
    """Seconds of each stage on the critical path, column by column; gaps together."""
    every = list(dict.fromkeys(kind.stage for kind in role.kinds))
    stages, rest = every[:STAGES_AT_MOST], OTHERS if len(every) > STAGES_AT_MOST else BETWEEN
    table = np.zeros((len(stages) + 1, len(role.steps)))
    places = {int(step): at for at, step in enumerate(role.steps)}
    for step, stage, where, ns in path.select("step", "stage", "where", "duration_ns").iter_rows():
        number = stages.index(stage) if where == "in" and stage in stages else len(stages)
        table[number, places[step]] += ns / 1e9
    return {
        "stages": [*map(escape_name, stages), rest], "seconds": pack_array(find_means(table, columns, axis=1), "f4"),
        "length": pack_array(find_means(role.lengths_s, columns), "f4"),
    }  # fmt: skip


def _draw_heat(role: RoleRun, columns: Any, rows: Any) -> list[dict[str, Any]]:
    """Of each stage, rows × columns: by how many percent longer for the same work, and percent of the step waited."""
    with np.errstate(all="ignore"):
        off, inside = role.longer(), role.longer(is_inside=True)
        waited = (role.wait_s + role.inside_wait_s) / role.lengths_s[:, None, None]
        spent = np.nan_to_num(np.nansum(role.own_s, axis=(0, 1)) + np.nansum(role.wait_s, axis=(0, 1)))
    # The stages, and of the gaps those in which time goes by; what takes longest first: it is shown unasked.
    least = 0.02 * max(float(spent.sum()), 1e-12)
    pieces = [piece for piece in range(len(role.kinds)) if not role.is_gap[piece] or spent[piece] > least]
    heat = []
    for piece in sorted(pieces, key=lambda piece: -spent[piece])[:STAGES_AT_MOST]:
        values = np.where(np.isfinite(inside[:, :, piece]), inside[:, :, piece], off[:, :, piece])
        tables = [find_means(table.T, columns, axis=1) for table in (values, waited[:, :, piece])]
        slower, waits = (find_farthest(each, rows) for each in tables)
        heat.append({
            "stage": escape_name(role.stage(piece)), "where": role.where(piece),
            "slower": pack_percents(slower), "waits": pack_percents(waits),
        })  # fmt: skip
    return heat


def _by_step(role: RoleRun, rows: pl.DataFrame, name: str) -> Any:
    steps = pl.DataFrame({"step": role.steps})
    return steps.join(rows, on="step", how="left", maintain_order="left")[name].cast(pl.Float64).to_numpy()


def _draw_tails(role: RoleRun, rows: pl.DataFrame, means_: list[dict[str, Any]], columns: Any) -> dict[str, Any] | None:
    """Of the stage whose tail is told first: seconds of the rank in the middle, of nine in ten, and of the last."""
    if not means_:
        return None
    rows = rows.filter(pl.col("stage") == means_[0]["stage"])
    lines = {name: find_means(_by_step(role, rows, f"{name}_ns") / 1e9, columns) for name in ("middle", "p90", "last")}
    return {
        "generates": means_[0]["generates"], "stage": escape_name(means_[0]["stage"]),
        **{name: pack_array(values, "f4") for name, values in lines.items()},
    }  # fmt: skip


def pack_array(values: Any, kind: str) -> dict[str, Any]:
    """An array for the page: `k` its kind (i1, u1, u2, u4, f4), `b` its bytes in base64, `s` its shape."""
    array = np.ascontiguousarray(np.asarray(values).astype(f"<{kind}"))
    return {"k": kind, "b": base64.b64encode(array.tobytes()).decode("ascii"), "s": list(array.shape)}


def pack_percents(ratios: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Ratios as whole percents, -100 to 126; 127 where there is none."""
    whole = np.where(np.isfinite(ratios), np.clip(np.round(100 * np.nan_to_num(ratios)), -100, 126), 127)
    return pack_array(whole, "i1")


def find_bounds(count: int, at_most: int) -> npt.NDArray[np.int64]:
    """Where each of at most so many equal parts of `count` things begins, and the end."""
    return np.unique(np.linspace(0, count, min(count, at_most) + 1).round().astype(np.int64))


def find_means(values: npt.NDArray[np.float64], edges: npt.NDArray[np.int64], axis: int = 0) -> npt.NDArray[np.float64]:
    """The mean of each part, along one axis; NaN counts as nothing."""
    seen = np.isfinite(values)
    sums = np.add.reduceat(np.where(seen, values, 0.0), edges[:-1], axis=axis)
    counts = np.add.reduceat(seen.astype(float), edges[:-1], axis=axis)
    with np.errstate(all="ignore"):
        return np.asarray(sums / counts)


def find_farthest(values: npt.NDArray[np.float64], edges: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Of each part of rows what is farthest from 0, so that one rank of many is still seen; NaN where nothing is."""
    seen = np.where(np.isfinite(values), values, 0.0)
    high, low = (each.reduceat(seen, edges[:-1]) for each in (np.maximum, np.minimum))
    has_any = np.maximum.reduceat(np.isfinite(values), edges[:-1])
    return np.asarray(np.where(has_any, np.where(high >= -low, high, low), np.nan))
