"""What became of every target in this process, written into the run: `patches/<process>.json`, for who reads the run.
What its trainer is configured with stands there, too.

So a target that a worker could not reach is seen from outside, also when Ray has ended the worker by a kill.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Callable

from .. import faults
from ..patching import active, registry, trainer_settings
from ..patching.presence import Presence
from ..patching.report import TargetState
from ..recorder import current, forking
from ..store import patch_record

# What a module's import, or a trainer that begins, waits for a disk.
_WAITS_AT_MOST_S = 0.05
_presence = Presence()


class _RecordWriter:
    """Writes in a thread of its own, the newest only where others wait; a disk that answers nothing holds up that."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._newest: deque[Callable[[], None]] = deque(maxlen=1)
        self._writing = threading.Lock()

    def write(self, record: Callable[[], None]) -> None:
        """Have it written, and wait for that a moment."""
        self._newest.append(record)
        if not self._writing.acquire(blocking=False):
            return  # whoever is at it takes this along
        try:
            thread = threading.Thread(target=self._write, name="mstxkit-patches", daemon=True)
            thread.start()
        except RuntimeError:  # at the end of the interpreter there are no new ones
            self._write()
        else:
            thread.join(_WAITS_AT_MOST_S)

    def _write(self) -> None:
        is_mine = True
        while is_mine:
            try:
                while self._newest:
                    self._newest.pop()()
            except Exception as exc:
                faults.note_fault("the record of patches", exc)
            finally:
                self._writing.release()
            is_mine = bool(self._newest) and self._writing.acquire(blocking=False)
        forking.leave_thread()


_writer = _RecordWriter()


def look_at_patches() -> None:
    """In a thread of ours, now and then: is what was patched in its place? In ever longer intervals up to a minute."""
    global _due_s, _rest_s
    now_s = time.monotonic()
    if now_s < _due_s or not active.lock.acquire(blocking=False):
        return
    _due_s, _rest_s = now_s + _rest_s, min(2 * _rest_s, 60.0)
    try:
        # The second look makes sure that what somebody has put there does not call ours.
        registry.look_at_targets(mends=True)
    finally:
        active.lock.release()
    write_states()


_due_s, _rest_s = 0.0, 1.0  # of the next look, and until the one after it


def keep_record() -> None:
    """Write the record now, whenever a target's state changes, when a capture starts, and after each look, of which
    the last is when it ends.
    """
    active.on_change = trainer_settings.on_learnt = write_states
    for hooks, hook in _list_hooks():
        hooks += [hook] if hook not in hooks else []
    write_states()


def leave_off() -> None:
    """Write no more."""
    active.on_change = trainer_settings.on_learnt = None
    for hooks, hook in _list_hooks():
        hooks[:] = [other for other in hooks if other is not hook]


def _list_hooks() -> list[tuple[list[Callable[[], None]], Callable[[], None]]]:
    return [
        (current.when_started, write_states),
        (current.each_second, look_at_patches),
        (current.when_ending, _look_at_the_end),
    ]


def write_states(before: Callable[[], object] | None = None) -> None:
    """Write the states of this process as they are. Never raises; nothing while nothing is captured.
    `before`: what is done first, in the thread that writes.

    Cost: about a millisecond for a hundred targets, once for each module of a framework that is imported; 50 ms at most
    where the disk does not answer.
    """
    global _writer
    where = current.recorded_process()
    if where is None:
        return
    if _writer.pid != os.getpid():
        _writer = _RecordWriter()  # that of whoever forked this process may be in the middle of a write
    run, process = where
    try:
        states = registry.list_states(_presence) if before is None else None
        _writer.write(partial(_write_record, run, process, states, before))
    except Exception as exc:
        faults.note_fault("the record of patches", exc)


_look_at_the_end = partial(write_states, registry.look_at_targets)


def _write_record(
    run: Path, process: str, states: list[TargetState] | None, before: Callable[[], object] | None
) -> None:
    if before is not None:
        before()
    kept = registry.list_states(_presence) if states is None else states
    patch_record.write_record(run, process, kept, dict(trainer_settings.current))
