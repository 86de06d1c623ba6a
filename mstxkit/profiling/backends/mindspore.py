"""Sessions of MindSpore's profiler: raw data only, to be parsed later and elsewhere.

Source: mindspore 2.10.0. `profiler/profiler.py`: constructing a `profile` starts it unless told otherwise.
`profiler/profiler_interface.py`: one state for the process; a second profiler joins the first, and its stop ends both.
`profiler/common/profiler_parameters.py`: a bad value is replaced by the default, level none without mstx by Level0.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...store.options import METRIC_LEVELS
from ..declare import Options, Preset
from . import NOT_IMPORTED
from ._ascend import AscendBackend, AscendOutput, build_profile
from ._surface import explain_launcher

NAME, _SUFFIX = "mindspore", "_ascend_ms"


def _has_device() -> bool:
    mindspore: Any = sys.modules["mindspore"]
    return bool(mindspore.get_context("device_target") == "Ascend")


def _find_interface() -> Any:
    """The one state of all profilers of a process; None in a version that keeps it elsewhere."""
    return getattr(sys.modules.get("mindspore.profiler.profiler_interface"), "ProfilerInterface", None)


# Source: mindspore 2.10.0 `profiler/common/profiler_context.py`: options and folder of the profiler that was made last,
# looked up when one begins.
_CONTEXT = ("_profiler_params_mgr", "_profiler_path_mgr", "_on_trace_ready_output_path")


def _find_context() -> Any:
    module = sys.modules.get("mindspore.profiler.common.profiler_context")
    return getattr(module, "ProfilerContext", lambda: None)()


def _in_context() -> dict[str, Any]:
    context = _find_context()
    return {name: getattr(context, name) for name in _CONTEXT if hasattr(context, name)}


class _MindsporeProfiler(AscendOutput):
    def __init__(self, options: Options, folder: Path, limit_bytes: int | None) -> None:
        super().__init__(folder, _SUFFIX, "NPU" in options["activities"] and _has_device())
        if limit_bytes is not None and _has_device():
            self.notes.append("CANN's own storage limit is not set: that is done for torch_npu alone")
        if "NPU" in options["activities"] and not _has_device():
            self.notes.append("this process has no NPU: MindSpore records the host side alone, if asked to")
        self._theirs = _in_context()
        self._profiler = build_profile(sys.modules["mindspore"].profiler, NAME, options, folder)
        self._ours = _in_context()
        self.start = self._profiler.start

    def stop(self) -> None:
        try:
            self._profiler.stop()
        finally:
            # A profiler of the user's that waits finds its own options; what was set meanwhile stays.
            for name, value in _in_context().items():
                if value is self._ours.get(name):
                    setattr(_find_context(), name, self._theirs[name])

    def close(self) -> None:
        for name in ("stop", "finalize", "clear"):
            getattr(_find_interface(), name)()

    @staticmethod
    def is_recording() -> bool | None:
        """True from the start of any profiler of this process to its end."""
        return getattr(_find_interface(), "is_initialized", None)


class MindSpore(AscendBackend):
    """The backend of a process that trains with MindSpore."""

    name = NAME
    recorder = _MindsporeProfiler
    other = "another profiler of MindSpore is open in this process already"
    always = {"start_profile": False}

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
        return explain_launcher()

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """As for torch_npu; what MindSpore records in place of no metrics is said here, and not left to it."""
        if preset.aic_metrics != "none" or preset.level not in METRIC_LEVELS:
            return super().described(preset)
        options, notes = super().described(replace(preset, aic_metrics="PipeUtilization"))
        return options, ("aic_metrics none becomes PipeUtilization at this level", *notes)


BACKEND = MindSpore()
