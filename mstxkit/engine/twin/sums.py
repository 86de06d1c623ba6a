"""What a process hands over of its stages, on the Python twin: sums by stage and step until the sealer takes them.

Occurrences count for the step at their own begin, and the union is one of that step: where steps overlap, each has its
own. All of it is done under `banks.lock`.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple

from ...store import records, summaries
from ...store.summaries import StageSummary
from ..plain_values import plain
from . import banks, clock

STEPS_KEPT, PENDING_MAX = 16, 4096
# A step of at_step, or one that was left by going back, is over after so long without an end; so often is handed over
# what is in no step; so often at most the sealer is woken for a step.
_QUIET_NS, _OUTSIDE_NS, _WAKE_NS = 2_000_000_000, 60_000_000_000, 250_000_000


class StepSum:
    """What one stage adds up to in one step. Times in ticks, which are ns."""

    __slots__ = (
        "active", "busy", "count", "first", "has_busy", "is_changed", "last", "longest", "longest_response",
        "responses", "since", "step", "tokens", "total",
    )  # fmt: skip

    def __init__(self, step: int) -> None:
        self.step = step
        self.active = self.count = self.since = self.first = self.last = 0
        self.total = self.longest = self.busy = 0
        self.has_busy = self.is_changed = False
        self.tokens: int | None = None
        self.responses: int | None = None
        self.longest_response: int | None = None

    def ends(self, start: int, end: int, busy: int, is_inner: bool) -> None:
        """An occurrence has ended; `busy` 0: all of it was spent inside.

        What is inside of itself on its track changes nothing until the outermost ends.
        """
        end = max(start, end)
        self.active -= 1
        if not self.active:
            self.total += max(0, end - self.since)
        if is_inner:
            return
        self.first = min(self.first, start) if self.count else start
        self.last = max(self.last, end)
        self.longest = max(self.longest, end - start)
        self.count += 1
        self.busy += busy or end - start
        self.has_busy |= busy != 0
        self.is_changed = state.is_changed = True

    def add_work(self, attributes: Mapping[str, Any]) -> None:
        """What a range says that it did: only whole numbers count."""
        tokens, longest = _amount(attributes, summaries.TOKENS), _amount(attributes, summaries.LONGEST_RESPONSE)
        has_responses = summaries.RESPONSES in attributes
        responses = _amount(attributes, summaries.RESPONSES if has_responses else summaries.PROMPTS)
        if tokens is not None:
            self.tokens = (self.tokens or 0) + tokens
        if responses is not None:
            self.responses = (self.responses or 0) + responses
        if longest is not None:
            self.longest_response = max(self.longest_response or 0, longest)

    def summary(self, stage: int) -> StageSummary:
        """As it is handed over. Where something is open yet: up to the last end, all since its begin is the union's."""
        total = self.total + (max(0, self.last - self.since) if self.active else 0)
        return StageSummary(
            None if self.step == records.NO_STEP else self.step, stage, self.count, self.first, self.last, total,
            self.busy if self.has_busy else None, self.longest, self.tokens, self.responses, self.longest_response,
        )  # fmt: skip


def _amount(attributes: Mapping[str, Any], name: str) -> int | None:
    value = attributes.get(name)
    if type(value) is not int:
        value = None if value is None or isinstance(value, int) else plain(value)  # numpy's, say
    return value if type(value) is int and 0 <= value < 1 << 63 else None


class StageSums:
    """The sums of one stage, by step."""

    __slots__ = ("by_step", "stage")

    def __init__(self, stage: int) -> None:
        self.stage = stage
        self.by_step: dict[int, StepSum] = {}

    def begins(self, step: int, start: int) -> None:
        """One more occurrence."""
        found = self.by_step.get(step) or self._new(step)
        if found is not None:
            if not found.active:
                found.since = start
            found.active += 1

    def ends(
        self, step: int, start: int, end: int, busy: int, is_inner: bool, attributes: Mapping[str, Any] | None
    ) -> None:
        """One less."""
        found = self.by_step.get(step)
        if found is None or not found.active:
            return
        found.ends(start, end, busy, is_inner)
        if attributes:
            found.add_work(attributes)

    def _new(self, step: int) -> StepSum | None:
        if step != records.NO_STEP:
            if len(self.by_step) - (records.NO_STEP in self.by_step) >= STEPS_KEPT and not self._put_away():
                state.lost += 1
                return None
            state.highest_step = max(state.highest_step, step)
        self.by_step[step] = made = StepSum(step)
        return made

    def _put_away(self) -> bool:
        """Make room for another step: of those in which nothing is open, the one that changed first goes."""
        idle = [kept for step, kept in self.by_step.items() if step != records.NO_STEP and not kept.active]
        if not idle:
            return False
        away = min(idle, key=lambda kept: kept.last)
        del self.by_step[away.step]
        if away.is_changed:
            state.put_away(_Pending(self.stage, away))
        return True


class _Pending(NamedTuple):
    stage: int
    sum: StepSum


class _State:
    """What is of the whole process."""

    def __init__(self) -> None:
        self.pending: list[_Pending] = []
        self.lost = self.highest_step = 0
        self.is_changed = False
        self.outside_since, self.woken_at = clock.now(), 0

    def put_away(self, pending: _Pending) -> None:
        """Over, and to be taken."""
        if len(self.pending) >= PENDING_MAX:
            self.lost += 1
            return
        self.pending.append(pending)
        if len(self.pending) == PENDING_MAX // 2:
            banks.ring()


state = _State()


def forget(stages: Iterable[StageSums]) -> None:
    """At a new live file, and in a forked child."""
    global state
    state = _State()
    for stage in stages:
        stage.by_step.clear()


def step_is_over() -> None:
    """The process's step has moved on: what is over is handed over now and not a second later."""
    at = clock.now()
    if state.is_changed and (not state.woken_at or at - state.woken_at >= _WAKE_NS):
        state.woken_at = at
        banks.ring()


def take(stages: Iterable[StageSums], step: int | None, everything: bool) -> bytes:
    """The rows of what is to be handed over.

    Args:
        step: In force.
        everything: Also what is not over yet.
    """
    at = clock.now()
    rows = [pending.sum.summary(pending.stage).pack() for pending in state.pending]
    left = False
    for stage in stages:
        for kept in stage.by_step.values():
            if kept.is_changed and (everything or _is_due(kept, at, step)):
                rows.append(kept.summary(stage.stage).pack())
                kept.is_changed = False
            left |= kept.is_changed
    state.pending.clear()
    state.is_changed = left
    if everything or at - state.outside_since >= _OUTSIDE_NS:
        state.outside_since = at
    return b"".join(rows)


def _is_due(kept: StepSum, at: int, step: int | None) -> bool:
    if kept.step == records.NO_STEP:
        return at - state.outside_since >= _OUTSIDE_NS
    if step is not None and kept.step < step:
        return True
    return kept.step != step and at - kept.last >= (_QUIET_NS if kept.step < state.highest_step else _OUTSIDE_NS)
