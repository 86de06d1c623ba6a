"""Tables of a run that are computed from its rows, a module each, which is loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (  # noqa: F401, I001
        bubbles, critical_path, device, escalations, findings, lateness, processes, profiles, resharding, split,
        stages, steps, stragglers, tails, throughput, waits, what_if,
    )  # fmt: skip
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")
