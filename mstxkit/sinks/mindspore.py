"""Ranges for MindSpore's profiler, exactly while a session with mstx records on an NPU.

Source: mindspore 2.10.0. `profiler/platform/npu_profiler.py`: `start` and `stop` of `NpuProfiler`, through which
every profiler goes, switch `Mstx.enable`. `profiler/mstx.py`: the public calls, which look up the device at each call
(9 us), and `Mstx.NPU_PROFILER`, the C object under them. On a CPU there is none, and nothing is sent.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from . import seams
from .session import Calls, MstxSession

INDEX = 1
_MODULE = "mindspore.profiler.platform.npu_profiler"

_session = MstxSession(INDEX, "mindspore")
silence_sink, describe_state = _session.silence, _session.state


def listen_to(platform: ModuleType) -> None:
    """Listen to MindSpore's profiler."""
    seams.listen_at(platform.NpuProfiler, "start", after=_on_start)
    seams.listen_at(platform.NpuProfiler, "stop", before=_session.stop)


def _on_start(*_: Any) -> None:
    mstx = sys.modules[_MODULE].Mstx
    if not _session.is_on and mstx.enable and getattr(mstx, "NPU_PROFILER", mstx) is not None:
        _session.start(_make_calls(mstx))


def _make_calls(mstx: Any) -> Calls:
    native: Any = getattr(mstx, "NPU_PROFILER", None)
    if all(hasattr(native, name) for name in ("mstx_mark", "mstx_range_start", "mstx_range_end")):
        return Calls(
            lambda message, domain: native.mstx_range_start(message, None, domain),
            native.mstx_range_end,
            lambda message, stream, domain: native.mstx_mark(message, _device_stream(stream), domain),
            lambda message, stream, domain: native.mstx_range_start(message, _device_stream(stream), domain),
        )
    if "domain" in inspect.signature(mstx.range_start).parameters:
        return Calls(
            lambda message, domain: mstx.range_start(message, None, domain), mstx.range_end, mstx.mark, mstx.range_start
        )
    # MindSpore before 2.6: everything is in the default domain.
    return Calls(
        lambda message, domain: mstx.range_start(message, None),
        lambda token, domain: mstx.range_end(token),
        lambda message, stream, domain: mstx.mark(message, stream),
        lambda message, stream, domain: mstx.range_start(message, stream),
    )


def _device_stream(stream: Any) -> Any:
    """The handle of a `mindspore.runtime.Stream`; None for anything else, which marks the host only."""
    return stream.device_stream() if hasattr(stream, "device_stream") else None
