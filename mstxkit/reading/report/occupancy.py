"""How much of a step no process is in a stage, and how much one alone is, while all others are in none."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from .. import intervals
from ..run import Run
from ..tables import waits


def summarise(run: Run) -> dict[str, Any] | None:
    """`nobody, alone, label, stages, others`; None: no process is in a stage in any step.

    `nobody` and `alone` are shares of the time of all steps, warm-up left out: in which no process is in a stage, and
    the largest in which one alone is. Of that one its `label` and (stage, share), the largest first; `others` are in
    stages besides. Who waits in a stage (`waits_for`) is not in it.
    """
    # The time of all steps: of each from the end of the one before, where somebody did that.
    spans_s = np.concatenate([np.zeros((0, 2)), *(np.stack(of.spans_s(), axis=1) for of in run.roles.steady)])
    spans_ns = run.roles.origin_ns() + (1e9 * spans_s[np.isfinite(spans_s).all(axis=1)]).astype(np.int64)
    steps = intervals.union(*spans_ns.T)
    rows = waits.only_work(run.files.stage_rows).filter(pl.col("duration_ns") > 0)
    rows = rows.with_columns(pl.col("stage").cast(pl.String), end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    inside = {of["process"][0]: waits.unite_rows(of).cut(steps) for of in rows.partition_by("process")}
    inside = {process: time for process, time in inside.items() if time.total_ns}
    if not inside:
        return None
    starts, ends = (np.concatenate(times) for times in zip(*inside.values()))
    times, some = np.concatenate([starts, ends]), intervals.union(starts, ends)
    order = np.argsort(times, kind="stable")
    is_single = np.cumsum(np.repeat([1, -1], len(starts))[order])[:-1] == 1
    single = intervals.union(times[order][:-1][is_single], times[order][1:][is_single])
    alone = {process: time.cut(single) for process, time in inside.items()}
    first = max(alone, key=lambda process: alone[process].total_ns)
    own = rows.filter(pl.col("process") == first).partition_by("stage")
    stages = [(of["stage"][0], waits.unite_rows(of).cut(alone[first]).total_ns / steps.total_ns) for of in own]
    stages.sort(key=lambda stage: -stage[1])
    return {
        "nobody": 1 - some.total_ns / steps.total_ns, "alone": alone[first].total_ns / steps.total_ns,
        "label": run.roles.processes["label"][first], "stages": stages, "others": len(inside) - 1,
    }  # fmt: skip
