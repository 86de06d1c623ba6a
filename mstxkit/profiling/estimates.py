"""How many megabytes of raw data a step gives, by what is recorded: assumed, not measured, as in the shipped presets.

Each option has its share, and the shares are such that those of a shipped preset add up to its own number.
"""

from __future__ import annotations

from dataclasses import replace

from .declare import Preset

_OF_LEVEL_MB = {"none": 1, "level0": 100, "level1": 300, "level2": 1500}
_OF_OPTION_MB = {"memory": 50, "shapes": 150, "modules": 1500, "stacks": 9900}
_OF_HOST_MB, _OF_METRICS_MB = 150, 300


def estimated(preset: Preset) -> Preset:
    """The same preset with the number that its options add up to: for a training step of a few seconds, one rank."""
    total = _OF_LEVEL_MB[preset.level] if "npu" in preset.activities else 1
    total += sum(share for name, share in _OF_OPTION_MB.items() if getattr(preset, name))
    total += _OF_HOST_MB if "cpu" in preset.activities else 0
    total += _OF_METRICS_MB if preset.aic_metrics != "none" else 0
    return replace(preset, est_mb_per_step=total)
