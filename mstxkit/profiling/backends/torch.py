"""Sessions of torch.profiler: what there is where no NPU is, so that the whole way works on any machine.

Everything stays in memory until the stop, which writes one Chrome trace: no limit of bytes can hold meanwhile. mstx
ranges show as `record_function` does (`sinks/torch.py`).

Source: torch 2.13.0 `profiler/profiler.py`.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable

from ...host.folders import size_bytes
from ...store.options import PRESET, PROFILE, list_settable
from .. import theirs
from ..declare import Options, Preset
from . import NOT_IMPORTED
from ._session import Backend
from ._surface import torch_records, translate_preset, with_members

NAME, _SUFFIX = "torch", ".pt.trace.json"
# Source: torch 2.13.0, Kineto's `output_json.cpp`: the category of each event; "Trace" is the span of the recording.
_EVENT, _EVENT_BYTES = re.compile(rb'"cat": "(?!Trace")'), 16
_PIECE_BYTES, _PIECES_AT_MOST = 1 << 20, 256
# Other names may stand in a trace in another form.
_PLAIN_NAME = re.compile(r"[\w.:/ -]{1,100}", re.ASCII)


def _take_this_thread_back() -> None:
    """Free a thread of a profiler whose trace somebody else has ended.

    torch crashes where it ends a profiler and there is no trace. So there is one meanwhile, of a thread that is over
    before it could end it.
    """
    torch: Any = sys.modules["torch"]
    is_on, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with theirs.mark_ours():
                trace = torch.autograd.profiler.profile()
                trace._prepare_trace()
                trace._start_trace()
        finally:
            is_on.set()
        may_end.wait()

    thread = threading.Thread(target=hold, name="mstxkit-trace", daemon=True)
    thread.start()
    is_on.wait()
    if torch.autograd.profiler._is_profiler_enabled:
        torch._C._autograd._disable_profiler()
        torch.autograd.profiler._run_on_profiler_stop()
    may_end.set()
    thread.join()


class _TorchProfiler:
    on_disk = False

    def __init__(self, options: Options, folder: Path, _: int | None) -> None:
        self.notes: list[str] = []
        profiler: Any = sys.modules["torch"].profiler
        self._profiler = profiler.profile(**with_members(options, profiler, NAME, PROFILE))
        self._trace = folder / f"{socket.gethostname()}_{os.getpid()}_{time.time_ns()}{_SUFFIX}"
        self._thread, self._is_taken_over = threading.get_ident(), False
        self._look_away: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._look_away = theirs.before_they_start(self._theirs_begins)
        self._profiler.start()

    def _theirs_begins(self, who: str) -> None:
        """On another thread it ends ours in torch's core, which crashes at the second stop of two (torch 2.13.0)."""
        self._is_taken_over |= threading.get_ident() != self._thread

    def stop(self) -> None:
        self._look_away()
        if self._is_taken_over:
            self._profiler.profiler = None
            if not sys.modules["torch"].autograd.profiler._is_profiler_enabled:  # theirs is over
                _take_this_thread_back()
            return
        if torch_records() is False:
            # Somebody else ended it and has its events: torch 2.13.0 crashes the process when it is to write them here.
            sys.modules["torch"].autograd.profiler._run_on_profiler_stop()
            return
        try:
            self._profiler.stop()
            unfinished = self._trace.with_name(f".{self._trace.name}")
            self._profiler.export_chrome_trace(str(unfinished))
            unfinished.replace(self._trace)
        finally:
            # Its events refer weakly to tensors: until garbage is collected nobody could swap these, as FSDP2 does.
            self._profiler.profiler = None

    def close(self) -> None:
        if not self._is_taken_over:
            sys.modules["torch"]._C._autograd._disable_profiler()

    is_recording = staticmethod(torch_records)

    def output(self) -> Path | None:
        return self._trace if self._trace.exists() else None

    def lacking(self, output: Path, holds: str = "") -> str | None:
        if not size_bytes(output):
            return f"{output} is empty"
        if not _has_pattern(output, _EVENT, _EVENT_BYTES):
            return f"nothing was recorded: {output} holds no event"
        # As a trace has it, in whatever domain (`sinks/torch.py`).
        named = re.compile(rb'[":]' + re.escape(holds.encode()) + rb'"')
        if not _PLAIN_NAME.fullmatch(holds) or _has_pattern(output, named, 2 * len(holds) + _EVENT_BYTES):
            return None
        return f"its range was not recorded: {output} holds events, and none of them is {holds}"


class Torch(Backend):
    """The backend of a process that trains with torch and has no NPU: it has no device, nor a limit of bytes.

    The trace is `<folder>/<host>_<pid>_<time>.pt.trace.json`. Cost: the stop writes it, some seconds per hundred
    megabytes.
    """

    name = NAME
    on_disk = False
    recorder = _TorchProfiler
    imports_late = ("torch._inductor.config",)  # 800 modules. Source: torch 2.13.0 `profiler.py`, `prepare_trace`

    def why_not(self) -> str | None:
        """Why it cannot record here; None if it can."""
        torch: Any = sys.modules.get("torch")
        if torch is None:
            return NOT_IMPORTED
        if not hasattr(torch, "profiler"):
            return "this torch has no profiler, or is still being imported"
        torch_npu: Any = sys.modules.get("torch_npu")
        if torch_npu is not None and hasattr(torch_npu, "npu") and torch_npu.npu.is_available():
            return "this process has an NPU, which torch.profiler does not see"
        return None

    def described(self, preset: Preset) -> tuple[Options, tuple[str, ...]]:
        """Options by torch's names, and what it has no counterpart for."""
        options, _, notes = translate_preset(preset, self.name)
        # The host always: alone it is all that a laptop has, and ranges show there. A GPU where the device is wanted.
        options["activities"] = ["CPU"]
        if "npu" in preset.activities:
            cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
            has_gpu = cuda is not None and bool(cuda.is_available())
            instead = "the GPU" if has_gpu else "the host alone"
            notes["activities"] = f"activities: there is no NPU, {instead} is recorded"
            options["activities"] += ["CUDA"] * has_gpu
        return options, tuple(notes[option.name] for option in list_settable(PRESET) if option.name in notes)

    def why_not_now(self, preset: Preset) -> str | None:
        """A second torch profiler would end the first, also from another thread."""
        is_on = torch_records() or getattr(sys.modules["torch"].autograd.profiler, "_is_profiler_enabled", False)
        return "another torch profiler records in this process already" if is_on else None


BACKEND = Torch()


def _has_pattern(trace: Path, pattern: re.Pattern[bytes], at_most_bytes: int) -> bool:
    """Does it hold this, which has so many bytes at most? All of it is read only where it does not; of one that is
    too large to be read while training waits, the beginning.
    """
    with open(trace, "rb") as stream:
        end = b""
        for _ in range(_PIECES_AT_MOST):
            part = stream.read(_PIECE_BYTES)
            if not part or pattern.search(end + part):
                return bool(part)
            end = part[-at_most_bytes:]
    return True
