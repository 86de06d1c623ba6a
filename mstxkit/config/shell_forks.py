"""Where a shell script decides by a condition: `if`, `case`, and `&&` or `||` behind a test.

Nothing is run, so which branch would be taken is not known. What stands in one is in doubt, until a user chooses it by
one of its lines (`--branch 4`) or rules it out (`--branch not:4`).
"""

from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple

from ..errors import ConfigError
from .shell_tokens import plain

_CHOICE = re.compile(r"(not:)?([1-9][0-9]{0,8})")


class BranchChoice(NamedTuple):
    """What a user says of the innermost branch that holds a line."""

    line: int
    is_taken: bool


def choices(texts: Iterable[Any]) -> tuple[BranchChoice, ...]:
    """Choices as they are spelled on a command line. Raises: ConfigError where one is no line."""
    taken = []
    for text in texts:
        match = _CHOICE.fullmatch(str(text))
        if match is None:
            what = "a line is needed: 4 for the branch that holds line 4, not:4 against it"
            raise ConfigError(f"branch {text!r}: {what}")
        taken.append(BranchChoice(int(match[2]), match[1] is None))
    return tuple(taken)


class Doubt(NamedTuple):
    """Why it is not known what a word is, or whether it is there at all."""

    line: int
    key: str
    why: str


class Arm:
    """One branch: how it begins (`then`, `else`, a pattern), its first and its last line."""

    def __init__(self, fork: Fork, label: str, line: int) -> None:
        self.fork, self.label = fork, label
        self.first = self.last = line
        self.is_empty = True
        self.is_chosen: bool | None = None

    def hold(self, first: int, last: int) -> None:
        """A command in these lines stands in it."""
        self.first = first if self.is_empty else self.first
        self.last = max(self.last, last)
        self.is_empty = False


class Fork:
    """One condition, with all its branches; it stands in a branch of another, or in none."""

    def __init__(self, kind: str, line: int, within: Arm | None) -> None:
        self.kind, self.line, self.within = kind, line, within
        self.condition: list[str] = []
        self.arms: list[Arm] = []

    @property
    def has_else(self) -> bool:
        """Is one of the branches taken in any case?"""
        return any(arm.label in ("else", "*", "||") for arm in self.arms)

    @property
    def open(self) -> list[Arm]:
        """The branches of which nobody has said anything."""
        return [arm for arm in self.arms if arm.is_chosen is None]

    @property
    def doubt(self) -> Doubt:
        """What to say of a word that stands in one of its branches."""
        begun = [f"line {arm.first} ({arm.label})" for arm in self.open]
        held = " or ".join(begun) if self.has_else else f"{', '.join(begun)} or none of it"
        choose = [f"--branch {arm.first}" for arm in self.open]
        if not self.has_else or len({arm.first for arm in self.open}) < len(self.open):
            choose = [*choose[:1], f"--branch not:{self.open[0].first}"] if len(choose) < 3 else choose
        why = f"what is configured depends on this condition: {held}; choose with {' or '.join(choose)}"
        return Doubt(self.line, plain(" ".join(filter(None, (self.kind, *self.condition)))), why)

    def choose(self, arm: Arm, is_taken: bool) -> None:
        """Settle it: one branch is taken and no other; or one is not, which leaves another."""
        arm.is_chosen = is_taken
        if is_taken:
            for other in (other for other in self.arms if other is not arm):
                other.is_chosen = False
        elif self.has_else and len(self.open) == 1:
            self.open[0].is_chosen = True
        if is_taken and self.within is not None:
            self.within.fork.choose(self.within, True)


def settle(forks: list[Fork], chosen: Iterable[BranchChoice]) -> None:
    """Apply what a user chose. Raises: ConfigError where no branch holds a line."""
    arms = [arm for fork in forks for arm in fork.arms]
    for line, is_taken in chosen:
        holding = [arm for arm in arms if arm.first <= line <= arm.last]
        if not holding:
            ranges = ", ".join(f"{arm.first} to {arm.last} ({arm.label})" for arm in arms) or "none"
            raise ConfigError(f"branch {line}: no branch holds this line; branches are in lines {ranges}")
        arm = min(holding, key=lambda arm: (arm.last - arm.first, -arm.first))
        arm.fork.choose(arm, is_taken)
