"""Collectives of simulated processes, and in which steps a judge gets to see them."""

from __future__ import annotations

from collections import deque
from typing import Iterator, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt

from ...judging.evidence import MEET, RECEIVE, SEND, Collectives, Peer, RoleStep
from .shape import ALWAYS, JobShape

Vector = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
KINDS = (MEET, SEND, RECEIVE)
FIRST_RINGS, RINGS_EVERY, RINGS_EVERY_S = 20, 100, 60.0


class _Entries(NamedTuple):
    """What some members did in one collective of each of their groups."""

    member: Whole
    group: Whole
    sequence: Whole
    entered_s: Vector
    left_s: Vector
    stage: str
    kind: int


class SimulatedRings:
    """The flight recorders of a role. They are dumped after 20 steps, then every 100 steps or 60 s, and when asked for.

    Steps that a ring still holds are then handed over again, with their collectives.

    Attributes:
        is_asked: Are they asked for?
    """

    def __init__(self, shape: JobShape, peers: Sequence[Peer]) -> None:
        self.is_asked = False
        self._shape, self._ranks = shape, [peer.rank or 0 for peer in peers]
        self._entries: list[_Entries] = []
        self._groups: dict[int, tuple[int, ...]] = {}
        # Groups that meet have numbers below `_first_pair`, those of a sender and a receiver from there on.
        self._first_pair = 4 * len(peers)
        self._next = np.zeros((len(KINDS), self._first_pair + len(peers) ** 2), np.int64)
        self._held: deque[RoleStep] = deque(maxlen=shape.ring_steps)
        self._dumped_s: float | None = None

    def add(self, stage: str, kind: int, member: Whole, group: Whole, entered_s: Vector, left_s: Vector) -> None:
        """One collective of each of these groups."""
        if self._shape.has_rings:
            sequence = self._next[kind, group]
            self._next[kind, group] = sequence + 1
            self._entries.append(_Entries(member, group, sequence, entered_s, left_s, stage, kind))

    def pairs_of(self, senders: Whole, receivers: Whole) -> Whole:
        """The number of each pair, and direction, as a group."""
        return self._first_pair + senders * len(self._ranks) + receivers

    def of_step(self, stages: Sequence[str], offsets_s: Vector) -> Collectives | None:
        """What was entered since this was asked last.

        Args:
            stages: Of the step.
            offsets_s: (M,) by how much each clock is wrong.
        """
        entries, self._entries = self._entries, []
        if not entries:
            return None
        member, group, sequence = (np.concatenate([part[at] for part in entries]) for at in range(3))
        entered, left = (np.concatenate([part[at] for part in entries]) + offsets_s[member] for at in (3, 4))
        for of in np.setdiff1d(group, list(self._groups)).tolist():
            pair = divmod(of - self._first_pair, len(self._ranks))
            inside = pair if of >= self._first_pair else np.unique(member[group == of]).tolist()
            self._groups[of] = tuple(self._ranks[at] for at in inside)
        counts = [len(part.member) for part in entries]
        kinds = np.repeat([part.kind for part in entries], counts)
        return Collectives(
            member, group, sequence, entered,
            left if self._shape.knows_left else np.full(len(left), np.nan),
            np.repeat([stages.index(part.stage) for part in entries], counts), dict(self._groups),
            kind=kinds if (kinds != MEET).any() else None,
        )  # fmt: skip

    def handed_over(self, step: RoleStep) -> Iterator[RoleStep]:
        """What a judge gets when this step is over."""
        if self._shape.rings == ALWAYS or step.collectives is None:
            yield step
            return
        self._held.append(step)
        now_s, later = float(np.nanmax(step.left_s)), step.step - FIRST_RINGS
        is_time = self._dumped_s is not None and now_s - self._dumped_s >= RINGS_EVERY_S
        if self.is_asked or (later >= 0 and later % RINGS_EVERY == 0) or (later > 0 and is_time):
            self._dumped_s, self.is_asked = now_s, False
            yield from list(self._held)
        else:
            yield step._replace(collectives=None)
