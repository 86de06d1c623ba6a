"""Where the processes of a host are, written into the run every few seconds (`store/whereabouts.py`): by the host's
watchman, by its keeper where there is none.

It costs one glance into each live file in shared memory, and one small file a host. Only the thread that writes it
waits where the run folder hangs.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable

from .. import faults
from ..errors import FormatError, MstxkitError
from ..host import jitter
from . import layout

if TYPE_CHECKING:
    from .glance import LiveGlance

EVERY_S = 5.0


class Lookout:
    """Of one process, that looks at all live files of its host, in `folder`.
    `is_told`: does somebody else say the same? Asked when it is due.

    Threads/fork: any thread; one that comes while another is at it does nothing. A forked child makes a new one.
    """

    def __init__(self, run: Path, run_id: str, folder: Path, is_told: Callable[[], bool] = lambda: False) -> None:
        self._run, self._run_id, self._folder, self._is_told = run, run_id, folder, is_told
        self._due = jitter.Every(EVERY_S, "whereabouts", time.monotonic())
        self._glances: dict[str, LiveGlance] = {}
        self._looking = threading.Lock()

    def tell_if_due(self, names: Iterable[str]) -> None:
        """Write where these processes are, by the names of their live files, if it is time. Never raises."""
        if self._due.is_due(time.monotonic()) and not self._is_told():
            self.tell(names)

    def tell(self, names: Iterable[str]) -> None:
        """The same now."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            from . import whereabouts  # where the watchman says the same, nothing of it is needed here
            from .glance import LiveGlance

            places = {name: self._folder / f"{name}{layout.LIVE_SUFFIX}" for name in names}
            self._glances = {name: self._glances.get(name) or LiveGlance(place) for name, place in places.items()}
            processes = list(filter(None, map(_place_seen, self._glances.values())))
            whereabouts.write_whereabouts(self._run, self._run_id, self._folder, processes)
        except FileNotFoundError:
            pass  # somebody has removed the run folder: the sealer puts it back
        except (OSError, MstxkitError) as exc:
            faults.note_fault("whereabouts", exc)
        finally:
            self._looking.release()


def _place_seen(glance: LiveGlance) -> dict[str, Any] | None:
    try:
        glimpse = glance.look()
    except (OSError, FormatError):
        return None  # it has just ended, or is just beginning
    if glimpse is None:
        return None
    who = {key: glimpse.identity.get(key) for key in ("host", "pid", "rank", "role", "part", "under")}
    in_stage_ns = None if glimpse.since_ns is None else max(0, time.monotonic_ns() - glimpse.since_ns)
    return {**who, "step": glimpse.step, "stage": glimpse.stage, "in_stage_ns": in_stage_ns}
