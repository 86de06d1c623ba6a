"""Asks for one light step by itself, where a job became slower and nothing tells who is late: its device ranges do.

Only ranks that profile an NPU are asked: without one, a light step holds no communication. Once it is parsed
(`mstxkit profiles --analyse`), `mstxkit top RUN --once`, `mstxkit report` and `Run.lateness()` say who came last by its
device ranges; until then the first two say that it is to be parsed (`reading/tables/device_entries.py`). Cooldown and
budgets are each rank's own, as for any request.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Iterable

from ..errors import MstxkitError
from ..store import fate
from .acting import Wish
from .judged import LIGHT, Want
from .speakers import Speakers

_PRESET, _NPU = "light", frozenset(("torch_npu", "mindspore"))
# It costs every rank of the group a profiler that starts and stops.
_EVERY_S, _AT_MOST = 600.0, 6


class LightSteps:
    """Of one run, asked for by whoever judges it. A judge that is started anew may ask once more.
    `run`, `run_id`: the run folder, and its id.
    """

    def __init__(self, run: Path, run_id: str) -> None:
        self._speakers = Speakers(run, run_id)
        self._asked, self._asked_s = 0, -_EVERY_S

    def consider(self, wants: Iterable[Want], now_s: float) -> str:
        """Ask for what is wanted, if it is time, and anybody can give it; the id of the request, or "". Never raises
        for what it finds in the run.
        """
        is_time = self._asked < _AT_MOST and abs(now_s - self._asked_s) >= _EVERY_S
        for want in wants if is_time else ():
            if want.kind != LIGHT or want.stage is None:
                continue
            able = {  # who has an NPU's profiler, and runs the stage
                speaker.rank for speaker in fate.read_heard(self._speakers.control)
                if (not want.role or speaker.acknowledgement.role in ("", want.role))
                and (not want.ranks or speaker.rank in want.ranks)
                and speaker.standing.backend in _NPU and want.stage in speaker.keys
            }  # fmt: skip
            wish = Wish(f"after step {want.since_step - 1}", want.stage, tuple(sorted(able)), _PRESET, want.why)
            if len(able) > 1:  # of one alone nobody can say that it is late
                with suppress(MstxkitError, OSError):
                    id = self._speakers.ask(wish, "", time.time_ns())
                    self._asked, self._asked_s = self._asked + 1, now_s
                    return id
        return ""
