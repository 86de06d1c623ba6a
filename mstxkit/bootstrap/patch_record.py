"""What became of every target in this process, written into the run: `patches/<process>.json`, for who reads the run.
What its trainer is configured with stands there, too.

So a target that a worker could not reach is seen from outside, also when Ray has ended the worker by a kill.
"""

from __future__ import annotations

from .. import faults
from ..patching import active, registry, trainer_settings
from ..patching.presence import Presence
from ..recorder import here
from ..store import patch_record

_presence = Presence()


def watch() -> None:
    """Write the record now, whenever a target's state changes, and when a capture starts."""
    active.on_change = trainer_settings.on_learnt = write
    if write not in here.when_started:
        here.when_started.append(write)
    write()


def leave_off() -> None:
    """Write no more."""
    active.on_change = trainer_settings.on_learnt = None
    if write in here.when_started:
        here.when_started.remove(write)


def write() -> None:
    """Write the states of this process as they are. Never raises; nothing while nothing is captured.

    Cost: about a millisecond for a hundred targets, once for each module of a framework that is imported.
    """
    where = here.recorded_process()
    if where is None:
        return
    run, process = where
    try:
        patch_record.write(run, process, registry.states(_presence), trainer_settings.current)
    except Exception as exc:
        faults.note("the record of patches", exc)
