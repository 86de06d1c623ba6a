"""mstxkit: ranges for reinforcement-learning training, in the device timeline and in a recorder that survives a kill.

The names here are the public ones. Those for marking load nothing but the engine, the others what they need when used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import faults
from .marking.ranges import at_step, current_stage, current_step, is_off, mark, mstx_range, mstx_timer, stage, step

if TYPE_CHECKING:
    from .bootstrap.activation import autopatch, patch_report, unpatch
    from .bootstrap.capture import capture
    from .config.configuring import configure
    from .escalation.escalate import escalate
    from .host.identity import identify
    from .patching.declare import Patch, Seam, Target
    from .process_status import metrics, stage_times, status
    from .reading.run import open_run

__version__ = "0.1.0"

__all__ = [
    "Patch", "Seam", "Target", "at_step", "autopatch", "capture", "configure", "current_stage", "current_step",
    "escalate", "identify", "mark", "metrics", "mstx_range", "mstx_timer", "open_run", "patch_report", "stage",
    "stage_times", "status", "step", "unpatch",
]  # fmt: skip

_LOADED_WHEN_USED = {
    **dict.fromkeys(("Patch", "Seam", "Target"), "patching.declare"),
    **dict.fromkeys(("autopatch", "patch_report", "unpatch"), "bootstrap.activation"),
    **dict.fromkeys(("metrics", "stage_times", "status"), "process_status"),
    "capture": "bootstrap.capture",
    "configure": "config.configuring",
    "escalate": "escalation.escalate",
    "identify": "host.identity",
    "open_run": "reading.run",
}


if not TYPE_CHECKING:  # to a type checker a name that is not above is an error, not Any

    def __getattr__(name: str) -> Any:
        if name not in _LOADED_WHEN_USED:
            raise AttributeError(f"module 'mstxkit' has no attribute {name!r}")
        try:
            from importlib import import_module

            value = getattr(import_module(f"mstxkit.{_LOADED_WHEN_USED[name]}"), name)
        except (OSError, MemoryError, SystemError) as exc:  # the last is what CPython's compiler says of no memory
            if name in ("configure", "open_run"):  # who reads a run, or arranges one, is to know
                raise
            return faults.NotLoaded(f"mstxkit.{name}", exc)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


if not is_off:
    from . import sinks

    sinks.install_all()

if os.environ.get("MSTXKIT_RUN"):
    from .bootstrap import capture as _capture

    _capture.start_from_environment()

if os.environ.get("MSTXKIT_AUTOPATCH") and not is_off:
    from .bootstrap import activation

    activation.autopatch_from_environment()
