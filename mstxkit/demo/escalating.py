"""What the demo's verdict asked for by itself (`capture(act="escalate")`), told as it happens, and opened at the end.

`Escalation.look` is called now and then while the ranks train; `Escalation.outcome` when they have ended.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any, Callable, NamedTuple

from mstxkit.errors import MstxkitError
from mstxkit.escalation import asking
from mstxkit.reading.report.sentences import sentence
from mstxkit.reading.run import open_run
from mstxkit.store import verdicts
from mstxkit.store.verdicts import Verdict

LOOK_EVERY_S = 0.5
_TRACE = "*.pt.trace.json"
_NO_VERDICT = "the training was over before a verdict blamed a rank"


class Trace(NamedTuple):
    """A trace in Chrome's format: how many events it holds, and how many of them are the stage's own range."""

    path: Path
    events: int
    ranges: int


class Profiled(NamedTuple):
    """What became of the request on one rank."""

    rank: int
    state: str
    reason: str  # why it ended so
    step: int | None  # the one that was recorded
    folder: Path | None  # the profile's; None where nothing was recorded
    trace: Trace | None  # the one in it; None where the profiler writes none by itself


class Escalated(NamedTuple):
    """What became of the verdict that asked for a profile."""

    verdict: Verdict | None = None  # None where none asked
    reason: str = ""  # why none did
    command: str = ""  # what does the same in a terminal
    profiles: tuple[Profiled, ...] = ()  # of the rank that is blamed first, then of its peers

    @property
    def has_failed(self) -> bool:
        """Was something asked for that was not recorded?"""
        return any(profiled.state != "done" for profiled in self.profiles)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        profiles = [
            {
                **profiled._asdict(),
                "folder": profiled.folder and str(profiled.folder),
                "trace": profiled.trace and {**profiled.trace._asdict(), "path": str(profiled.trace.path)},
            }
            for profiled in self.profiles
        ]
        return {**self._asdict(), "verdict": self.verdict and self.verdict._asdict(), "profiles": profiles}


class Escalation:
    """The first verdict that blames a rank and asks for a profile, from there to the request's end (`is_over`: there is
    no more to tell). One that everybody is slow is told too, if it comes before.

    `tell` takes a line for each thing that happens.
    """

    def __init__(self, run: Path, tell: Callable[[str], None]) -> None:
        self._run, self._tell = run, tell
        self._look_at_s = 0.0
        self._told = self._ended = ""
        self.is_over = False

    def look(self) -> None:
        """Has a verdict asked, and has its request ended? Two looks a second."""
        if self.is_over or time.monotonic() < self._look_at_s:
            return
        self._look_at_s = time.monotonic() + LOOK_EVERY_S
        try:
            verdict = _acted(self._run)
            if verdict is not None:
                self._follow(verdict)
        except MstxkitError:  # a run that is just beginning
            pass

    def _follow(self, verdict: Verdict) -> None:
        control = asking.control_of(self._run)
        asked = asking.named(control, verdict.request)
        if self._told != verdict.request:
            self._told = verdict.request
            lost = f"{verdict.impact_ratio:.0%} of each step is lost by it"
            on = " and ".join(str(rank) for rank in asked.request.ranks)
            self._tell(f"Verdict: {sentence(verdict._asdict())}; {lost}.")
            self._tell(
                f"It asks for a {asked.request.preset} profile of ranks {on} by itself: request {asked.request.id}."
            )
        progress = asking.fates_of(control).progress(asked)
        self.is_over = progress.has_ended and verdict.rank is not None
        if progress.has_ended and self._ended != verdict.request:
            self._ended = verdict.request
            self._tell(f"That request has ended: {progress}.")

    def outcome(self) -> Escalated:
        """What became of it. Call it when the ranks have ended. Raises: ReadError where the run cannot be read."""
        verdict = _acted(self._run)
        if verdict is None or verdict.stage is None:
            reasons = [each.no_request for each in verdicts.read(self._run) if each.no_request]
            return Escalated(reason=reasons[-1] if reasons else _NO_VERDICT)
        rows = [row for row in open_run(self._run).escalations().to_dicts() if row["request"] == verdict.request]
        rows.sort(key=lambda row: (row["rank"] != verdict.rank, row["rank"]))
        ranks = ",".join(str(row["rank"]) for row in rows)
        command = f"mstxkit escalate {shlex.quote(str(self._run))} --stage {verdict.stage} --ranks {ranks}"
        return Escalated(verdict, "", command, tuple(_profiled(self._run, row) for row in rows))


def _acted(run: Path) -> Verdict | None:
    """The first verdict that has asked for a profile: one that blames a rank, where there is one.

    A laptop that has other things to do is slow for everybody now and then, and the judge says so.
    """
    asked = [verdict for verdict in verdicts.read(run) if verdict.request]
    return min(asked, key=lambda verdict: verdict.rank is None, default=None)


def _profiled(run: Path, row: dict[str, Any]) -> Profiled:
    folder = None if row["folder"] is None else run / row["folder"]
    trace = None if folder is None else trace_of(run, row)
    return Profiled(row["rank"], row["state"], row["reason"], row["first_step"], folder, trace)


def trace_of(run: Path, row: dict[str, Any]) -> Trace | None:
    """The trace of one rank's session, opened and counted; None without one, as in raw NPU data."""
    sessions = (run / "profiles").glob(f"{row['stage']}/step*/rank{row['rank']}/*/session.json")
    documents = [(file.parent, json.loads(file.read_text(encoding="utf-8"))) for file in sorted(sessions)]
    paths = [folder / of["output"] for folder, of in documents if of["request"] == row["request"] and of["output"]]
    path = next((path.resolve() for path in paths if path.match(_TRACE)), None)
    if path is None:
        return None
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    ranges = sum(event.get("name") == row["stage"] and event.get("ph") == "X" for event in events)
    return Trace(path, len(events), ranges)
