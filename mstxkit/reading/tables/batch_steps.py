"""What the hosts of a job have handed over while it ran, as steps with the collectives that rings tell of."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import TYPE_CHECKING

from ...judging.controller import Controller
from ...store import batches

if TYPE_CHECKING:
    from ...judging.evidence import RoleStep
    from ..run import Run


def with_rings(run: Run) -> list[RoleStep]:
    """The steps of a run of which a ring tells, by step. *Cost*: reads and judges all that was handed over."""
    files = batches.files_in(Path(run.path))
    steps: list[RoleStep] = []

    def keep(step: RoleStep) -> None:
        if step.collectives is not None:
            steps.append(step)

    controller, now_s = Controller(run.path, on_step=keep), 0.0
    handed = (batches.BatchFile(file, run.id).read() for file in files)
    for batch in heapq.merge(*handed, key=lambda batch: batch.time_s):
        now_s = max(now_s, batch.time_s)
        controller.take(batch, now_s)
        if controller.is_due(now_s):
            controller.work(now_s)
    if files:
        controller.work(now_s, at_once=True)
    return sorted(steps, key=lambda step: step.step)
