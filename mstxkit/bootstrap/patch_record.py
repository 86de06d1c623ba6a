"""What became of every target in this process, written into the run: `patches/<process>.json`, for who reads the run.

So a target that a worker could not reach is seen from outside, also when Ray has ended the worker by a kill.
"""

from __future__ import annotations

import json
from typing import Any

from .. import faults, places, wiring
from ..patching import active, registry


def watch() -> None:
    """Write the record now, whenever a target's state changes, and when a capture starts."""
    active.on_change = write
    if write not in wiring.when_started:
        wiring.when_started.append(write)
    write()


def leave_off() -> None:
    """Write no more."""
    active.on_change = None
    if write in wiring.when_started:
        wiring.when_started.remove(write)


def write() -> None:
    """Write the states of this process as they are. Never raises; nothing while nothing is captured.

    Cost: about a millisecond for a hundred targets, once for each module of a framework that is imported.
    """
    where = wiring.recorded_process()
    if where is None:
        return
    run, process = where
    try:
        folder = run / places.PATCHES
        places.make_folder(folder)
        places.replace_file(folder / f"{process}.json", json.dumps({"format": 1, "targets": _rows()}).encode())
    except Exception as exc:
        faults.note("the record of patches", exc)


def _rows() -> list[dict[str, Any]]:
    kept = ("framework", "path", "state", "reason", "detail", "tier")
    return [{name: getattr(state, name) for name in kept} for state in registry.states()]
