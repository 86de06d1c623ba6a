"""The profilers that sessions can be made with, found by listing this folder: a file here with a `BACKEND`."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from ... import faults
from ...host import listing

if TYPE_CHECKING:
    from ._session import Backend

# Where there are several, the first that can: torch_npu sees the device, torch.profiler only the host.
_FIRST = ("torch_npu", "mindspore")
NOT_IMPORTED = "not imported in this process"


def list_backends() -> list[str]:
    """Names of all backends, in the order in which they are tried."""
    return [*_FIRST, *(name for name in listing.modules_in(__path__) if name not in _FIRST)]


def load_backend(name: str) -> Backend:
    """The backend of this name, one of `names()`."""
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend


def choose_backend() -> tuple[Backend | None, dict[str, str]]:
    """The first backend that can record in this process now, and why those before it cannot; None if none can. That of
    a framework that is not imported is not loaded: it has the framework's name.
    """
    refused: dict[str, str] = {}
    for name in list_backends():
        backend = load_backend(name) if name in sys.modules else None
        reason = NOT_IMPORTED if backend is None else backend.why_not()
        if reason is None:
            return backend, refused
        refused[name] = reason
    return None, refused


def find_profiler() -> tuple[str | None, dict[str, str]]:
    """The profiler that a session would be made with here and now, and why not with those before it. Any thread."""
    try:
        backend, refused = choose_backend()
    except Exception as exc:  # a framework that is half imported, or has lost its device
        faults.note_fault("session.backend", exc)
        return None, {"any": f"{type(exc).__name__}: {exc}"}
    return (None if backend is None else backend.name), refused
