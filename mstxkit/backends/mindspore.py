"""Sessions of MindSpore's profiler: raw data only, to be parsed later and elsewhere.

Source: mindspore 2.10.0. `profiler/profiler.py`: constructing a `profile` starts it unless told otherwise.
`profiler/profiler_interface.py`: one state for the process; a second profiler joins the first, and its stop ends both.
`profiler/common/profiler_parameters.py`: a bad value is replaced by the default, level none without mstx by Level0.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ..profiling.declare import Options, Preset
from ._session import ProfilerSession, Refused
from ._surface import NOT_IMPORTED, Surface, fitted, impossible, launcher, on_host

_LEVELS = {"none": "LevelNone", "level0": "Level0", "level1": "Level1", "level2": "Level2"}
_EXPORTS = {"text": ["Text"], "db": ["Db"], "both": ["Text", "Db"]}
_STATE = "mindspore.profiler.profiler_interface"


class MindSpore:
    """The backend of a process that trains with MindSpore."""

    name = "mindspore"

    def why_not(self) -> str | None:
        """Why it cannot record here; None if it can. On a CPU it can: the host side alone."""
        mindspore: Any = sys.modules.get("mindspore")
        if mindspore is None:
            return NOT_IMPORTED
        if not hasattr(getattr(mindspore, "profiler", None), "profile"):
            return "this MindSpore has no mindspore.profiler.profile (before 2.5), or is still being imported"
        return launcher()

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """Options by MindSpore's names, and what this version drops; as for 2.10.0 where it is not imported."""
        return described(preset, self._surface())

    def start(self, preset: Preset, folder: Path) -> ProfilerSession:
        """Record; the data are in `<folder>/<host>_<pid>_<time>_ascend_ms`. Cost: waits for the device at the stop."""
        return ProfilerSession.begun(self.name, folder, lambda made: self._built(preset, made))

    def _built(self, preset: Preset, folder: Path) -> _Recorder:
        surface = self._surface()
        reason = self.why_not() or impossible(preset, surface, _LEVELS[preset.level])
        if reason or _recording():
            raise Refused(reason or "another profiler of MindSpore is open in this process already")
        return _Recorder(described(preset, surface)[0], folder)

    def _surface(self) -> Surface | None:
        profiler = getattr(sys.modules.get("mindspore"), "profiler", None)
        return Surface.of(profiler, "AicoreMetrics") if hasattr(profiler, "profile") else None


BACKEND = MindSpore()


def described(preset: Preset, surface: Surface | None) -> tuple[Options, tuple[str, ...]]:
    """What a preset becomes in a version with this surface; None: in the newest known."""
    metrics, notes = _metrics(preset)
    config: Options = {
        "profiler_level": _LEVELS[preset.level],
        "aic_metrics": metrics,
        "mstx": preset.mstx,
        "mstx_domain_exclude": list(preset.domains_exclude),
        "export_type": _EXPORTS[preset.export],
    }
    options = {"activities": [one.upper() for one in preset.activities], **on_host(preset), "start_profile": False}
    if options.pop("with_modules"):
        notes.append("with_modules=True is left out: MindSpore has no such option")
    if surface is not None:
        options, lost_outside = fitted(options, surface.profile)
        config, lost_inside = fitted(config, surface.config)
        reason = impossible(preset, surface, _LEVELS[preset.level])
        notes += [*lost_outside, *lost_inside, *([f"refused: {reason}"] if reason else [])]
    return {**options, "experimental_config": config, "analyse_flag": False}, tuple(notes)


def _metrics(preset: Preset) -> tuple[str, list[str]]:
    """MindSpore takes PipeUtilization for none at the levels that can record metrics: said here, not left to it."""
    if preset.aic_metrics == "none" and preset.level in ("level1", "level2"):
        return "PipeUtilization", ["aic_metrics none becomes PipeUtilization at this level"]
    return ("AiCoreNone" if preset.aic_metrics == "none" else preset.aic_metrics), []


def _interface() -> Any:
    """The one state of all profilers of a process; None in a version that keeps it elsewhere."""
    return getattr(sys.modules.get("mindspore.profiler.profiler_interface"), "ProfilerInterface", None)


def _recording() -> bool | None:
    """True from the start of any profiler of this process to its end."""
    return getattr(_interface(), "is_initialized", None)


class _Recorder:
    on_disk = True

    def __init__(self, options: Options, folder: Path) -> None:
        self._folder, self._before = folder, set(folder.glob("*_ascend_ms"))
        mindspore: Any = sys.modules["mindspore"]
        self._has_device = "NPU" in options["activities"] and mindspore.get_context("device_target") == "Ascend"
        self._profiler = _profile(mindspore.profiler, options, folder)

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> None:
        self._profiler.stop()

    def close(self) -> None:
        for name in ("stop", "finalize", "clear"):
            getattr(_interface(), name)()

    def is_recording(self) -> bool | None:
        return _recording()

    def output(self) -> Path | None:
        return max(set(self._folder.glob("*_ascend_ms")) - self._before, default=None)

    def lacking(self, output: Path) -> str | None:
        if self._has_device and not any(output.glob("PROF_*")):
            return f"{output} holds no PROF_* folder: CANN recorded nothing (its own log says why)"
        return None


def _profile(profiler: Any, options: Options, folder: Path) -> Any:
    config = dict(options["experimental_config"])
    config["profiler_level"] = getattr(profiler.ProfilerLevel, config["profiler_level"])
    config["aic_metrics"] = getattr(profiler.AicoreMetrics, config["aic_metrics"])
    config["export_type"] = [getattr(profiler.ExportType, name) for name in config["export_type"]]
    given = {name: value for name, value in options.items() if name not in ("experimental_config", "analyse_flag")}
    given["activities"] = [getattr(profiler.ProfilerActivity, name) for name in options["activities"]]
    return profiler.profile(
        **given,
        experimental_config=profiler._ExperimentalConfig(**config),
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=options["analyse_flag"]),
    )
