"""Goes on duty once there is something to be asked for: when this process has entered a stage, and knows its rank.

A process that has no stage (a data loader, a driver that only waits) costs one look a second, and writes nothing.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import faults
from ..errors import CaptureError
from ..recorder.engine import engine

if TYPE_CHECKING:
    from .duty import Duty


class Settings(NamedTuple):
    """What a process does about requests.

    Args:
        poll_every_s: Seconds between two looks at the control folder; 0: this process takes no requests.
        light: Schedule of light capture, "every 100 steps, 1 step"; None: none.
        cooldown_s: Seconds without a session after each request that had one.
        session_s: Seconds after which any session is ended, whatever its request says.
        hour_s: Seconds of sessions in any hour; requests wait until there is room.
        run_s: Seconds of sessions in a whole run, restarts included; then requests are refused.
        agreement_s: Seconds in which all ranks of a request have to be ready for a step together.
        transport_s: Seconds that a message may take to every rank: an agreed step is at least twice as far ahead.
        run_bytes: Raw data of all sessions of this rank in a run; 0: no limit.
    """

    poll_every_s: float = 0.25
    light: str | None = None
    cooldown_s: float = 30.0
    session_s: float = 600.0
    hour_s: float = 600.0
    run_s: float = 7200.0
    agreement_s: float = 120.0
    transport_s: float = 4.0
    run_bytes: int = 0


def checked(settings: Settings) -> Settings:
    """The same.

    Raises:
        CaptureError: one of them cannot be.
        ConfigError: the schedule of light capture is none.
    """
    poll: Any = settings.poll_every_s
    if not isinstance(poll, (int, float)) or not (poll == 0 or 0.02 <= poll <= 60):
        raise CaptureError(f"poll_every_s={poll!r} (of capture): seconds from 0.02 to 60 are needed, or 0 for never")
    for field in ("cooldown_s", "session_s", "hour_s", "run_s", "agreement_s", "transport_s", "run_bytes"):
        value = getattr(settings, field)
        if not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise CaptureError(f"{field}={value!r} (of capture): a number from 0 is needed")
    if settings.light is not None:
        from ..profiling.light import Schedule

        Schedule.parse(settings.light)
    return settings


class Place(NamedTuple):
    """The run of this process: its folder, its id, its folder on this host."""

    run: Path
    run_id: str
    host_folder: Path


class Standby:
    """From the start of capture to its end.

    Args:
        place: Where this process captures.
        settings: What it may do about requests.

    Threads/fork: `consider` is for the recorder's background thread; all others for wiring. A forked child begins anew.
    """

    def __init__(self, place: Place, settings: Settings) -> None:
        self._place, self._settings = place, settings
        self._lock = threading.Lock()
        self._duty: Duty | None = None
        self._is_over = settings.poll_every_s <= 0

    def consider(self) -> int:
        """Is it time? Never raises. Returns: CPU time of the watcher's thread since the last call, ns."""
        duty = self._duty
        if duty is not None and not (duty.post.is_assumed and duty.retire()):
            return duty.cost_ns()
        self._duty = None
        if not self._is_over and engine.stages_seen():
            with self._lock:
                try:
                    self._begin()
                except Exception as exc:
                    self._is_over = True
                    faults.note("control.standby", exc)
        return 0

    def _begin(self) -> None:
        from .duty import Duty
        from .post import post_here

        post = None if self._is_over else post_here(*self._place)
        if post is not None:
            duty = Duty(post, self._settings)
            duty.start()
            self._duty = duty

    def park(self) -> int:
        """End the threads before a fork; how many were they?"""
        return 0 if self._duty is None else self._duty.park()

    def resume(self) -> None:
        """Start them again, in the parent."""
        if self._duty is not None:
            self._duty.resume()

    def stop(self) -> None:
        """Capture ends: what is open is closed on this thread, and said."""
        with self._lock:
            self._is_over = True
        duty = self._duty  # the background thread may just be letting go of it
        if duty is not None:
            duty.stop()

    def doing(self) -> str | None:
        """What is recorded now, in words; None while nothing is."""
        duty = self._duty
        return None if duty is None else duty.doing()
