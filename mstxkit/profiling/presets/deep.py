"""Everything, down to Python call stacks and runtime calls: for one short stage on one rank.

Stacks set a profile function in every Python thread: no debugger, coverage tool or other Python profiler beside it.
"""

from __future__ import annotations

from ..declare import Preset

PRESET = Preset(
    name="deep",
    level="level2",
    activities=("cpu", "npu"),
    domains_exclude=("communication",),
    shapes=True,
    stacks=True,
    aic_metrics="PipeUtilization",
    est_mb_per_step=12_000,
    cost="Every Python call is an event: the stage takes far longer, and its peers wait for it.",
)
