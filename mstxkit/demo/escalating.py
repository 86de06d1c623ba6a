"""The demo asks for a profile of the rank and stage that a verdict blames, once, as anybody could from outside.

`Escalation.look` is called now and then while the ranks train; `Escalation.outcome` when they have ended.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

from mstxkit.demo.judged import blamed
from mstxkit.errors import MstxkitError
from mstxkit.escalation import asking
from mstxkit.escalation.inside import escalate
from mstxkit.reading.report.sentences import sentence
from mstxkit.reading.run import open_run
from mstxkit.store import fate
from mstxkit.store.verdicts import Verdict

LOOK_EVERY_S = 1.0
_TRACE = "*.pt.trace.json"
_NO_VERDICT = "the training was over before a verdict blamed a rank"


class Trace(NamedTuple):
    """A trace in Chrome's format: how many events it holds, and how many of them are the stage's own range."""

    path: Path
    events: int
    ranges: int


class Escalated(NamedTuple):
    """What became of the demo's request."""

    command: str = ""  # what does the same in a terminal; empty where nothing was asked for
    verdict: Verdict | None = None  # the one that blames the rank and stage that were asked for
    state: str = ""  # how the request ended
    reason: str = ""  # why it ended so, or why nothing was asked for
    step: int | None = None  # the one that was recorded
    folder: Path | None = None  # the profile's; None where nothing was recorded
    request: str = ""  # its id
    trace: Trace | None = None  # the one in it; None where the profiler writes none by itself

    @property
    def has_failed(self) -> bool:
        """Was something asked for that was not recorded?"""
        return bool(self.state) and self.state != "done"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {**self._asdict(), "verdict": self.verdict and self.verdict._asdict()}
        values["trace"] = self.trace and {**self.trace._asdict(), "path": str(self.trace.path)}
        return {**values, "folder": self.folder and str(self.folder)}


class Escalation:
    """One request of the demo, from the first verdict to its end (`is_over`: there is no more to look for).

    `tell` takes a line for each thing that happens.
    """

    def __init__(self, run: Path, tell: Callable[[str], None]) -> None:
        self._run, self._tell = run, tell
        self._look_at_s = 0.0
        self._verdict: Verdict | None = None
        self._id = ""
        self._problem = _NO_VERDICT
        self.is_over = False

    def look(self) -> None:
        """Ask for a profile of a rank that is blamed, or see whether that has ended: one of them a second."""
        if self.is_over or time.monotonic() < self._look_at_s:
            return
        try:
            self._follow() if self._id else self._ask()
            self._problem = _NO_VERDICT
        except MstxkitError as exc:  # a run that is just beginning: nothing to read yet, or nobody listens
            self._problem = str(exc)
        self._look_at_s = time.monotonic() + LOOK_EVERY_S

    def _ask(self) -> None:
        verdict = blamed(self._run)
        if verdict is None or verdict.stage is None:
            return
        cause = sentence(verdict._asdict())
        self._id = escalate(verdict.stage, ranks=[verdict.rank or 0], run=self._run, reason=f"the demo: {cause}").id
        self._verdict = verdict
        lost = f"{verdict.impact_ratio:.0%} of each step is lost by it"
        self._tell(f"Verdict: {cause}; {lost}. Asking for a full profile of its next one.")

    def _follow(self) -> None:
        control = asking.control_of(self._run)
        progress = fate.Fates(fate.heard(control)).progress(asking.named(control, self._id))
        self.is_over = progress.has_ended
        if self.is_over:
            self._tell(f"That request has ended: {progress}.")

    def outcome(self) -> Escalated:
        """What became of it. Call it when the ranks have ended. Raises: ReadError where the run cannot be read."""
        verdict, rows = self._verdict, open_run(self._run).escalations().iter_rows(named=True)
        if verdict is None or verdict.stage is None:
            return Escalated(reason=self._problem)
        row = next(row for row in rows if row["request"] == self._id and row["rank"] == verdict.rank)
        command = f"mstxkit escalate {self._run} --stage {verdict.stage} --ranks {verdict.rank} --steps 1"
        folder = None if row["folder"] is None else self._run / row["folder"]
        trace = None if folder is None else trace_in(folder, verdict.stage)
        return Escalated(command, verdict, row["state"], row["reason"], row["first_step"], folder, self._id, trace)


def trace_in(folder: Path, stage: str) -> Trace | None:
    """The first trace below a profile's folder, opened and counted; None without one, as in raw NPU data."""
    path = next(iter(sorted(folder.rglob(_TRACE))), None)
    if path is None:
        return None
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return Trace(path, len(events), sum(event.get("name") == stage and event.get("ph") == "X" for event in events))
