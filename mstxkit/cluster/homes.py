"""Where the job is judged: in an actor of Ray's where this process is part of a Ray job, else beside rank 0."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from ..store.batches import HandingProcess
from ..store.settings_file import Figures
from .beside import Beside
from .clocks import Stamps
from .ray_link import RayLink


class Homes:
    """Who judges, as seen from one host. In the agent's thread only. `judges`: is a judge to be started from here,
    where none runs? `metrics`: what a judge is told of where figures go.
    """

    def __init__(self, run: Path, run_id: str, folder: Path, judges: bool, metrics: str = "") -> None:
        self._judges = judges
        self._link = RayLink(run, run_id, metrics)
        self._beside = Beside(run, run_id, metrics)

    def consider(self, processes: Sequence[HandingProcess], batches: int) -> None:
        """Start a judge where one is missing: from rank 0's host, and once that is gone from any. `processes`: of this
        host. `batches`: that this host has handed over.
        """
        if self._judges and not self._link.is_open:
            self._beside.consider(processes, batches)

    def post(self, frame: bytes) -> None:
        """Send a batch on, where there is a way that is no file. Never raises, waits for no answer."""
        if self._judges:
            self._link.post(frame)

    def answer(self) -> Figures | None:
        """What was answered last; None where nobody answers but by files."""
        return self._link.answer() if self._judges else None

    def take_stamps(self) -> list[Stamps]:
        """Time stamps that were exchanged with whoever judges; none where only files lie between."""
        return self._link.take_stamps()

    def leave(self) -> None:
        """This host sends no more."""
        self._link.close()
