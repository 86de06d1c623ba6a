"""What the steps of a run say, in the mean of them: where their time goes, who is late and waited for, tails, tokens.

Warm-up is left out. Text, JSON and page take it from here. Plain values of the whole run, times in ns; `role` is ""
where none is known.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl

from ...judging.measuring import FED
from ...stages import canonical_key
from ...store.metrics_setting import Flops
from .. import intervals
from ..role_runs import RoleRun
from ..run import Run
from ..tables import lateness as lateness_table
from ..tables import waits
from ..tables.tails import GENERATES
from .choice import Supposed

_SAMPLES, _TOLD_LEAST = 24, 100


def summarise_steps(run: Run, supposed: Supposed) -> dict[str, Any]:
    """`wait_ratio, occupancy, fed_by, critical_path, lateness, held_up_by, tails, samples, throughput, resharding`.

    `wait_ratio` is what ranks wait for others, of all their time; `hides_waits`: at least. Of `samples` there are
    those that went on alone longest (`longest_alone`, as `Run.samples()`), how many went `alone`, and the `count`.
    """
    samples = run.samples()
    late = lateness_table.table(run.files, run.roles.steps, run.roles.steps_ringed)
    steady = run.roles.is_steady
    alone = samples.filter(samples["alone_ns"] > 0).sort("alone_ns", descending=True, maintain_order=True)
    steps = run.steps().filter(steady)
    steps_told = {int(n) for of in run.roles.steady for n in of.steps[np.isfinite(of.inside_s).any(axis=(1, 2))]}
    are_many = len(steps_told) >= max(1, min(_TOLD_LEAST, steps["step"].n_unique()))
    return {
        "wait_ratio": wait_ratio(steps.filter(steps["step"].is_in(list(steps_told))) if are_many else steps),
        "hides_waits": any(of.hiding_stages() for of in run.roles.steady) or (bool(steps_told) and not are_many),
        "occupancy": mean_occupancy(run),
        "fed_by": fed_by(run.roles.steady),
        "critical_path": critical_path(run.critical_path().filter(steady)),
        "lateness": mean_lateness(late.filter(steady), run.roles.runs),
        "held_up_by": held_up_by(run.bubbles().filter(steady)), "tails": mean_tails(run.tails().filter(steady)),
        "throughput": mean_throughput(run.throughput().filter(steady), supposed.flops),
        "samples": {
            "count": samples.height, "alone": alone.height, "longest_alone": alone.head(_SAMPLES).to_dicts()
        },
        "resharding": mean_resharding(run.resharding().filter(steady)),
    }  # fmt: skip


def wait_ratio(steps: pl.DataFrame) -> float | None:
    """Of all time of all ranks: a long step counts for more than a short one. None: there was no time."""
    waited, lasted = ((steps[name] * steps["ranks"].cast(pl.Float64)).sum() for name in ("wait_ns", "duration_ns"))
    return waited / lasted if lasted > 0 else None


def mean_occupancy(run: Run) -> dict[str, Any] | None:
    """`nobody, alone, label, stages, others`; None: no process is in a stage in any step.

    `nobody` and `alone` are shares of the time of all steps, warm-up left out: in which no process is in a stage, and
    the largest in which one alone is. Of that one its `label` and (stage, share), the largest first; `others` are in
    stages besides. Who waits in a stage (`waits_for`) is not in it.
    """
    # The time of all steps: of each from the end of the one before, where somebody did that.
    spans_s = np.concatenate([np.zeros((0, 2)), *(np.stack(of.spans_s(), axis=1) for of in run.roles.steady)])
    spans_ns = run.roles.origin_ns() + (1e9 * spans_s[np.isfinite(spans_s).all(axis=1)]).astype(np.int64)
    steps = intervals.join_stretches(*spans_ns.T)
    rows = waits.only_work(run.files.stage_rows).filter(pl.col("duration_ns") > 0)
    rows = rows.with_columns(pl.col("stage").cast(pl.String), end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    inside = {of["process"][0]: waits.unite_rows(of).cut(steps) for of in rows.partition_by("process")}
    inside = {process: time for process, time in inside.items() if time.total_ns}
    if not inside:
        return None
    starts, ends = (np.concatenate(times) for times in zip(*inside.values()))
    times, some = np.concatenate([starts, ends]), intervals.join_stretches(starts, ends)
    order = np.argsort(times, kind="stable")
    is_single = np.cumsum(np.repeat([1, -1], len(starts))[order])[:-1] == 1
    single = intervals.join_stretches(times[order][:-1][is_single], times[order][1:][is_single])
    alone = {process: time.cut(single) for process, time in inside.items()}
    first = max(alone, key=lambda process: alone[process].total_ns)
    own = rows.filter(pl.col("process") == first).partition_by("stage")
    stages = [(of["stage"][0], waits.unite_rows(of).cut(alone[first]).total_ns / steps.total_ns) for of in own]
    stages.sort(key=lambda stage: -stage[1])
    return {
        "nobody": 1 - some.total_ns / steps.total_ns, "alone": alone[first].total_ns / steps.total_ns,
        "label": run.roles.processes["label"][first], "stages": stages, "others": len(inside) - 1,
    }  # fmt: skip


def fed_by(runs: tuple[RoleRun, ...]) -> list[dict[str, Any]]:
    """`role, stage, by, ratio`: where ranks wait for another role, as a share of their steps, the largest first."""
    rows = []
    for run in (run for run in runs if any(rank is not None for rank in run.ranks)):
        for piece in np.flatnonzero(run.mode == FED).tolist():
            pairs = (pair for course in run.courses for pair in zip(course.kinds, course.feeds))
            feeds = (feed for kind, feed in pairs if feed and kind == run.kinds[piece])
            by = Counter(role for feed in feeds for role, _ in feed.courses).most_common(1)
            ratio = float(np.nansum(run.wait_s[:, :, piece], axis=0).max() / max(1e-9, run.step_s() * len(run.steps)))
            rows += [{"role": run.role, "stage": run.stage(piece), "by": role, "ratio": ratio} for role, _ in by]
    return sorted(rows, key=lambda row: -float(row["ratio"]))


def critical_path(path: pl.DataFrame) -> list[dict[str, Any]]:
    """`role, stage, where, ns, ratio`: of each stage, or the time before it, ns of a step and share; longest first."""
    rows = path.with_columns(steps=pl.col("step").n_unique().over("role"))
    of_a_step = (pl.col("duration_ns").sum() / pl.col("steps").first()).round().cast(pl.Int64)
    means = rows.group_by("role", "stage", "where", maintain_order=True).agg(ns=of_a_step)
    means = means.with_columns(ratio=pl.col("ns") / pl.col("ns").sum().over("role"))
    return means.sort("ns", descending=True, maintain_order=True).to_dicts()


def mean_lateness(late: pl.DataFrame, runs: tuple[RoleRun, ...]) -> list[dict[str, Any]]:
    """`role, rank, stage, source, late_ns, error_ns, steps`: who enters after the first, latest first; who is first is
    not among them. `error_ns` is the largest bound.
    """
    roles = {(rank, canonical_key(kind.stage)): run.role for run in runs for rank in run.ranks for kind in run.kinds}
    any_role = {rank: run.role for run in runs for rank in run.ranks}
    means = late.group_by("rank", "stage", "source", "role").agg(
        late_ns=pl.col("late_ns").mean(), error_ns=pl.col("error_ns").max(), steps=pl.col("step").n_unique()
    )
    rows = means.filter(pl.col("late_ns") > 0).sort("late_ns", "rank", "stage", descending=[True, False, False])
    entries = rows.to_dicts()
    for row in (row for row in entries if row["role"] is None):
        row["role"] = roles.get((row["rank"], canonical_key(row["stage"])), any_role.get(row["rank"], ""))
    return entries


def held_up_by(bubbles: pl.DataFrame) -> list[dict[str, Any]]:
    """`role, rank, stage, steps, of_steps, wait_ns`: whom the others waited for, late in which stage, in how many steps
    of those in which any waits; how long, all together a step. Most first.
    """
    rows = bubbles.with_columns(of_steps=pl.col("step").n_unique().over("role"))
    is_known = pl.col("gate_rank").is_not_null() & pl.col("gate_stage").is_not_null()
    rows = rows.filter(is_known & (pl.col("rank") != pl.col("gate_rank")))
    gates = rows.group_by("role", rank="gate_rank", stage="gate_stage").agg(
        pl.col("of_steps").first(), steps=pl.col("step").n_unique(),
        wait_ns=(pl.col("wait_ns").sum() / pl.col("of_steps").first()).round().cast(pl.Int64),
    )  # fmt: skip
    order = gates.sort("wait_ns", "rank", "stage", descending=[True, False, False])
    return order.filter(pl.col("wait_ns") > 0).to_dicts()


def mean_tails(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """`role, stage, generates, steps, middle_ns, p90_ns, last_ns, tail_ns, tail_ratio, idle_ns, longer_ratio, often`.

    Columns as `Run.tails()`; `longer_ratio`: the last rank's tokens over the mean of all, null where nobody tells.
    `often`: (rank, in how many steps it was last). What generates comes first, then the longest tail.
    """
    names = ("middle_ns", "p90_ns", "last_ns", "tail_ns", "tail_ratio", "idle_ns")
    longer = pl.col("last_rank_tokens") / (pl.col("tokens") / pl.col("ranks"))
    means = rows.group_by("role", "stage", maintain_order=True).agg(
        pl.col(*names).mean(), steps=pl.len(), often=pl.col("last_rank").value_counts(),
        longer_ratio=longer.filter(longer.is_finite()).mean(),
    )  # fmt: skip
    entries = means.sort("tail_ns", descending=True, maintain_order=True).to_dicts()
    for entry in entries:
        often = [(last["last_rank"], last["count"]) for last in entry["often"] if last["last_rank"] is not None]
        entry["often"] = [[rank, count] for rank, count in sorted(often, key=lambda last: (-last[1], last[0]))]
        entry["generates"] = canonical_key(entry["stage"]) == GENERATES
    return sorted(entries, key=lambda entry: not entry["generates"])


def mean_throughput(rows: pl.DataFrame, flops: Flops) -> list[dict[str, Any]]:
    """`role, stage, ranks, steps, tokens_per_s, step_tokens_per_s, mfu_ratio`, as `Run.throughput()` has it: all tokens
    over all the time, as in the mean of steps a short one would count for as much as a long one.
    """
    grouped = rows.group_by("role", "stage", maintain_order=True).agg(
        pl.col("ranks").max(), _a_second(pl.col("stage_ns")).alias("tokens_per_s"),
        _a_second(pl.col("step_ns")).alias("step_tokens_per_s"),
        _a_second(pl.col("stage_ns").cast(pl.Float64) * pl.col("ranks")).alias("mfu_ratio"), steps=pl.len(),
    )  # fmt: skip
    entries = grouped.to_dicts()
    for entry in entries:
        of_rank = entry["mfu_ratio"] or 0.0
        ratios = (flops.mfu_ratio(stage, of_rank, 1) for stage in (entry["stage"], canonical_key(entry["stage"])))
        entry["mfu_ratio"] = next(filter(None, ratios), None)
    return entries


def _a_second(ns: pl.Expr) -> pl.Expr:
    return pl.when(ns.sum() > 0).then(1e9 * pl.col("tokens").filter(ns.is_not_null()).sum() / ns.sum())


def mean_resharding(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """`kind, role, stage, steps, cost_ns, last_ns, step_ratio`, as of `Run.resharding()`; what costs most first."""
    means = rows.group_by("kind", "role", "stage", maintain_order=True).agg(
        pl.col("cost_ns", "last_ns").mean().round().cast(pl.Int64), pl.col("step_ratio").mean(),
        steps=pl.col("step").n_unique(),
    )  # fmt: skip
    return means.sort("last_ns", descending=True, nulls_last=True, maintain_order=True).to_dicts()
