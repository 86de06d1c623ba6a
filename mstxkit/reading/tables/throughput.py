"""`Run.throughput()`: tokens a second of each stage and step; where a token's cost is known, the share of the peak."""

from __future__ import annotations

import numpy as np
import polars as pl

from ...errors import CaptureError, ReadError
from ...store import metrics_setting
from ...store.metrics_setting import ByStage
from ..frames import make_schema
from ..role_runs import RoleRun, shown_ns

SCHEMA = make_schema("step role stage ranks tokens responses stage_ns step_ns tokens_per_s step_tokens_per_s mfu_ratio")


def table(
    runs: tuple[RoleRun, ...], flops_per_token: ByStage | None = None, peak_flops: ByStage | None = None
) -> pl.DataFrame:
    """Of each stage that tells of its tokens. `tokens_per_s`: of all ranks, from when the first enters the stage until
    the last has left it (`stage_ns`); where nobody waits and ranks drift apart, in the time of one rank in the mean.
    `step_tokens_per_s`: over the whole step. `ranks`: in the stage, whoever tells its tokens. `mfu_ratio`: share of
    their peak; null without its two figures, which `Run.throughput` tells of.
    """
    try:
        flops = metrics_setting.check_metrics(None, flops_per_token, peak_flops).flops
    except CaptureError as exc:
        of_both = f"flops_per_token={flops_per_token!r}, peak_flops={peak_flops!r}"
        raise ReadError(f"{of_both}: numbers above 0 are needed, or one for each stage") from exc
    rows = []
    for run in runs:
        lengths = run.lengths_s.tolist()
        for stage, (piece, *rest) in run.stages().items():
            work = run.work[:, :, piece]
            for at in np.flatnonzero(np.isfinite(work[:, :, 0]).any(axis=1)).tolist():
                came, done = run.came_s[at, :, piece], np.fmax.reduce(run.done_s[at][:, [piece, *rest]], axis=1)
                stage_s = float(np.nanmean(done - came) if run.is_free else np.nanmax(done) - np.nanmin(came))
                total, ranks, responses = float(np.nansum(work[at, :, 0])), int(np.isfinite(came).sum()), work[at, :, 1]
                per_s, of_step = (total / seconds if seconds > 0 else None for seconds in (stage_s, lengths[at]))
                rows.append((
                    int(run.steps[at]), run.role, stage, ranks, total,
                    float(np.nansum(responses)) if np.isfinite(responses).any() else None, shown_ns(stage_s),
                    shown_ns(lengths[at]), per_s, of_step,
                    None if per_s is None else flops.mfu_ratio(stage, per_s, ranks),
                ))  # fmt: skip
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("step", "role", maintain_order=True)
