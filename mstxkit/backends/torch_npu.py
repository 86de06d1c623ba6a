"""Sessions of torch_npu's profiler: raw data only, to be parsed later and elsewhere.

Source: torch_npu 2.7.1 and 2.13.0. `profiler/profiler.py`: every public call prints its errors and returns; the folder
is process-wide and set when `tensorboard_trace_handler` is called, so that the handler is made right before the start.
`csrc/profiler/npu_profiler.cpp`: start and stop must come from one thread, an inner stop ends an outer session.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ..profiling.declare import Options, Preset
from ._session import ProfilerSession, Refused
from ._surface import NOT_IMPORTED, Surface, fitted, impossible, launcher, on_host, torch_records

_LEVELS = {"none": "Level_none", "level0": "Level0", "level1": "Level1", "level2": "Level2"}
_EXPORTS: dict[str, Any] = {"text": "text", "db": "db", "both": ["text", "db"]}


class TorchNpu:
    """The backend of a process that trains with torch_npu."""

    name = "torch_npu"

    def why_not(self) -> str | None:
        """Why it cannot record here; None if it can."""
        torch_npu: Any = sys.modules.get("torch_npu")
        if torch_npu is None:
            return NOT_IMPORTED
        if not hasattr(torch_npu, "profiler"):
            return "this torch_npu has no profiler, or is still being imported"
        if not torch_npu.npu.is_available():
            return "torch_npu sees no NPU"
        return launcher()

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """Options by torch_npu's names, and what this version drops; as for 2.13.0 where it is not imported."""
        return described(preset, self._surface())

    def start(self, preset: Preset, folder: Path) -> ProfilerSession:
        """Record on this thread; the data are in `<folder>/<host>_<pid>_<time>_ascend_pt`.

        Cost: initialises the NPU, if nothing has yet; waits for it at the stop.
        """
        return ProfilerSession.begun(self.name, folder, lambda made: self._built(preset, made))

    def _built(self, preset: Preset, folder: Path) -> _Recorder:
        surface = self._surface()
        reason = self.why_not() or impossible(preset, surface, _LEVELS[preset.level]) or _other_profiler()
        if reason:
            raise Refused(reason)
        return _Recorder(described(preset, surface)[0], folder)

    def _surface(self) -> Surface | None:
        profiler = getattr(sys.modules.get("torch_npu"), "profiler", None)
        return None if profiler is None else Surface.of(profiler, "AiCMetrics")


BACKEND = TorchNpu()


def described(preset: Preset, surface: Surface | None) -> tuple[Options, tuple[str, ...]]:
    """What a preset becomes in a version with this surface; None: in the newest known."""
    metrics = "AiCoreNone" if preset.aic_metrics == "none" else preset.aic_metrics
    config: Options = {
        "profiler_level": _LEVELS[preset.level],
        "aic_metrics": metrics,
        "mstx": preset.mstx,
        "mstx_domain_exclude": list(preset.domains_exclude),
        "export_type": _EXPORTS[preset.export],
    }
    options = {"activities": [one.upper() for one in preset.activities], **on_host(preset)}
    notes: list[str] = []
    if surface is not None:
        if "mstx" not in surface.config and "msprof_tx" in surface.config:
            config["msprof_tx"] = config.pop("mstx")
        options, lost_outside = fitted(options, surface.profile)
        config, lost_inside = fitted(config, surface.config)
        notes = [*lost_outside, *lost_inside, *_replaced(preset, surface)]
    return {**options, "experimental_config": config, "analyse_flag": False}, tuple(notes)


def _replaced(preset: Preset, surface: Surface) -> list[str]:
    reason = impossible(preset, surface, _LEVELS[preset.level])
    notes = [f"refused: {reason}"] if reason else []
    # `_ExperimentalConfig` of the versions whose default is none, 2.7.1 say, replaces it at the levels that have some.
    is_replaced = surface.config.get("aic_metrics") == surface.no_metrics
    if is_replaced and preset.aic_metrics == "none" and preset.level in ("level1", "level2"):
        notes.append("aic_metrics none becomes PipeUtilization at this level in this version")
    return notes


def _other_profiler() -> str | None:
    """Whoever records on this thread: torch_npu ignores a second start, and lets the second stop end the first.
    Who records elsewhere in the process, or may soon: `profiling.others`.
    """
    return "another profiler, of torch or torch_npu, records on this thread already" if torch_records() else None


class _Recorder:
    on_disk = True

    def __init__(self, options: Options, folder: Path) -> None:
        self._folder, self._before = folder, set(folder.glob("*_ascend_pt"))
        self._has_device = "NPU" in options["activities"]
        torch_npu: Any = sys.modules["torch_npu"]
        self._profiler = _profile(torch_npu.profiler, options, folder)

    def start(self) -> None:
        # torch_npu marks each step of a scheduled profile as a range of its own, in the trace and on the stream.
        self._profiler.record_steps = False
        self._profiler.start()

    def stop(self) -> None:
        # From RECORD_AND_SAVE to NONE first: a bare stop() does the same and prints that data may be incomplete.
        self._profiler.step()
        self._profiler.stop()

    def close(self) -> None:
        # What `stop_trace` of torch_npu leaves undone when waiting for the device raises.
        interface: Any = sys.modules["torch_npu.profiler.profiler_interface"]
        interface._stop_profiler()
        interface._disable_event_record()
        self._profiler.prof_if.finalize_trace()

    def is_recording(self) -> bool | None:
        return torch_records()

    def output(self) -> Path | None:
        return max(set(self._folder.glob("*_ascend_pt")) - self._before, default=None)

    def lacking(self, output: Path) -> str | None:
        if self._has_device and not any(output.glob("PROF_*")):
            return f"{output} holds no PROF_* folder: CANN recorded nothing (its own log says why)"
        return None


def _profile(profiler: Any, options: Options, folder: Path) -> Any:
    config = dict(options["experimental_config"])
    config["profiler_level"] = getattr(profiler.ProfilerLevel, config["profiler_level"])
    config["aic_metrics"] = getattr(profiler.AiCMetrics, config["aic_metrics"])
    given = {name: value for name, value in options.items() if name not in ("experimental_config", "analyse_flag")}
    given["activities"] = [getattr(profiler.ProfilerActivity, name) for name in options["activities"]]
    actions = profiler.ProfilerAction
    return profiler.profile(
        **given,
        schedule=lambda step: actions.NONE if step else actions.RECORD_AND_SAVE,
        experimental_config=profiler._ExperimentalConfig(**config),
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=options["analyse_flag"]),
    )
