"""What the profilers of torch_npu and MindSpore have in common: their options, how one is built, what it leaves behind.

Both are fronts of CANN's profiler with the same names for the same things: `profile`, `_ExperimentalConfig`,
`tensorboard_trace_handler`, and a folder `<host>_<pid>_<time>_ascend_..` with CANN's `PROF_*` folder in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple

from ..profiling.declare import Options, Preset
from ._session import Refused
from ._surface import Surface, fitted, impossible, on_host


class Dialect(NamedTuple):
    """What one of them calls its own way.

    Args:
        levels: Name of each level of a preset.
        exports: What its export is given as.
        metrics: Name of the enumeration of AI Core metrics.
        suffix: How the folders end that it writes.
        exports_are_members: Are `exports` names of members of its `ExportType`?
        lacks: Options that it has in no version, and why they are left out.
    """

    levels: Mapping[str, str]
    exports: Mapping[str, Any]
    metrics: str
    suffix: str
    exports_are_members: bool = False
    lacks: Mapping[str, str] = {}


def described(
    preset: Preset, dialect: Dialect, surface: Surface | None, metrics: str, **more: Any
) -> tuple[Options, list[str]]:
    """What a preset becomes in a version with this surface, None: in the newest known; and what that drops.

    Args:
        metrics: Name of the AI Core metrics.
        more: Further options of `profile`.
    """
    config: Options = {
        "profiler_level": dialect.levels[preset.level],
        "aic_metrics": metrics,
        "mstx": preset.mstx,
        "mstx_domain_exclude": list(preset.domains_exclude),
        "export_type": dialect.exports[preset.export],
    }
    options = {"activities": [one.upper() for one in preset.activities], **on_host(preset), **more}
    asked = {name: options.pop(name, None) for name in dialect.lacks}
    notes = [f"{name}={value!r} is left out: {dialect.lacks[name]}" for name, value in asked.items() if value]
    if surface is not None:
        if "mstx" not in surface.config and "msprof_tx" in surface.config:
            config["msprof_tx"] = config.pop("mstx")
        options, lost_outside = fitted(options, surface.profile)
        config, lost_inside = fitted(config, surface.config)
        reason = impossible(preset, surface, dialect.levels[preset.level])
        notes += [*lost_outside, *lost_inside, *([f"refused: {reason}"] if reason else [])]
    return {**options, "experimental_config": config, "analyse_flag": False}, notes


def built(profiler: Any, dialect: Dialect, options: Options, folder: Path, **more: Any) -> Any:
    """A `profile` of the module `profiler` with these options; it does not record yet.

    The folder is process-wide and set when the handler is made: start it before anything else makes one.

    Args:
        more: Further arguments of `profile`.

    Raises:
        Refused: the profiler would record elsewhere.
    """
    config = dict(options["experimental_config"])
    config["profiler_level"] = getattr(profiler.ProfilerLevel, config["profiler_level"])
    config["aic_metrics"] = getattr(getattr(profiler, dialect.metrics), config["aic_metrics"])
    if dialect.exports_are_members:
        config["export_type"] = [getattr(profiler.ExportType, name) for name in config["export_type"]]
    given = {name: value for name, value in options.items() if name not in ("experimental_config", "analyse_flag")}
    given["activities"] = [getattr(profiler.ProfilerActivity, name) for name in options["activities"]]
    depth = profiler._ExperimentalConfig(**config)
    handler = profiler.tensorboard_trace_handler(str(folder), analyse_flag=options["analyse_flag"])
    if handler is None:  # MindSpore logs an error, and would record where the profiler before it did, or into ./data
        raise Refused(f"the profiler does not take the folder {folder}: letters, digits, spaces and . / _ - ~ alone")
    return profiler.profile(**given, **more, experimental_config=depth, on_trace_ready=handler)


class Output:
    """What one recording leaves in a folder.

    Args:
        has_device: Must CANN's data be in it?
    """

    def __init__(self, folder: Path, dialect: Dialect, has_device: bool) -> None:
        self._folder, self._wanted, self._has_device = folder, f"*{dialect.suffix}", has_device
        self._before = set(folder.glob(self._wanted))

    def found(self) -> Path | None:
        """The newest folder that was not there before."""
        return max(set(self._folder.glob(self._wanted)) - self._before, default=None)

    def lacking(self, output: Path) -> str | None:
        """What an output must hold and does not: the profiler itself prints errors at most."""
        if not self._has_device:
            return None
        if not any(output.glob("PROF_*")):
            return f"{output} holds no PROF_* folder: CANN recorded nothing (its own log says why)"
        info = next(output.glob("profiler_info*.json"), None)
        if info is None or not info.stat().st_size:
            return f"{output} holds no profiler_info.json, without which it cannot be parsed: is the disk full?"
        return None
