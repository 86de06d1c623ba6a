"""What became of every declared target: applied, waiting, skipped or failed, with one of a closed list of reasons."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

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
    OUT_OF_REACH = "out of reach"
    NOT_PATCHABLE = "cannot be replaced"
    FAILED = "resolution failed"


REASONS = tuple(value for key, value in vars(Reason).items() if key.isupper())


class TargetState(NamedTuple):
    """One declared target and what became of it in this process.

    Args:
        framework: Import root of the framework.
        path: The target's path as declared.
        state: applied, waiting, skipped or failed.
        reason: One of `REASONS`; "" when applied.
        detail: What a reader needs besides: the error's text, the symbol that superseded it, places not reached.
        tier: core or extra.
        name: Name of the range.
        stage: Canonical stage key, or None.
    """

    framework: str
    path: str
    state: str
    reason: str = ""
    detail: str = ""
    tier: str = "core"
    name: str = ""
    stage: str | None = None


class PatchReport(NamedTuple):
    """Every target of every framework asked for, in the order declared, and notes on the ways into other processes."""

    targets: tuple[TargetState, ...]
    notes: tuple[str, ...] = ()

    def of(self, framework: str) -> PatchReport:
        """The part of one framework."""
        return PatchReport(tuple(one for one in self.targets if one.framework == framework), self.notes)

    def counts(self) -> dict[str, dict[str, int]]:
        """Framework to state to number of targets."""
        counted: dict[str, Counter[str]] = {}
        for one in self.targets:
            counted.setdefault(one.framework, Counter())[one.state] += 1
        return {name: {state: found[state] for state in STATES} for name, found in counted.items()}

    def as_dicts(self) -> list[dict[str, Any]]:
        """Plain values, for JSON."""
        return [one._asdict() for one in self.targets]

    def __str__(self) -> str:
        lines = [
            f"{name}: " + ", ".join(f"{count} {state}" for state, count in states.items() if count)
            for name, states in self.counts().items()
        ]
        lines += [f"  {_line(one)}" for one in self.targets if one.state != APPLIED]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _line(one: TargetState) -> str:
    return f"{one.state} {one.path}: {one.reason}" + (f" ({one.detail})" if one.detail else "")
