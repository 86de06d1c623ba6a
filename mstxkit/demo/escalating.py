"""What the demo's verdict asked for by itself (`capture(act="escalate")`), opened when the ranks have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from mstxkit.reading.run import open_run
from mstxkit.store import verdicts
from mstxkit.store.verdicts import Verdict

_NO_VERDICT = "the training was over before a verdict blamed a rank"


class Profiled(NamedTuple):
    """What became of the request on one rank."""

    rank: int
    state: str
    reason: str  # why it ended so
    step: int | None  # the one that was recorded
    folder: str | None  # of the profile; None where nothing was recorded


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
        profiles = [profiled._asdict() for profiled in self.profiles]
        return {**self._asdict(), "verdict": self.verdict and self.verdict._asdict(), "profiles": profiles}


def outcome(run: Path) -> Escalated:
    """What became of it. Call it when the ranks have ended. Raises: ReadError where the run cannot be read."""
    verdict = _find_acted(run)
    if verdict is None or verdict.stage is None:
        reasons = [each.no_request for each in verdicts.read(run) if each.no_request]
        return Escalated(reason=reasons[-1] if reasons else _NO_VERDICT)
    rows = [row for row in open_run(run).escalations().to_dicts() if row["request"] == verdict.request]
    rows.sort(key=lambda row: (row["rank"] != verdict.rank, row["rank"]))
    return Escalated(verdict, "", tuple(_describe_profile(run, row) for row in rows))


def _find_acted(run: Path) -> Verdict | None:
    """Of the verdicts that have asked for a profile: one that blames a rank and holds, the one that costs most.

    On a laptop that has other things to do everybody is slow now and then, or one rank is, and the judge says so.
    """
    asked = (verdict for verdict in verdicts.read(run) if verdict.request)
    return max(asked, key=lambda of: (of.rank is not None, not of.withdrawn, of.impact_ratio), default=None)


def _describe_profile(run: Path, row: dict[str, Any]) -> Profiled:
    return Profiled(
        row["rank"], row["state"], row["reason"], row["first_step"], row["folder"] and str(run / row["folder"])
    )
