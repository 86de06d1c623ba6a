"""Hosts of which nothing comes any more: their keepers say every few seconds where processes are, and then do not.

By whether their files change, on the clock of who looks: no clocks of two hosts are compared, and a stage that lasts
for an hour is no silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable, Mapping

from ..store import documents, layout

if TYPE_CHECKING:
    from .directory import SendingHost

# A call a host each time.
LOOKS_EVERY_S = 30.0
SILENT_AFTER_S = 60.0


class Silences:
    """Of one run. `run`: the run folder."""

    def __init__(self, run: Path) -> None:
        self._folder = run / layout.NOW
        self._seen: dict[str, tuple[tuple[int, ...], float]] = {}
        self._hosts: Mapping[str, SendingHost] = {}
        self._due_s = float("-inf")

    def silent(self, now_s: float, hosts: Callable[[], Mapping[str, SendingHost]]) -> list[str]:
        """Names of hosts that have handed something over, have said no goodbye, and are silent.

        Args:
            now_s: Of one clock that is never set.
            hosts: Gives them by the names of their files, without suffix; called where it is time to look.
        """
        if now_s >= self._due_s:
            self._due_s, self._hosts = now_s + LOOKS_EVERY_S, hosts()
            for place, host in self._hosts.items():
                if "/" in place or "\0" in place:
                    continue  # a name that somebody made up
                state = () if host.has_ended else documents.state_of(self._folder / f"{place}{layout.NOW_SUFFIX}")
                if state and self._seen.get(place, ((), 0.0))[0] != state:
                    self._seen[place] = state, now_s
        since_s = {place: now_s - self._seen.get(place, ((), now_s))[1] for place in self._hosts}
        return [of.host for place, of in self._hosts.items() if since_s[place] > SILENT_AFTER_S and not of.has_ended]
