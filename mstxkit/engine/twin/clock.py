"""The twin's clock, its anchors and its heartbeat.

The clock is CLOCK_MONOTONIC or the fake one: Python cannot read a cycle counter. The heartbeat is a thread that needs
the GIL: where another thread holds it for seconds, beats come late, unlike those of the C engine.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Callable

from ...store import livefile

if TYPE_CHECKING:
    from ...host.threads import Latch

MONOTONIC, FAKE = 1, 4
_EARLY_ANCHORS_NS, _ANCHOR_EVERY_NS, _ENDS_WITHIN_S = (10_000_000, 90_000_000, 900_000_000), 2_000_000_000, 0.5

# The kernel's, taken once: who freezes time in a test replaces functions of `time`, also where modules hold them.
monotonic_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
_realtime_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_REALTIME)
kind, now, _fake_ticks = MONOTONIC, monotonic_ns, 0  # `now`: ticks of the clock in use
beat: tuple[threading.Thread, Latch] | None = None


def choose(wanted: int) -> None:
    """Use this clock from now on: 1 CLOCK_MONOTONIC, 4 the fake one."""
    global kind, now
    if wanted not in (MONOTONIC, FAKE):
        raise ValueError(f"clock {wanted!r} is not one of the Python engine: 1 is CLOCK_MONOTONIC, 4 the fake clock")
    kind, now = wanted, monotonic_ns if wanted == MONOTONIC else lambda: _fake_ticks


def set_fake_ticks(n: int) -> None:
    """What the fake clock says from now on."""
    global _fake_ticks
    if not 0 <= n < 1 << 64:
        raise OverflowError("ticks are from 0 to 2**64 - 1")
    _fake_ticks = n


def write_anchor(view: memoryview) -> None:
    """The present instant on all clocks: the tightest of a few brackets, as one may be interrupted."""
    brackets = []
    for _ in range(5):
        before, ticks, monotonic, realtime = monotonic_ns(), now(), monotonic_ns(), _realtime_ns()
        half = (monotonic_ns() - before) // 2
        brackets.append(livefile.Anchor(monotonic if kind == MONOTONIC else ticks, monotonic, realtime, half))
    livefile.write_anchor(view, min(brackets, key=lambda anchor: anchor.error_ns))


def start_heartbeat(view: memoryview, seconds: float) -> None:
    """Keep the header's heartbeat and anchors, from a thread of its own."""
    from ...host import threads  # not for the import of mstxkit

    global beat
    if beat is None:
        stop = threads.Latch()
        arguments = (view, seconds, stop)
        thread = threading.Thread(target=_keep_beating, args=arguments, name="mstxkit-heartbeat", daemon=True)
        threads.start_without_signals(thread)
        beat = thread, stop


def stop_heartbeat() -> bool:
    """End that thread, and wait for it, unless a finalizer of the program keeps it. Was there one?"""
    global beat
    ended, beat = beat, None
    if ended is not None and ended[0] is not threading.current_thread():
        ended[1].set()
        ended[0].join(_ENDS_WITHIN_S)
    return ended is not None


def _keep_beating(view: memoryview, seconds: float, stop: Latch) -> None:
    early = list(_EARLY_ANCHORS_NS)
    due = monotonic_ns() + early.pop(0)
    with view[livefile.HEARTBEAT_AT : livefile.HEARTBEAT_AT + 8].cast("Q") as words:
        while True:
            words[0] = at = monotonic_ns()
            if at >= due:
                write_anchor(view)
                due = at + (early.pop(0) if early else _ANCHOR_EVERY_NS)
            if stop.wait(min(seconds, max(due - at, 0) * 1e-9)):
                return
