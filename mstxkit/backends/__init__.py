"""The profilers that sessions can be made with, found by listing this folder: a file here with a `BACKEND`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Iterator

from ..profiling.declare import Backend

# Where there are several, the first that can: torch_npu sees the device, torch.profiler only the host.
_FIRST = ("torch_npu", "mindspore")


def known() -> list[str]:
    """Names of all backends, in the order in which they are tried."""
    names = {module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")}
    return [*(name for name in _FIRST if name in names), *sorted(names.difference(_FIRST))]


def load(name: str) -> Backend:
    """The backend of this name, one of `known()`."""
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend


def chosen() -> tuple[Backend | None, dict[str, str]]:
    """The first backend that can record in this process now, and why those before it cannot; None if none can."""
    refused: dict[str, str] = {}
    for backend in _loaded():
        reason = backend.why_not()
        if reason is None:
            return backend, refused
        refused[backend.name] = reason
    return None, refused


def _loaded() -> Iterator[Backend]:
    return map(load, known())
