"""What the demo's verdict asked for by itself (`capture(act="escalate")`), opened when the ranks have ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from mstxkit.reading.run import open_run
from mstxkit.store import verdicts
from mstxkit.store.verdicts import Verdict

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


def outcome(run: Path) -> Escalated:
    """What became of it. Call it when the ranks have ended. Raises: ReadError where the run cannot be read."""
    verdict = _acted(run)
    if verdict is None or verdict.stage is None:
        reasons = [each.no_request for each in verdicts.read(run) if each.no_request]
        return Escalated(reason=reasons[-1] if reasons else _NO_VERDICT)
    rows = [row for row in open_run(run).escalations().to_dicts() if row["request"] == verdict.request]
    rows.sort(key=lambda row: (row["rank"] != verdict.rank, row["rank"]))
    return Escalated(verdict, "", tuple(_profiled(run, row) for row in rows))


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
