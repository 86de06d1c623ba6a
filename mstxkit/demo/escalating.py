"""The demo asks for a profile of the slow rank's slowest stage, once, as anybody could who looks at a run from outside.

`Escalation.look` is called now and then while the ranks train; `Escalation.outcome` when they have ended.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

from mstxkit.control import asking, progress
from mstxkit.demo.suspicion import Suspect, suspect
from mstxkit.errors import MstxkitError
from mstxkit.escalation import escalate
from mstxkit.reader import open_run

LOOK_EVERY_S = 1.0
_TRACE = "*.pt.trace.json"


class Trace(NamedTuple):
    """A trace in Chrome's format, and what it holds.

    Args:
        path: The file.
        events: All of its events.
        ranges: Those that are the stage's own range.
    """

    path: Path
    events: int
    ranges: int


class Escalated(NamedTuple):
    """What became of the demo's request.

    Args:
        command: What does the same in a terminal; empty where nothing was asked for.
        suspect: The rank and stage that were asked for; None where nothing was.
        state: How the request ended; empty where there is none.
        reason: Why it ended so, or why nothing was asked for.
        step: The step that was recorded.
        folder: The profile's; None where nothing was recorded.
        trace: The trace in it; None where the profiler writes none by itself.
    """

    command: str = ""
    suspect: Suspect | None = None
    state: str = ""
    reason: str = ""
    step: int | None = None
    folder: Path | None = None
    trace: Trace | None = None

    @property
    def has_failed(self) -> bool:
        """Was something asked for that was not recorded?"""
        return bool(self.state) and self.state != "done"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        told = {**self._asdict(), "suspect": self.suspect and self.suspect._asdict()}
        told["trace"] = self.trace and {**self.trace._asdict(), "path": str(self.trace.path)}
        return {**told, "folder": self.folder and str(self.folder)}


class Escalation:
    """One request of the demo, from the first suspicion to its end.

    Args:
        run: The run folder.
        ranks: How many ranks train.
        tell: Is told what happens, a line each.

    Attributes:
        is_over: Has what was asked for ended? Then there is no more to look for.
    """

    def __init__(self, run: Path, ranks: int, tell: Callable[[str], None]) -> None:
        self._run, self._ranks, self._tell = run, ranks, tell
        self._look_at_s = 0.0
        self._suspect: Suspect | None = None
        self._id = ""
        self._problem = "the training was over before all ranks had shown how long they take"
        self.is_over = False

    def look(self) -> None:
        """Find out who is slow, ask for a profile of it, say when it is there: one of them a second."""
        if self.is_over or time.monotonic() < self._look_at_s:
            return
        try:
            self._follow() if self._id else self._ask()
        except MstxkitError as exc:  # a run that is just beginning: nothing to read yet, or nobody listens
            self._problem = str(exc)
        self._look_at_s = time.monotonic() + LOOK_EVERY_S

    def _ask(self) -> None:
        found = suspect(open_run(self._run).stages().iter_rows(named=True), self._ranks)
        if found is None:
            return
        why = f"{found.behind_s * 1e3:.0f} ms a step" + (" behind the fastest" if self._ranks > 1 else "")
        self._id = escalate(found.stage, ranks=[found.rank], run=self._run, reason=f"the demo: {why}").id
        self._suspect = found
        self._tell(f"Slow: rank {found.rank} in {found.stage}, {why}. Asking for a full profile of its next one.")

    def _follow(self) -> None:
        control = asking.control_of(self._run)
        found = progress.progress(asking.named(control, self._id), progress.heard(control))
        self.is_over = found.has_ended
        if self.is_over:
            self._tell(f"That request has ended: {found}.")

    def outcome(self) -> Escalated:
        """What became of it. Call it when the ranks have ended.

        Raises:
            ReadError: the run cannot be read.
        """
        if self._suspect is None:
            return Escalated(reason=self._problem)
        found, rows = self._suspect, open_run(self._run).escalations().iter_rows(named=True)
        row = next(row for row in rows if row["request"] == self._id and row["rank"] == found.rank)
        command = f"mstxkit escalate {self._run} --stage {found.stage} --ranks {found.rank} --steps 1"
        folder = None if row["folder"] is None else self._run / row["folder"]
        trace = None if folder is None else trace_in(folder, found.stage)
        return Escalated(command, found, row["state"], row["reason"], row["first_step"], folder, trace)


def trace_in(folder: Path, stage: str) -> Trace | None:
    """The first trace below a profile's folder, opened and counted; None where there is none, raw NPU data say."""
    path = next(iter(sorted(folder.rglob(_TRACE))), None)
    if path is None:
        return None
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return Trace(path, len(events), sum(one.get("name") == stage and one.get("ph") == "X" for one in events))
