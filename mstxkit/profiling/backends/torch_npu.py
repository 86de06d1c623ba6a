"""Sessions of torch_npu's profiler: raw data only, to be parsed later and elsewhere.

Source: torch_npu 2.7.1 and 2.13.0. `profiler/profiler.py`: every public call prints its errors and returns; the folder
is process-wide and set when `tensorboard_trace_handler` is called, so that the handler is made right before the start.
`csrc/profiler/npu_profiler.cpp`: start and stop must come from one thread, an inner stop ends an outer session.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Callable

from ...store.limits import CANN_LEAST_BYTES
from ...store.options import METRIC_LEVELS
from ..declare import Options, Preset
from . import NOT_IMPORTED
from ._ascend import AscendBackend, AscendOutput, build_profile
from ._surface import explain_launcher, torch_records

NAME, _SUFFIX = "torch_npu", "_ascend_pt"
# acl_prof.h: aclprofSetConfig(ACL_PROF_STORAGE_LIMIT, "<n>MB", length) between aclprofInit and aclprofStart.
_STORAGE_LIMIT, _STORAGE_LEAST_MB, _STORAGE_MOST_MB = 1, CANN_LEAST_BYTES >> 20, (1 << 32) - 1
# Of torch_npu's folder: what a handler sets, and what is made when it begins.
_SET = ("_dir_path", "_worker_name", "_export_only_mode")
_MADE = "_prof_path"


def _borrow_path(folder: Path) -> Callable[[], None]:
    """Look what torch_npu's one folder is, before a session's handler is made: the answer gives it back after all.
    Once is enough, and what the user has set meanwhile stays.

    A user's profiler that waits has set it already, and looks it up when it begins.
    Source: torch_npu 2.7.1 and 2.13.0 `profiler/_profiler_path_creator.py`: one object for each process, set by
    `tensorboard_trace_handler`, read by `create_prof_dir`; `delete_export_only_prof` removes `_prof_path`.
    """
    interface: Any = sys.modules.get("torch_npu.profiler.profiler_interface")
    creator: Any = interface.ProfPathCreator() if hasattr(interface, "ProfPathCreator") else None
    own = folder.resolve()
    before = {name: getattr(creator, name) for name in (*_SET, _MADE) if hasattr(creator, name)}

    def give_back() -> None:
        is_ours_made = Path(getattr(creator, _MADE, None) or "").parent == own
        if getattr(creator, "is_prof_inited", False) and is_ours_made:
            creator.is_prof_inited = False  # what `finalize_trace` leaves undone when it cannot write
        is_ours_set = getattr(creator, "_dir_path", None) == str(own)
        for name, value in before.items():
            if is_ours_set if name in _SET else is_ours_made:
                setattr(creator, name, value)

    return give_back


class _NpuProfiler(AscendOutput):
    def __init__(self, options: Options, folder: Path, limit_bytes: int | None) -> None:
        super().__init__(folder, _SUFFIX, "NPU" in options["activities"])
        profiler: Any = sys.modules["torch_npu"].profiler
        actions = profiler.ProfilerAction
        self._give_path_back = _borrow_path(folder)
        with contextlib.ExitStack() as where_it_fails:
            where_it_fails.callback(self._give_path_back)
            self._profiler = build_profile(
                profiler, NAME, options, folder, schedule=lambda step: actions.NONE if step else actions.RECORD_AND_SAVE
            )
            if limit_bytes is not None:
                self._limit_storage(limit_bytes, (actions.NONE, actions.RECORD_AND_SAVE))
            where_it_fails.pop_all()

    def start(self) -> None:
        # torch_npu marks each step of a scheduled profile as a range of its own, in the trace and on the stream.
        self._profiler.record_steps = False
        self._profiler.start()

    def stop(self) -> None:
        # From RECORD_AND_SAVE to NONE first: a bare stop() does the same and prints that data may be incomplete.
        try:
            self._profiler.step()
            self._profiler.stop()
        finally:
            self._settle_threads()

    def close(self) -> None:
        # What `stop_trace` of torch_npu leaves undone when waiting for the device raises.
        interface: Any = sys.modules["torch_npu.profiler.profiler_interface"]
        try:
            interface._stop_profiler()
            interface._disable_event_record()
            self._profiler.prof_if.finalize_trace()
        finally:
            self._settle_threads()

    def _settle_threads(self) -> None:
        if not torch_records():
            self._give_path_back()

    is_recording = staticmethod(torch_records)

    def _limit_storage(self, limit_bytes: int, start: tuple[Any, Any]) -> None:
        """Have CANN's own limit set where it can be: after torch_npu has initialised its profiler, before it starts it.

        Source: torch_npu 2.7.1 and 2.13.0 `_profiler_action_controller.py`: a list of calls for each change of state.
        """
        controller = getattr(self._profiler, "action_controller", None)
        steps: list[Any] = getattr(controller, "action_map", {}).get(start, [])
        if [getattr(step, "__name__", "") for step in steps] != ["init_trace", "start_trace"]:
            self.notes.append("CANN's own storage limit is not set: this torch_npu starts in another way")
            return
        steps.insert(1, lambda: self.notes.append(_set_storage_limit(limit_bytes)))


def _set_storage_limit(limit_bytes: int) -> str:
    """What to note. A quarter above the limit: at its own CANN throws away the oldest data; the owner ends before."""
    value = f"{min(max(_STORAGE_LEAST_MB, -(-limit_bytes * 5 // (4 << 20))), _STORAGE_MOST_MB)}MB"
    try:
        try:  # CANN's, which torch_npu loads when it initialises the profiler
            library = ctypes.CDLL("libmsprofiler.so", os.RTLD_LAZY | os.RTLD_NOLOAD)
        except OSError:
            library = ctypes.CDLL("libascendcl.so", os.RTLD_LAZY | os.RTLD_NOLOAD)
        code = library.aclprofSetConfig(ctypes.c_int(_STORAGE_LIMIT), value.encode(), ctypes.c_size_t(len(value)))
    except (OSError, AttributeError) as exc:
        return f"CANN's own storage limit is not set: {exc}"
    if code:
        return f"CANN's own storage limit is not set: aclprofSetConfig answered {code} to {value}"
    return f"CANN's own storage limit is {value}: beyond it the oldest data are thrown away"


class TorchNpu(AscendBackend):
    """The backend of a process that trains with torch_npu."""

    name = NAME
    recorder = _NpuProfiler
    # torch_npu ignores a second start, and lets the second stop end the first. Elsewhere: `profiling.profilers`.
    other = "another profiler, of torch or torch_npu, records on this thread already"

    def device(self) -> int | None:
        """The current NPU of this thread. Cost: initialises the NPU, if nothing has yet, as the start does anyway."""
        torch_npu: Any = sys.modules["torch_npu"]
        return int(torch_npu.npu.current_device())

    def why_not(self) -> str | None:
        """Why it cannot record here; None if it can."""
        torch_npu: Any = sys.modules.get("torch_npu")
        if torch_npu is None:
            return NOT_IMPORTED
        if not hasattr(torch_npu, "profiler"):
            return "this torch_npu has no profiler, or is still being imported"
        if not torch_npu.npu.is_available():
            return "torch_npu sees no NPU"
        return explain_launcher()

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """As for MindSpore; what some versions record in place of no metrics is said here."""
        options, notes = super().described(preset)
        surface = self._find_surface()
        # `_ExperimentalConfig` of versions whose default is none, 2.7.1 say, replaces it at the levels that have some.
        is_replaced = surface is not None and surface.config.get("aic_metrics") == surface.no_metrics
        if is_replaced and preset.aic_metrics == "none" and preset.level in METRIC_LEVELS:
            notes = (*notes, "aic_metrics none becomes PipeUtilization at this level in this version")
        return options, notes


BACKEND = TorchNpu()
