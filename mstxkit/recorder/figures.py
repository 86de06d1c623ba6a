"""What the job's judge has said last, for `metrics()`: read ahead by the sealer's thread for whoever asks often.

A training thread that asks between two steps would pay ten times as much: files, JSON and the code for them have grown
cold since it last ran.
"""

from __future__ import annotations

import time
from pathlib import Path

from ..store import documents, settings_file

# What was read ahead is given for so long; it is read ahead while somebody has asked twice within so many seconds: who
# asks less often finds it too old.
_GIVEN_FOR_S, _ASKED_WITHIN_S = 1.5, 3.0


class FiguresHere:
    """Figures by name, no older than a second and a half; {} while there are none.
    `file`: in the host's shared memory. `run_id`: of the run.

    Threads: any may ask, one reads ahead.
    """

    def __init__(self, file: Path, run_id: str) -> None:
        self._file, self._run_id = file, run_id
        self._state: tuple[int, ...] = ()
        self._ahead, self._given_until_s = dict[str, float](), 0.0
        self._asked_s = (-_ASKED_WITHIN_S,) * 2  # the last time but one, and the last

    def values(self) -> dict[str, float]:
        """A copy of them. *Cost*: a microsecond where they were read ahead, else a small file is read."""
        now_s = time.monotonic()
        self._asked_s = self._asked_s[1], now_s
        return dict(self._ahead) if now_s < self._given_until_s else self._read()

    def read_ahead(self) -> None:
        """Of the sealer's thread, about once a second. Never raises."""
        now_s = time.monotonic()
        if now_s - self._asked_s[0] > _ASKED_WITHIN_S:
            return
        state = documents.state_of(self._file)
        if state != self._state:
            self._ahead, self._state = self._read(), state
        self._given_until_s = now_s + _GIVEN_FOR_S

    def _read(self) -> dict[str, float]:
        figures = settings_file.read_figures(self._file, self._run_id)
        return {} if figures is None else dict(figures.values)
