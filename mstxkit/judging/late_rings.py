"""Entries into collectives come later than the steps they belong to: steps that were closed are kept for them a while.

A ring is read now and then, by each process within a second or two of the others. Once nothing more has come for a
while, the steps of which there are entries are given once more, with their collectives.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Iterator, Mapping

import numpy as np

from ..store import collectives
from . import lateness
from .evidence import RoleStep

if TYPE_CHECKING:
    from .evidence import Seconds

    Rows = lateness.Rows

# Closed steps that are kept of a role: as long as it has sent no entries, and then; bytes of them; ring rows that wait,
# and groups that are known.
STEPS_AT_FIRST = 24
STEPS_AT_MOST, BYTES_AT_MOST, ROWS_AT_MOST, GROUPS_AT_MOST = 512, 96 << 20, 1 << 22, 1 << 16
_SETTLES_S, _WAITS_AT_MOST_S = 2.5, 15.0
_NS, _TIMES_AN_ENTRY = 1e9, 8


class _OfRole:
    """The closed steps of a role, and what has come of its members."""

    def __init__(self) -> None:
        self.steps: deque[RoleStep] = deque()
        self.at_most = STEPS_AT_FIRST
        self.waiting: list[tuple[str, Rows]] = []
        self.first_s = self.last_s = 0.0


class LateRings:
    """Of all roles. One thread at a time.

    Attributes:
        groups: Number to ranks, as far as they are known.
    """

    def __init__(self) -> None:
        self._roles: dict[str, _OfRole] = {}
        self.groups: dict[int, tuple[int, ...]] = {}
        self._rows, self._each = 0, ROWS_AT_MOST

    def learn_groups(self, head: Mapping[str, Any]) -> None:
        """What the head of a batch says of groups."""
        for number, ranks in collectives.groups_in(head).items():
            if len(self.groups) < GROUPS_AT_MOST:
                self.groups[number] = ranks

    def closed(self, step: RoleStep) -> None:
        """A step was judged: kept for entries that come yet."""
        of_role = self._roles.setdefault(step.role, _OfRole())
        of_role.steps.append(step)
        entries_bytes = 0 if step.collectives is None else _TIMES_AN_ENTRY * step.collectives.entered_s.nbytes
        at_most = min(of_role.at_most, max(1, BYTES_AT_MOST // (9 * step.entered_s.nbytes + entries_bytes + 1024)))
        while len(of_role.steps) > at_most:
            of_role.steps.popleft()

    def forget_steps(self) -> None:
        """Steps are counted anew. Who meets in which group stays known."""
        self._roles.clear()
        self._rows = 0

    def put(self, role: str, process: str, entries: Rows, entered_s: Seconds, now_s: float) -> None:
        """What has come of one process.

        Args:
            entries: As `lateness.rows_in` gives them.
            entered_s: (N,) when they were entered, on the clock of the steps.
        """
        while self._rows + min(len(entries), self._each) > ROWS_AT_MOST and self._each > 1:
            self._shorten()
        entries, entered_s = entries[-self._each :], entered_s[-self._each :]
        if self._rows + len(entries) > ROWS_AT_MOST:
            return
        of_role = self._roles.setdefault(role, _OfRole())
        of_role.at_most = STEPS_AT_MOST
        aligned = entries.copy()
        entered_ns = np.round(entered_s * _NS).astype(np.int64)
        aligned["left_ns"] = np.where(
            entries["left_ns"] > 0, entries["left_ns"] - entries["entered_ns"] + entered_ns, 0
        )
        aligned["entered_ns"] = entered_ns
        of_role.waiting.append((process, aligned))
        of_role.first_s, of_role.last_s = of_role.first_s or now_s, now_s
        self._rows += len(entries)

    def _shorten(self) -> None:
        """Keep the newer half of each, as of shorter rings: whoever was left out would hold all others up unseen."""
        every = [of_role for of_role in self._roles.values() if of_role.waiting]
        self._each = min(self._each, max((len(rows) for of in every for _, rows in of.waiting), default=1)) // 2 or 1
        for of_role in every:
            of_role.waiting = [(process, rows[-self._each :].copy()) for process, rows in of_role.waiting]
        self._rows = sum(len(rows) for of_role in every for _, rows in of_role.waiting)

    def is_due(self, now_s: float) -> bool:
        """Is there anything that `due` would give?"""
        return any(_is_due(of_role, now_s) for of_role in self._roles.values())

    def due(self, now_s: float, at_once: bool = False) -> Iterator[RoleStep]:
        """Steps that were closed before, with their collectives; the first step first."""
        for of_role in self._roles.values():
            if of_role.waiting and (at_once or _is_due(of_role, now_s)):
                waiting, of_role.waiting = of_role.waiting, []
                of_role.first_s = 0.0
                self._rows -= sum(len(rows) for _, rows in waiting)
                self._each = ROWS_AT_MOST
                yield from self._joined(list(of_role.steps), waiting)

    def _joined(self, steps: list[RoleStep], waiting: list[tuple[str, Rows]]) -> Iterator[RoleStep]:
        """Of the newest steps, as far back as the members are the same."""
        alike = [step for step in steps if step.members == steps[-1].members]
        stages = list(dict.fromkeys(stage for step in alike for stage in step.stages))
        places = {peer.process: at for at, peer in enumerate(alike[-1].members)} if alike else {}
        parts = [
            lateness.located(places[process], rows, _intervals(alike, places[process], stages))
            for process, rows in waiting
            if process in places
        ]
        entries = lateness.joined(parts)
        for step in alike:
            entered = lateness.of_step(entries, step.step, self.groups)
            if entered is not None and len(np.unique(entered.member)) > 1:
                own = np.array([_place(step.stages, stage) for stage in stages] + [-1])
                rings = entered._replace(stage=own[entered.stage])
                yield step._replace(collectives=lateness.together(step.collectives, rings))


def _is_due(of_role: _OfRole, now_s: float) -> bool:
    if not of_role.waiting:
        return False
    return now_s - of_role.last_s >= _SETTLES_S or abs(now_s - of_role.first_s) >= _WAITS_AT_MOST_S


def _place(stages: tuple[str, ...], stage: str) -> int:
    return stages.index(stage) if stage in stages else -1


def _intervals(steps: list[RoleStep], member: int, stages: list[str]) -> Rows:
    """When one member was in which stage of which step."""
    places = {stage: at for at, stage in enumerate(stages)}
    rows = [
        (step.step, places[stage], round(entered * _NS), round(left * _NS))
        for step in steps
        for stage, entered, left in zip(step.stages, step.entered_s[member], step.left_s[member])
        if np.isfinite(entered) and np.isfinite(left)
    ]
    return np.array(rows, dtype=lateness.INTERVAL)
