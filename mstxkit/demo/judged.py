"""Whom a verdict blames in a run of the demo, while it goes on: its judge's word, else what the run's tables show."""

from __future__ import annotations

from pathlib import Path

from mstxkit.reading import judged
from mstxkit.reading.run import open_run
from mstxkit.store.verdicts import HANG, Verdict


def blamed(run: Path) -> Verdict | None:
    """The verdict that costs the job most of those that hold and blame one rank in a stage; None while there is none.

    Raises:
        ReadError: there is no run yet.
    """
    verdicts = judged.of_run(open_run(run)).blaming
    slow = (verdict for verdict in verdicts if verdict.kind != HANG)  # of a hang no profile tells more
    return next((verdict for verdict in slow if verdict.rank is not None and verdict.stage is not None), None)
