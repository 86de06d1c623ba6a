"""Which recorder this process has: only `capturing` sets it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from .process import Recorder

recorder: Recorder | None = None
# Called in this process each time a recorder has started in it, a forked child's among them.
when_started: list[Callable[[], None]] = []
# Called in a thread of ours once a second while a recorder runs here; and right before it stops, on the program's.
each_second: list[Callable[[], None]] = []
when_ending: list[Callable[[], None]] = []
# A forked child that waits for its first range begins to record; for callers that can wait.
begin_now: Callable[[], object] = lambda: None  # noqa: E731


def of_this_process() -> Recorder | None:
    """The recorder, but not that of whoever forked this process. Takes no lock: after a fork in C nothing changes."""
    return None if recorder is None or recorder.pid != os.getpid() else recorder


def recorded_process() -> tuple[Path, str] | None:
    """The run folder that this process records into, and the name of its files there; None while it does not."""
    if of_this_process() is None:
        begin_now()
    own = of_this_process()
    return None if own is None else (own.run, own.live.name)


def live_view() -> memoryview | None:
    """The live file that this process writes, or None."""
    return None if recorder is None else recorder.live.view
