"""A whole stage from operators on the host down to kernels and communication: what one escalates to.

Level1 records communication operators itself, so that the mstx domain `communication`, two stream tasks for each
collective, is left out (as verl does).
"""

from __future__ import annotations

from ..declare import Preset

PRESET = Preset(
    name="full",
    level="level1",
    activities=("cpu", "npu"),
    domains_exclude=("communication",),
    shapes=True,
    aic_metrics="PipeUtilization",
    est_mb_per_step=900,
    cost="Each operator on the host is an event with its shapes: steps bound by the host become markedly slower.",
)
