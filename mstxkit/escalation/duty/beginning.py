"""That a session begins is written down before it does: after a kill its request must not begin again.

The watcher's thread writes. The one that trains waits for it once for each session, and 50 ms at most. A write that
takes longer costs an occurrence, not the request: training goes on, and the session begins with the next occurrence
that finds it written. The request has failed where the folder does not take it, or does not answer for two seconds; not
where it is this host that has no CPU for the watcher. Where the step is known before, it is written before that.
"""

from __future__ import annotations

import time
from typing import Callable, Collection, NamedTuple

from ..machine import moves
from .mailbox import AckNumber, Mailbox
from .watcher import Watcher

WAITS_AT_MOST_S = 0.05
ANSWERS_WITHIN_S = 2.0
# What was written before its step is written anew so often, and good for so long.
_AHEAD_AGAIN_S, _AHEAD_GOOD_S = 5.0, 15.0


class _Announced(NamedTuple):
    """What was said of a beginning, and when on the monotonic clock."""

    word: AckNumber
    since_s: float


class Beginnings:
    """The sessions that are to begin in this process.
    `watcher`: whose thread writes into the mailbox; while there is none, the caller's does. `say`: says what this rank
    is in by now. `folder`: what is written to, in words.

    Threads/fork: for the thread that trains, but for `write_ahead`.
    """

    def __init__(self, mailbox: Mailbox, watcher: Watcher, say: Callable[[], AckNumber], folder: object) -> None:
        self._mailbox, self._watcher, self._say, self._folder = mailbox, watcher, say, folder
        self._awaited: dict[tuple[str, str], _Announced] = {}  # request and stage
        self._ahead: dict[tuple[str, str], float] = {}  # and when it was said, for what is written

    def obstacle(self, id: str, stage: str) -> moves.SessionPutOff | moves.SessionFailed | None:
        """What keeps a session of this request from beginning now; None: it is written down. A word that was not
        written ahead is good for one session of its stage: what folders answered long ago says little of now.
        """
        if time.monotonic() - self._ahead.get((id, stage), -_AHEAD_GOOD_S) < _AHEAD_GOOD_S:
            self._say()
            self._watcher.look_now()  # whoever looks sees soon that it records
            return None
        announced = self._awaited.get((id, stage))
        if announced is None:  # say it, and wait for that once
            announced = _Announced(self._say(), time.monotonic())
            if self._watcher.background.runs:
                self._watcher.look_now()
                self._mailbox.wait_until_written(announced.word, WAITS_AT_MOST_S)
            else:
                self._mailbox.flush()
        self._awaited = {key: other for key, other in self._awaited.items() if key[0] == id}
        self._awaited[id, stage] = announced
        if self._mailbox.is_written(announced.word):
            return None
        problem, is_busy = self._mailbox.unwritten, self._watcher.background.lacks_cpu
        if problem is None and (is_busy or time.monotonic() - announced.since_s < ANSWERS_WITHIN_S):
            late = "this host was too busy to write to {}" if is_busy else "{} had not answered"
            return moves.SessionPutOff(f"{late.format(self._folder)} within {WAITS_AT_MOST_S * 1e3:.0f} ms")
        problem = problem or f"{self._folder} has not answered for {ANSWERS_WITHIN_S:g} s"
        return moves.SessionFailed(f"its beginning could not be written down: {problem}")

    def is_over(self, id: str, stage: str) -> None:
        """It has begun, or cannot: the next session of this stage is said anew."""
        self._awaited.pop((id, stage), None)

    def write_ahead(self, near: Collection[tuple[str, str]]) -> None:
        """On the watcher's thread: write down what is to begin in a step that is near, request and stage each, as this
        rank's memory has it already.
        """
        now_s = time.monotonic()
        if any(now_s - self._ahead.get(each, -_AHEAD_AGAIN_S) >= _AHEAD_AGAIN_S for each in near):
            self._say()
            if self._mailbox.flush():
                self._ahead = dict.fromkeys(near, now_s)
