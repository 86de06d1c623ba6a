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
from . import _ascend
from ._ascend import Dialect, Output
from ._session import ProfilerSession, Refused
from ._surface import NOT_IMPORTED, Surface, impossible, launcher

DIALECT = Dialect(
    {"none": "LevelNone", "level0": "Level0", "level1": "Level1", "level2": "Level2"},
    {"text": ["Text"], "db": ["Db"], "both": ["Text", "Db"]},
    "AicoreMetrics",
    "_ascend_ms",
    exports_are_members=True,
    lacks={"with_modules": "MindSpore has no such option"},
)


class MindSpore:
    """The backend of a process that trains with MindSpore."""

    name = "mindspore"
    on_disk = True

    def version(self) -> str:
        """That of MindSpore."""
        return str(getattr(sys.modules.get("mindspore"), "__version__", ""))

    def device(self) -> int | None:
        """The NPU of this process; None on a CPU."""
        mindspore: Any = sys.modules["mindspore"]
        return int(mindspore.get_context("device_id")) if _has_device() else None

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

    def start(self, preset: Preset, folder: Path, limit_bytes: int | None = None) -> ProfilerSession:
        """Record; the data are in `<folder>/<host>_<pid>_<time>_ascend_ms`. Cost: waits for the device at the stop."""
        return ProfilerSession.begun(self.name, folder, lambda made: self._built(preset, made, limit_bytes))

    def _built(self, preset: Preset, folder: Path, limit_bytes: int | None) -> _Recorder:
        surface = self._surface()
        reason = self.why_not() or impossible(preset, surface, DIALECT.levels[preset.level])
        if reason or _recording():
            raise Refused(reason or "another profiler of MindSpore is open in this process already")
        return _Recorder(described(preset, surface)[0], folder, limit_bytes)

    def _surface(self) -> Surface | None:
        profiler = getattr(sys.modules.get("mindspore"), "profiler", None)
        return Surface.of(profiler, DIALECT.metrics) if hasattr(profiler, "profile") else None


BACKEND = MindSpore()


def described(preset: Preset, surface: Surface | None) -> tuple[Options, tuple[str, ...]]:
    """What a preset becomes in a version with this surface; None: in the newest known."""
    metrics, notes = _metrics(preset)
    options, lost = _ascend.described(preset, DIALECT, surface, metrics, start_profile=False)
    return options, (*notes, *lost)


def _metrics(preset: Preset) -> tuple[str, list[str]]:
    """MindSpore takes PipeUtilization for none at the levels that can record metrics: said here, not left to it."""
    if preset.aic_metrics == "none" and preset.level in ("level1", "level2"):
        return "PipeUtilization", ["aic_metrics none becomes PipeUtilization at this level"]
    return ("AiCoreNone" if preset.aic_metrics == "none" else preset.aic_metrics), []


def _has_device() -> bool:
    mindspore: Any = sys.modules["mindspore"]
    return bool(mindspore.get_context("device_target") == "Ascend")


def _interface() -> Any:
    """The one state of all profilers of a process; None in a version that keeps it elsewhere."""
    return getattr(sys.modules.get("mindspore.profiler.profiler_interface"), "ProfilerInterface", None)


def _recording() -> bool | None:
    """True from the start of any profiler of this process to its end."""
    return getattr(_interface(), "is_initialized", None)


class _Recorder:
    on_disk = True

    def __init__(self, options: Options, folder: Path, limit_bytes: int | None) -> None:
        self.notes: list[str] = []
        if limit_bytes is not None and _has_device():
            self.notes.append("CANN's own storage limit is not set: that is done for torch_npu alone")
        if "NPU" in options["activities"] and not _has_device():
            self.notes.append("this process has no NPU: MindSpore records the host side alone, if asked to")
        self._files = Output(folder, DIALECT, "NPU" in options["activities"] and _has_device())
        self.output, self.lacking = self._files.found, self._files.lacking
        self._profiler = _ascend.built(sys.modules["mindspore"].profiler, DIALECT, options, folder)

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> None:
        self._profiler.stop()

    def close(self) -> None:
        for name in ("stop", "finalize", "clear"):
            getattr(_interface(), name)()

    def is_recording(self) -> bool | None:
        return _recording()
