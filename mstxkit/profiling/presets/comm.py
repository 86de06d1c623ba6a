"""Communication operators with their sizes and groups: who waits for whom.

Level1 is the least at which the device records them; the mstx domain `communication` adds torch_npu's own view.
"""

from __future__ import annotations

from ..declare import Preset

PRESET = Preset(
    name="comm",
    level="level1",
    activities=("npu",),
    est_mb_per_step=300,
    cost="As kernels, and each AscendCL call and communication task besides.",
)
