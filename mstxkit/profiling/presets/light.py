"""Where the time goes, stage by stage, and nothing else: light enough to stay on duty.

Source: MindSpeed-RL's documented lightweight mode (`docs/zh/features/profiler.md`): mstx, level_none, NPU only. The
domain `communication` stays in: torch_npu marks each collective there, and at this level nothing else shows them.
"""

from __future__ import annotations

from ..declare import Preset

PRESET = Preset(
    name="light",
    level="none",
    activities=("npu",),
    est_mb_per_step=1,
    cost="One mstx call at each end of a range and of a collective; the device is waited for once, at the stop.",
)
