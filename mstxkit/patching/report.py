"""What became of every declared target: applied, waiting, skipped or failed, with one of a closed list of reasons."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .declare import Target

APPLIED, WAITING, SKIPPED, FAILED = STATES = ("applied", "waiting", "skipped", "failed")


class Reason:
    """Why a target is not applied. The values are what users and tests see; nothing else is ever a reason."""

    NOT_IMPORTED = "its module is not imported yet"
    NOT_INSTALLED = "the framework is not installed"
    ABSENT = "absent in this version"
    DISABLED_TIER = "disabled tier"
    SUPERSEDED = "superseded by another target in this version"
    HAS_RANGE = "has a range of mstxkit already"
    OFF = "switched off by MSTXKIT_OFF"
    NOT_PATCHABLE = "cannot be replaced"
    FAILED = "resolution failed"
    REPLACED = "replaced since"


REASONS = tuple(value for key, value in vars(Reason).items() if key.isupper())


class TargetState(NamedTuple):
    """One declared target and what became of it in this process."""

    framework: str  # import root
    path: str  # as declared
    state: str  # one of `STATES`
    reason: str = ""  # one of `REASONS`; "" when applied
    detail: str = ""  # what a reader needs besides: the error's text, the symbol that superseded it, who replaced it
    tier: str = "core"
    name: str = ""  # of the range
    stage: str | None = None  # canonical key
    calls: int | None = None  # of an applied one while something recorded; None: not looked at, or not counted
    version: str = ""  # of its framework, where autopatch doesn't know it, in words

    @staticmethod
    def of(framework: str, target: Target, state: str, reason: str = "", detail: str = "") -> TargetState:
        """The state of this target."""
        name = target.name or target.qualname
        return TargetState(framework, target.path, state, reason, detail, target.tier, name, target.stage)


class PatchReport(NamedTuple):
    """Every target of every framework asked for, in the order declared, and notes on the ways into other processes."""

    targets: tuple[TargetState, ...]
    notes: tuple[str, ...] = ()

    def of(self, framework: str) -> PatchReport:
        """The part of one framework."""
        return PatchReport(tuple(target for target in self.targets if target.framework == framework), self.notes)

    def counts(self) -> dict[str, dict[str, int]]:
        """Framework to state to number of targets."""
        counted: dict[str, Counter[str]] = {}
        for target in self.targets:
            counted.setdefault(target.framework, Counter())[target.state] += 1
        return {name: {state: states[state] for state in STATES} for name, states in counted.items()}

    def __str__(self) -> str:
        lines = dict.fromkeys(f"{target.framework} {target.version}" for target in self.targets if target.version)
        for name, states in self.counts().items():
            line = f"{name}: " + ", ".join(f"{count} {state}" for state, count in states.items() if count)
            calls = [target.calls for target in self.of(name).targets if target.calls is not None]
            lines[line + (f"; called {sum(calls)} times, {calls.count(0)} never" if calls else "")] = None
        for target in (target for target in self.targets if target.state != APPLIED):
            detail = f" ({target.detail})" if target.detail else ""
            lines[f"  {target.state} {target.path}: {target.reason}{detail}"] = None
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
