"""What the profilers of torch_npu and MindSpore have in common: their options, how one is built, what it leaves behind.

Both are fronts of CANN's profiler with the same names for the same things: `profile`, `_ExperimentalConfig`,
`tensorboard_trace_handler`, and a folder `<host>_<pid>_<time>_ascend_..` with CANN's `PROF_*` folder in it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Mapping

from ...host.folders import size_bytes
from ...store.options import DEEP, PROFILE, list_terms
from ..declare import Options, Preset
from ._session import Backend, Refused
from ._surface import Surface, explain_impossible, fit_options, translate_preset, with_members

# CANN writes `<name>.slice_0`, and `<name>.slice_0.done` once that is complete.
_DONE = ".done"


class AscendBackend(Backend):
    """What both are as backends: the data are in `<folder>/<host>_<pid>_<time>_ascend_pt` or `_ascend_ms`.

    Cost: torch_npu initialises the NPU, if nothing has yet; the device is waited for at the stop.
    """

    on_disk = True
    always: Mapping[str, Any] = {}  # further options of `profile`
    other: str  # that one of its profilers records already, in a sentence

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """Options by the profiler's names, and what this version drops; as for the newest known if not imported."""
        options, config, lacking = translate_preset(preset, self.name)
        options.update(self.always)
        notes, surface = list(lacking.values()), self._find_surface()
        if surface is not None:
            for term in list_terms(self.name).values():
                if term.name in config and term.name not in surface.config and term.before in surface.config:
                    config[term.before] = config.pop(term.name)
            options, lost_outside = fit_options(options, surface.profile)
            config, lost_inside = fit_options(config, surface.config)
            reason = explain_impossible(preset, self.name, surface)
            notes += [*lost_outside, *lost_inside, *([f"refused: {reason}"] if reason else [])]
        return {**options, "experimental_config": config, "analyse_flag": False}, tuple(notes)

    def why_not_now(self, preset: Preset) -> str | None:
        """What this version lacks, or who is in the way."""
        reason = explain_impossible(preset, self.name, self._find_surface())
        return reason or (self.other if self.recorder.is_recording() else None)

    def _find_surface(self) -> Surface | None:
        profiler = getattr(sys.modules.get(self.name), "profiler", None)
        return Surface.of(profiler, self.name) if hasattr(profiler, "profile") else None


def build_profile(module: Any, profiler: str, options: Options, folder: Path, **more: Any) -> Any:
    """A `profile` of `module`, the profiler's, with these options; it does not record yet.

    The folder is process-wide and set when the handler is made: start it before anything else makes one.
    Raises Refused: the profiler would record elsewhere.
    """
    plain = {name: value for name, value in options.items() if name not in ("experimental_config", "analyse_flag")}
    plain = with_members(plain, module, profiler, PROFILE)
    depth = module._ExperimentalConfig(**with_members(options["experimental_config"], module, profiler, DEEP))
    handler = module.tensorboard_trace_handler(str(folder), analyse_flag=options["analyse_flag"])
    if handler is None:  # MindSpore logs an error, and would record where the profiler before it did, or into ./data
        raise Refused(f"the profiler does not take the folder {folder}: letters, digits, spaces and . / _ - ~ alone")
    return module.profile(**plain, **more, experimental_config=depth, on_trace_ready=handler)


class AscendOutput:
    """What one recording leaves: a folder whose name ends in `suffix`, with CANN's data in it if it `has_device`."""

    on_disk = True

    def __init__(self, folder: Path, suffix: str, has_device: bool) -> None:
        self.notes: list[str] = []
        self._folder, self._wanted, self._has_device = folder, f"*{suffix}", has_device
        self._before = set(folder.glob(self._wanted))

    def output(self) -> Path | None:
        """The newest folder that was not there before."""
        return max(set(self._folder.glob(self._wanted)) - self._before, default=None)

    def lacking(self, output: Path, holds: str = "") -> str | None:
        """What an output must hold and does not: the profiler itself prints errors at most, and says all is well.

        Ranges are not looked for: raw data name them in a form of CANN's that changes.
        """
        if self._has_device and not any(output.glob("PROF_*")):
            return f"{output} holds no PROF_* folder: CANN recorded nothing (its own log says why)"
        info = next(output.glob("profiler_info*.json"), None)
        if self._has_device and (info is None or not info.stat().st_size):
            return f"{output} holds no profiler_info.json, without which it cannot be parsed: is the disk full?"
        if _holds_data(output, "PROF_*/*/data/*"):
            return None
        if _holds_data(output, "FRAMEWORK/*"):
            if self._has_device:
                self.notes.append("CANN wrote no data: there are those of the host alone")
            return None
        return f"nothing was recorded: {output} holds no data, though the profiler says nothing of it"


def _holds_data(output: Path, files: str) -> bool:
    """Is there one that is not empty, and does not only say that another one is done?"""
    return any(file.suffix != _DONE and size_bytes(file) for file in output.glob(files))
