"""Entries that Python code makes come with the batches of their steps: when a step is closed, they are joined to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Sequence

import numpy as np

from ..store import collectives
from . import lateness
from .evidence import CALL, Collectives, RoleStep

if TYPE_CHECKING:
    from .evidence import Seconds, Whole

    Rows = lateness.Rows

# Of all roles: entries that wait for their steps to be closed, and processes that are told apart.
ROWS_AT_MOST, _PROCESSES_AT_MOST = 1 << 21, 1 << 17
_ENTRY = np.dtype(
    [("process", "<i8"), ("key", "<u8"), ("kind", "<i8"), ("stage", "<i8"), ("flags", "<i8")]
    + [(name, "<f8") for name in ("entered_s", "left_s", "waited_s")]
)
_US = 1e6


class EnteredSteps:
    """Of all roles. One thread at a time."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._waiting: dict[str, list[Rows]] = {}
        self._rows = 0
        self._begun: set[int] = set()

    def put(self, role: str, process: str, rows: Rows, entered_s: Seconds, stages: Whole) -> None:
        """What one process has called.

        Args:
            rows: As `lateness.rows_in` gives them.
            entered_s: (N,) when they were entered, on the clock of the steps.
            stages: (N,) in which stage, as the role counts its stages; below 0: in none.
        """
        if len(self._numbers) >= _PROCESSES_AT_MOST:
            self._numbers, self._waiting, self._begun, self._rows = {}, {}, set(), 0
        entries = np.zeros(len(rows), _ENTRY)
        entries["process"] = self._numbers.setdefault(process, len(self._numbers))
        entries["key"] = rows["group"].astype(np.uint64) << np.uint64(32) | rows["sequence"]
        entries["kind"], entries["stage"], entries["flags"] = lateness.kinds_of(rows), stages, rows["flags"]
        took_s = (rows["left_ns"] - rows["entered_ns"]) / 1e9
        is_over = rows["left_ns"] > 0
        entries["entered_s"], entries["left_s"] = entered_s, np.where(is_over, entered_s + took_s, np.nan)
        entries["waited_s"] = np.where(is_over, np.minimum(rows["size_kib"] / _US, took_s), np.nan)
        self._waiting.setdefault(role, []).append(entries)
        self._rows += len(rows)
        if self._rows > ROWS_AT_MOST:
            self._shorten()

    def _shorten(self) -> None:
        """Keep the newer half, by time: whoever was left out alone would be missing where others meet."""
        every = {role: np.concatenate(parts) for role, parts in self._waiting.items()}
        since_s = np.median(np.concatenate([entries["entered_s"] for entries in every.values()]))
        self._waiting = {role: [entries[entries["entered_s"] > since_s]] for role, entries in every.items()}
        self._rows = sum(len(entries) for parts in self._waiting.values() for entries in parts)

    def of(self, step: RoleStep, stages: Sequence[int], groups: Mapping[int, tuple[int, ...]]) -> Collectives | None:
        """What belongs to a step that is closed now, the next of its role: all up to the end of each member's, since
        the end of the one before; but what another one comes to later. None: nothing.

        Args:
            stages: Of each stage of the step its number, as `put` has them.
            groups: Number to ranks, as far as they are known.
        """
        parts = self._waiting.get(step.role)
        if not parts:
            return None
        waiting, (member, since_s, until_s) = np.concatenate(parts), self._members(step)
        is_over = waiting["entered_s"] <= until_s[waiting["process"]]
        is_over &= ~np.isin(waiting["key"], waiting["key"][~is_over])
        self._waiting[step.role] = [waiting[~is_over]]
        self._rows -= int(is_over.sum())
        taken = waiting[is_over & (waiting["entered_s"] >= since_s[waiting["process"]])]
        places = np.full(max([*stages, *taken["stage"].tolist(), 0]) + 2, -1)
        places[list(stages)] = np.arange(len(stages))
        entered = Collectives(
            member[taken["process"]], (taken["key"] >> np.uint64(32)).astype(np.int64),
            (taken["key"] & np.uint64(0xFFFFFFFF)).astype(np.int64), taken["entered_s"], taken["left_s"],
            places[np.maximum(taken["stage"], -1)], groups, CALL, taken["kind"], taken["waited_s"],
            taken["flags"] & collectives.HOST_ALONE > 0,
        )  # fmt: skip
        return entered if len(taken) else None

    def _members(self, step: RoleStep) -> tuple[Whole, Seconds, Seconds]:
        """By number of a process: which member it is, from when on what it entered is of this step, and until when. In
        the first step of a process what came before its first stage is of none.
        """
        numbers = np.array([self._numbers.get(peer.process, -1) for peer in step.members], np.int64)
        is_known = numbers >= 0
        member, since_s, until_s = (np.full(len(self._numbers), value) for value in (-1.0, -np.inf, -np.inf))
        member[numbers[is_known]] = np.flatnonzero(is_known)
        until_s[numbers[is_known]] = np.fmax.reduce(step.left_s[is_known], axis=1, initial=-np.inf)
        is_new = is_known & ~np.isin(numbers, list(self._begun))
        since_s[numbers[is_new]] = np.fmin.reduce(step.entered_s[is_new], axis=1, initial=np.inf)
        self._begun.update(numbers.tolist())
        return member.astype(np.int64), since_s, until_s
