"""What stands out in a role after one step, before it becomes a verdict."""

from __future__ import annotations

import math
from typing import Any, Collection, Mapping, NamedTuple

from ..store.verdicts import ALL_SLOW, COMPUTE, INPUT, NOT_ENOUGH_EVIDENCE, SERIAL

# Of `Surplus.excess`: all of its time.
EVERYTHING = 50.0
# Less than this share of an excess is what is left of it, or a part of it.
LEFT_SHARE = 0.5


class Key(NamedTuple):
    """What a finding is of: the same in every step in which it is seen."""

    kind: str
    where: str
    stage: str
    member: str = ""


class Surplus(NamedTuple):
    """Time that is too much: in one piece, of some members.

    Args:
        where, stage: The piece.
        members: By their keys; (): all of them.
        excess: Logarithm of time over expected time.
        slow: Groups whose collectives take too long, and by how many seconds; there `excess` counts nothing.
        role: In whose steps; "": of the role that the cause was found in.
        absent: Numbers of late steps in which it was not there.
    """

    where: str
    stage: str
    members: tuple[str, ...] = ()
    excess: float = 0.0
    slow: Mapping[int, float] = {}
    role: str = ""
    absent: Collection[int] = ()


class Finding(NamedTuple):
    """One thing that stands out.

    Args:
        key: What it is of.
        place: Of the member, in this step; -1: of no single one.
        steps: In how many steps it was seen.
        ratio: Time that it takes more than expected, as a share, over these steps.
        lost_s: How much longer it takes; the step may lose less by it.
        certainty: How far the test is past its threshold: 1 at it.
        group: Ranks of the group that it is of.
        evidence: Numbers.
        slow: Groups whose collectives take too long in this step, and by how many seconds.
        owner: The stage that its time is of, where that is not the one in its key.
        members: Of a set that is slow together (a host, those with one part of a model): their keys.
        is_hidden: May it be one of them alone, whom nothing shows?
        role: In whose steps, of what is of a controller.
    """

    key: Key
    place: int
    steps: int
    ratio: float
    lost_s: float
    certainty: float
    group: tuple[int, ...] = ()
    evidence: Mapping[str, Any] = {}
    slow: Mapping[int, float] = {}
    owner: str = ""
    members: tuple[str, ...] = ()
    is_hidden: bool = False
    role: str = ""

    @property
    def kind(self) -> str:
        """Of a verdict on it."""
        return NOT_ENOUGH_EVIDENCE if self.is_hidden else self.key.kind

    def part(self, excess: float | None = None) -> Surplus:
        """What it takes too much, by what was seen of it since it began or by this."""
        members = self.members or ((self.key.member,) if self.key.member else ())
        excess = math.log1p(max(0.0, self.ratio)) if excess is None else excess
        excess = EVERYTHING if self.key.kind == SERIAL else excess
        return Surplus(self.key.where, self.key.stage, members, excess, self.slow, self.role)

    @property
    def is_of_controller(self) -> bool:
        """Is it of who begins the stages, while all ranks wait?"""
        return self.kind == ALL_SLOW and "of_role" in self.evidence

    @property
    def blames_a_rank(self) -> bool:
        """Does it say that one rank is slow, or some together?"""
        return (self.place >= 0 or bool(self.members)) and self.kind in (COMPUTE, INPUT)


class Seen(NamedTuple):
    """What a step shows of something that was found before.

    Args:
        excess: Logarithm of time over expected time.
        coverage: Share of all that is lost where the others wait for it.
        waits_in: Where they wait: a stage; "" where nobody does.
        waits_before: Do they wait before that stage, and not in it?
    """

    excess: float
    coverage: float
    waits_in: str = ""
    waits_before: bool = False


class RoleFound(NamedTuple):
    """What a step of a role shows.

    Args:
        findings: What stands out.
        asks: Stages of which the inside is worth knowing, the most urgent first.
        is_evidence: Was the step usable at all?
        has_rings: Did its rings tell anything?
        builds_up: Have the last ones shown somebody who may be late, and not yet for sure?
    """

    findings: tuple[Finding, ...] = ()
    asks: tuple[str, ...] = ()
    is_evidence: bool = False
    has_rings: bool = False
    builds_up: bool = False
