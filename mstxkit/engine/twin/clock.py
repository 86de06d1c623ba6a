"""The twin's clock, its anchors and its heartbeat.

The clock is CLOCK_MONOTONIC or the fake one: Python cannot read a cycle counter. The heartbeat is a thread that needs
the GIL: where another thread holds it for seconds, beats come late, unlike those of the C engine.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Callable

from ...store import livefile

MONOTONIC, FAKE = 1, 4
_EARLY_ANCHORS_NS, _ANCHOR_EVERY_NS = (10_000_000, 90_000_000, 900_000_000), 2_000_000_000
_BRACKETS = 5

# The kernel's, taken once: who freezes time in a test replaces functions of `time`, also where modules hold them.
monotonic_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
_realtime_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_REALTIME)

kind = MONOTONIC
now = monotonic_ns
_fake_ticks = 0
_beat: tuple[threading.Thread, threading.Event] | None = None


def choose(wanted: int) -> None:
    """Take the clock of this kind."""
    global kind, now
    if wanted not in (MONOTONIC, FAKE):
        raise ValueError(f"clock {wanted!r} is not one of the Python engine: 1 is CLOCK_MONOTONIC, 4 the fake clock")
    kind, now = wanted, (lambda: _fake_ticks) if wanted == FAKE else monotonic_ns


def set_fake_ticks(n: int) -> None:
    """What the fake clock says from now on."""
    global _fake_ticks
    if not 0 <= n < 1 << 64:
        raise OverflowError("ticks are from 0 to 2**64 - 1")
    _fake_ticks = n


def take_anchor() -> livefile.Anchor:
    """The present instant on all clocks: the tightest of a few brackets, as one may be interrupted."""
    brackets = []
    for _ in range(_BRACKETS):
        before, ticks = monotonic_ns(), now()
        monotonic, realtime = monotonic_ns(), _realtime_ns()
        half = (monotonic_ns() - before) // 2
        brackets.append(livefile.Anchor(monotonic if kind == MONOTONIC else ticks, monotonic, realtime, half))
    return min(brackets, key=lambda anchor: anchor.error_ns)


def start_heartbeat(view: memoryview, seconds: float) -> None:
    """Keep the header's heartbeat and anchors, from a thread of its own."""
    global _beat
    if _beat is None:
        stop, words = threading.Event(), view[livefile.HEARTBEAT_AT : livefile.HEARTBEAT_AT + 8].cast("Q")
        about = (view, words, seconds, stop)
        thread = threading.Thread(target=_keep_beating, args=about, name="mstxkit-heartbeat", daemon=True)
        thread.start()
        _beat = thread, stop


def stop_heartbeat() -> bool:
    """End that thread and wait for it. Was there one?"""
    global _beat
    beat, _beat = _beat, None
    if beat is not None and beat[0] is not threading.current_thread():
        beat[1].set()
        beat[0].join()
    return beat is not None


def after_fork() -> None:
    """In a forked child there is no such thread any more."""
    global _beat
    _beat = None


def _keep_beating(view: memoryview, words: memoryview, seconds: float, stop: threading.Event) -> None:
    from ...host import threads  # not for the import of mstxkit

    threads.leave_signals()
    early = list(_EARLY_ANCHORS_NS)
    due = monotonic_ns() + early.pop(0)
    while True:
        words[0] = at = monotonic_ns()
        if at >= due:
            livefile.write_anchor(view, take_anchor())
            due = at + (early.pop(0) if early else _ANCHOR_EVERY_NS)
        if stop.wait(min(seconds, max(due - at, 0) * 1e-9)):
            break
    words.release()
