"""Handing over: what the engine has summed up of stages goes into a ring in the host's shared memory, for the keeper.

Done by the sealer's thread, about once a second, and soon after a step is over. The ring is made with the first stage,
and stays when its process ends: the host's next keeper reads it and removes it (docs/internals/cluster.md). What nobody
reads goes with the run's folder there.
"""

from __future__ import annotations

import time
from typing import Any

from .. import faults
from ..engine.choose import engine
from ..host import proc_files
from ..store import handed_over, layout, livefile
from .live import LiveFile

_COUNTED_EVERY_NS = 10**9
_CPU_FILE, _CPU_FILE_BYTES = "/proc/self/schedstat", 128
_WAITING_AT_MOST = handed_over.ROWS * handed_over.SUMMARY_BYTES


class HandingOver:
    """What this process hands over.
    `live`: its live file; the ring is beside it.
    `has_steps`: was any of it in a step, of the process or of a range alone?

    Threads/fork: one thread at a time. A forked child makes its own.
    """

    def __init__(self, live: LiveFile) -> None:
        self._live, self.has_steps = live, False
        self._ring = handed_over.SummaryRing(live.path.with_suffix(layout.HANDED_OVER_SUFFIX))
        self._waiting = b""
        # `handed_over.CPU`, as it was within the last second; [] where it is not known.
        self._cpu_ns, self._cpu = 0, list[int]()
        self._who_now: dict[str, Any] = {}
        self._who_mark: tuple[int, ...] = ()

    def hand_over(self, everything: bool = False, is_end: bool = False) -> bool:
        """Hand over what is over. Was there any? Never raises: what could not be written waits, up to a bound.
        `everything`: also of the step in force. `is_end`: there will be no more.
        """
        with faults.noted("handing_over"):
            rows = engine.take_summaries(everything)
            self.has_steps = self.has_steps or handed_over.has_steps(rows)
            self._waiting = (self._waiting + rows)[-_WAITING_AT_MOST:]
            if self._waiting or (is_end and self._ring.is_made):
                self._put(is_end)
            return bool(rows)
        return False

    def _put(self, is_end: bool) -> None:
        mark = livefile.identity_mark(self._live.view)
        if mark != self._who_mark:
            self._who_now, self._who_mark = livefile.read_identity(self._live.view), mark
        now_ns = time.monotonic_ns()
        if now_ns - self._cpu_ns >= _COUNTED_EVERY_NS:
            counts = ran_and_waited_ns()
            self._cpu_ns, self._cpu = now_ns, [] if counts is None else [now_ns, *counts]
        document: dict[str, Any] = {
            handed_over.STEP: engine.process_step(),
            handed_over.END: is_end,
            handed_over.LOST: engine.counters()["summaries_lost"],
            handed_over.WAITS: engine.stage_waits(),
            handed_over.CPU: self._cpu,
        }
        names = {handed_over.STAGES: engine.stage_keys(), handed_over.WHO: self._who_now}
        self._ring.put(self._waiting, document, names)
        self._waiting = b""

    def forget(self) -> None:
        """Leave nothing. OSError: it cannot be removed."""
        self._ring.path.unlink(missing_ok=True)


def ran_and_waited_ns() -> tuple[int, int] | None:
    """How long the main thread of this process has run since it began, and has waited for a CPU that others had; None
    where the kernel does not count it. *Cost*: a few microseconds, in the kernel's memory.
    """
    try:
        ran, waited, _ = proc_files.read_content(_CPU_FILE, _CPU_FILE_BYTES).split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None
