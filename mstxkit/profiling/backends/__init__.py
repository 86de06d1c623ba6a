"""The profilers that sessions can be made with, found by listing this folder: a file here with a `BACKEND`."""

from __future__ import annotations

import importlib

from ...host import listing
from ..declare import Backend

# Where there are several, the first that can: torch_npu sees the device, torch.profiler only the host.
_FIRST = ("torch_npu", "mindspore")


def names() -> list[str]:
    """Names of all backends, in the order in which they are tried."""
    there = set(listing.modules_in(__path__))
    return [*(name for name in _FIRST if name in there), *sorted(there.difference(_FIRST))]


def load(name: str) -> Backend:
    """The backend of this name, one of `names()`."""
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend


def chosen() -> tuple[Backend | None, dict[str, str]]:
    """The first backend that can record in this process now, and why those before it cannot; None if none can."""
    refused: dict[str, str] = {}
    for backend in map(load, names()):
        reason = backend.why_not()
        if reason is None:
            return backend, refused
        refused[backend.name] = reason
    return None, refused
