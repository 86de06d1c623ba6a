"""Judges a job step by step: who made the others wait, in which stage, and why. No clock, no file; of values alone.

    judge = JobJudge(settings.defaults(), run="runs/exp7")
    judged = judge.close(step, time.time_ns())
"""

from __future__ import annotations

from typing import Iterable

from ..store.verdicts import Verdict
from .evidence import RoleStep
from .judged import Judged
from .settings import JudgeSettings, defaults


class JobJudge:
    """What is remembered of a job, bounded whatever its length, and what has been judged of it.

    Args:
        settings: May be set anew between steps (`judge.settings = changed(judge.settings, name, text)`).
        run: The run's folder as a person would name it, for the commands in `Verdict.next`.
        standing: Verdicts that an earlier judge of this job has left, of which none is withdrawn.

    Attributes:
        settings: In force from the next step on.
    """

    def __init__(
        self, settings: JudgeSettings | None = None, run: str = "RUN", standing: Iterable[Verdict] = ()
    ) -> None:
        self.settings = settings or defaults()
        self._run = run
        self._standing = {verdict.id: verdict for verdict in standing}

    def close(self, step: RoleStep, now_ns: int = 0) -> Judged:
        """Judge one step of one role, once all its members have handed it over, or nobody waits for them any more.

        A step that was closed before may be closed again with `collectives`, when its rings have come later; only what
        they tell is added then. Others are closed in their order.

        Args:
            step: What is judged.
            now_ns: Wall clock of who judges; it becomes `Verdict.time_ns`.
        """
        return Judged()

    def standing(self) -> list[Verdict]:
        """The verdicts that hold now."""
        return list(self._standing.values())
