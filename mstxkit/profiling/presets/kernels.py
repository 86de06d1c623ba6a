"""Which kernels run, when and how long, without the host side that makes profiles large."""

from __future__ import annotations

from ..declare import Preset

PRESET = Preset(
    name="kernels",
    level="level0",
    activities=("npu",),
    est_mb_per_step=100,
    cost="The device notes start and end of each kernel; the host side goes on at its own speed.",
)
