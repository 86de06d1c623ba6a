"""Processes of this host that are gone, until it is known what that was: `reading/endings.py` judges them, as it judges
for whoever reads the run.
"""

from __future__ import annotations

from collections import deque
from typing import Iterable, NamedTuple

from ..host import parts
from ..reading import attempts, endings
from ..reading.endings import Life
from ..reading.processes import ENDED, KILLED, RUNNING, Process
from ..store import incidents, stacks
from .looking import WatchedProcess

_DECIDED_NS, _OF_RAY_DECIDED_NS = 1_000_000_000, 3_500_000_000
_PAST_AT_MOST = 256


class Death(NamedTuple):
    """One that is gone, and not in order."""

    process: WatchedProcess  # whose files are still open
    gone_ns: int  # when that was seen, CLOCK_MONOTONIC
    signal: int  # that has ended it; 0: none, or not known
    oom_kills: int  # processes of this host that the kernel has just killed as memory ran out

    @property
    def is_of_ray(self) -> bool:
        """Is it of a Ray job? Ray ends its workers by force, at the end of a job all of them within seconds."""
        return self.process.who.get("under") in (parts.RAY, parts.RAY_DRIVER)


class Dying:
    """Those of this host. One thread."""

    def __init__(self) -> None:
        self.deaths: list[Death] = []
        self._past = deque[Life](maxlen=_PAST_AT_MOST)

    def add(self, death: Death) -> None:
        """One more; whoever reads the run learns when and how, whatever becomes of this host's watchman."""
        self.deaths.append(death)
        about = {"signal": death.signal, "watched": death.process.pidfd >= 0}
        stacks.add_death(death.process.live_file, stacks.WATCHMAN, death.gone_ns, **about)

    def have_ended(self, process: WatchedProcess, now_ns: int) -> None:
        """It has, in order."""
        self._past.append(_make_life(process, now_ns, ENDED))

    def ripe(self, now_ns: int, living: Iterable[WatchedProcess]) -> list[Death]:
        """Those of which it is known by now whether others went with them. A Ray job ends its own within seconds."""
        whos = [*(process.who for process in living), *(death.process.who for death in self.deaths)]
        above = [who.get("pid") for who in whos if who.get("under") == parts.RAY]
        of_ray = [d for d in self.deaths if d.is_of_ray or d.process.who.get("ppid") in above]
        return [d for d in self.deaths if now_ns - d.gone_ns >= (_OF_RAY_DECIDED_NS if d in of_ray else _DECIDED_NS)]

    def decided(self, death: Death) -> None:
        """It is told of, or need not be."""
        self.deaths.remove(death)
        self._past.append(_life_of(death))

    def kind(self, death: Death, living: Iterable[WatchedProcess], now_ns: int) -> str:
        """Which incident a death is; "" for none."""
        process = death.process
        if process.last_words().fatal or death.signal in stacks.FATAL:
            return incidents.SIGNAL
        is_alarming = bool(process.inside) and process.who.get("under") not in parts.BESIDE
        is_alarming |= death.signal == stacks.KILL and not death.is_of_ray
        if not is_alarming or death.signal == stacks.TERMINATE or process.has_said_goodbye():
            return ""  # whoever said goodbye has told of its exception
        lives = [_life_of(death), *map(_life_of, (other for other in self.deaths if other is not death)), *self._past]
        lives += [_make_life(other, now_ns, RUNNING) for other in living]
        numbers = attempts.number_attempts([(life.process.identity, life.start_ns, life.last_ns) for life in lives])
        for index, (life, attempt) in enumerate(zip(lives, numbers)):
            life.process.index, life.process.attempt = index, attempt
        return incidents.KILLED if endings.judge_endings(lives)[0].state == KILLED else ""


def _life_of(death: Death) -> Life:
    words = death.process.last_words()
    is_ended = death.process.has_said_goodbye() and not words.fatal
    life = _make_life(death.process, death.gone_ns, ENDED if is_ended else KILLED)
    life.process.fatal, life.process.signal = words.fatal, death.signal
    life.process.error = str(words.exceptions[-1].get("type")) if is_ended and words.exceptions else None
    life.process.exit_status = death.process.exit_status() or None
    return life


def _make_life(process: WatchedProcess, last_ns: int, state: str) -> Life:
    host, pid, start = process.name.rsplit("-", 2)
    made = Process((host, int(pid), start), identity=dict(process.who), state=state)
    entered_ns = max((range_.since_ns for range_ in process.inside), default=None)
    return Life(made, process.began_ns, last_ns, None if state == RUNNING else last_ns, entered_ns, process.pidfd >= 0)
