"""Ranges for torch.profiler, as `record_function` does, exactly while a torch profiler runs.

They show on the thread that started the profiler. Interleaved asyncio tasks show as slices that overlap; a range that
ends on another thread than it began on has no end in torch's trace, which shows it up to the end of the trace.
mstxkit's own record is right in both cases. A domain other than "default" is put in front of the name, as
`domain::name`.

Source: torch 2.13.0 `autograd/profiler.py`: every profiler calls `_run_on_profiler_start` and `_run_on_profiler_stop`
    of that module.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ..host import names
from . import seams
from .session import SinkSession

INDEX = 2

_session = SinkSession(INDEX, "torch profiler runs")
silence_sink, describe_state = _session.silence, _session.state


def listen_to(profiler: ModuleType) -> None:
    """Listen to torch's profilers."""
    seams.listen_at(profiler, "_run_on_profiler_start", after=_on_start)
    seams.listen_at(profiler, "_run_on_profiler_stop", before=silence_sink)


def _on_start() -> None:
    # The C one of torch 2.2 and later costs a fifth of the public one.
    native = getattr(sys.modules["torch"]._C, "_profiler", None)
    fast = getattr(native, "_RecordFunctionFast", None)
    make = fast if fast is not None else sys.modules["torch.autograd.profiler"].record_function

    def begin(message: str, domain: str) -> Any:
        record = make(message if domain == names.DEFAULT_DOMAIN else f"{domain}::{message}")
        record.__enter__()
        return record

    def mark(message: str, stream: Any, domain: str) -> None:
        _end_range(begin(message, domain), domain)

    _session.send(begin, _end_range, mark, None)


def _end_range(record: Any, domain: str) -> None:
    record.__exit__(None, None, None)
