"""Ranges for torch_npu's profiler, exactly while a session with NPU activity and mstx records.

Source: torch_npu 2.1.0.post17 and 2.13.0. `profiler/profiler_interface.py`: `start_trace` and `stop_trace` of
`_ProfInterface` call the module's `_start_profiler(config, activities)` and `_stop_profiler()`; every way into the
profiler, the dynamic one too, leads there. Not while it warms up: mstx gives id 0 then. `npu/mstx.py`: the public
calls, and the C functions `torch_npu._C._mstx` under them.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from . import seams
from .session import Begin, Calls, End, MstxSession

INDEX = 0

_mstx_wanted = False
_session = MstxSession(INDEX, "torch_npu")
silence_sink, describe_state = _session.silence, _session.state


def listen_to(interface: ModuleType) -> None:
    """Listen at the lowest seam: also profilers that were constructed before look these names up when they start."""
    seams.listen_at(interface._ExperimentalConfig, "__call__", before=_remember_options)
    seams.listen_at(interface, "_start_profiler", after=_on_start)
    # Any stop ends the recording, also that of an inner session.
    # Before the device is synchronized, so that the ends of ranges on streams are through before the profiler stops …
    seams.listen_at(interface._ProfInterface, "stop_trace", before=_session.stop)
    # … and again below, for a profiler that was constructed before and has kept the method.
    seams.listen_at(interface, "_stop_profiler", before=_session.stop)


def _remember_options(config: Any, *_: Any) -> None:
    """`start_trace` brings its options into their C form right before it starts: the one moment both are at hand."""
    global _mstx_wanted
    _mstx_wanted = bool(getattr(config, "_mstx", False) or getattr(config, "_msprof_tx", False))


def _on_start(_: Any, activities: Any, *__: Any) -> None:
    # A session that is started inside another one is ignored by torch_npu: the outer one goes on.
    if _session.is_on or not _mstx_wanted or not any(str(activity).endswith("NPU") for activity in activities):
        return
    _session.start(_make_calls())


def _make_calls() -> Calls:
    torch_npu = sys.modules["torch_npu"]
    public: Any = torch_npu.npu.mstx
    native: Any = getattr(torch_npu._C, "_mstx", None)
    if "domain" not in inspect.signature(public.range_start).parameters:
        # torch_npu before CANN 7.1: everything is in the default domain, and a mark has no stream.
        return Calls(
            lambda message, domain: public.range_start(message),
            lambda token, domain: public.range_end(token),
            lambda message, stream, domain: public.mark(message),
            lambda message, stream, domain: public.range_start(message, stream),
        )
    begin: Begin = lambda message, domain: public.range_start(message, None, domain)  # noqa: E731
    end: End = public.range_end
    # The C functions themselves where they take the same arguments.
    if hasattr(native, "_range_start_on_host") and hasattr(native, "_range_end"):
        begin, end = native._range_start_on_host, native._range_end
    kind = torch_npu.npu.streams.Stream

    def begin_stream(message: str, stream: Any, domain: str) -> Any:
        """Through torch_npu, so that the range keeps its place among the queued kernels."""
        return public.range_start(message, stream, domain) if isinstance(stream, kind) else begin(message, domain)

    def mark(message: str, stream: Any, domain: str) -> Any:
        public.mark(message, stream if isinstance(stream, kind) else None, domain)

    return Calls(begin, end, mark, begin_stream)
