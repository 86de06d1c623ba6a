"""What allocates memory on the device, and when: operators on the host with their allocations, kernels beside them.

The host side is needed: allocations are recorded as its events (torch_npu keeps them in FRAMEWORK).
"""

from __future__ import annotations

from ..declare import Preset

PRESET = Preset(
    name="memory",
    level="level0",
    activities=("cpu", "npu"),
    memory=True,
    est_mb_per_step=300,
    cost="Each operator and each allocation on the host is an event: steps bound by the host become slower.",
)
