"""What a process hands over of its stages, on the Python twin: sums by stage and step until the sealer takes them.

Occurrences count for the step at their own begin, and the union is one of that step: where steps overlap, each has its
own. All of it is done under `banks.lock`.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from ...store import records, summaries
from ...store.summaries import StageSummary
from ..plain_values import plain
from . import banks, clock

STEPS_KEPT, PENDING_MAX = 16, 4096
# A step of at_step, or one that was left by going back, is over after so long without an end; so often is handed over
# what is in no step; so often at most the sealer is woken for a step.
_WORK = frozenset((summaries.TOKENS, summaries.RESPONSES, summaries.PROMPTS, summaries.LONGEST_RESPONSE))
_NO_STEP_YET = -1
_QUIET_NS, _OUTSIDE_NS, _WAKE_NS = 2_000_000_000, 60_000_000_000, 1_000_000_000


class StepSum:
    """What one stage adds up to in one step. Times in ticks, which are ns."""

    __slots__ = (
        "active", "apart", "count", "first", "has_busy", "is_changed", "last", "longest", "longest_response", "own",
        "responses", "since", "step", "tokens", "total",
    )  # fmt: skip

    def __init__(self, step: int) -> None:
        self.step = step
        self.active = self.count = self.since = self.first = self.last = 0
        # Time inside of all occurrences is `total` and `apart`: those that nothing overlaps change the one only.
        self.total = self.longest = self.apart = 0
        self.has_busy = False
        self.is_changed = False  # is there anything that was not taken?
        self.tokens: int | None = None
        self.responses: int | None = None
        self.longest_response: int | None = None
        self.own: set[str] = set()  # what of these the outermost occurrences say themselves

    def ends(self, start: int, end: int, busy: int, is_inner: bool, attributes: Mapping[str, Any] | None) -> None:
        """An occurrence has ended; `busy` 0: all of it was spent inside.

        What is inside of itself on its track changes nothing until the outermost ends, or where that has ended first.
        """
        if not self.active:
            return  # it began before all was forgotten
        self.active -= 1
        if not self.active and end > self.since:
            self.total += end - self.since
            self.apart -= end - self.since
        if attributes and not _WORK.isdisjoint(attributes):
            self._add_work(attributes, is_inner)
        self.is_changed |= not is_inner or self.count > 0
        if is_inner:
            return
        duration = end - start if end > start else 0
        if not self.count or start < self.first:
            self.first = start
        if end > self.last:
            self.last = end
        if duration > self.longest:
            self.longest = duration
        self.count += 1
        self.apart += busy or duration
        if busy:
            self.has_busy = True

    def _add_work(self, attributes: Mapping[str, Any], is_inner: bool) -> None:
        """What a range says that it did: only whole numbers count. What is inside of itself says it only where no
        outermost occurrence does: else the same work would count twice.
        """
        for name in (summaries.TOKENS, summaries.RESPONSES, summaries.LONGEST_RESPONSE):
            is_prompts = name == summaries.RESPONSES and name not in attributes
            amount = _amount(attributes, summaries.PROMPTS if is_prompts else name)
            if amount is None or (is_inner and name in self.own):
                continue
            before = (getattr(self, name) or 0) if is_inner or name in self.own else 0
            setattr(self, name, max(before, amount) if name == summaries.LONGEST_RESPONSE else before + amount)
            if not is_inner:
                self.own.add(name)

    def summary(self, stage: int) -> StageSummary:
        """As it is handed over. Where something is open yet: up to the last end, all since its begin is the union's."""
        total = self.total + (max(0, self.last - self.since) if self.active else 0)
        return StageSummary(
            None if self.step == records.NO_STEP else self.step, stage, self.count, self.first, self.last, total,
            self.total + self.apart if self.has_busy else None, self.longest, self.tokens, self.responses,
            self.longest_response,
        )  # fmt: skip


def _amount(attributes: Mapping[str, Any], name: str) -> int | None:
    value = attributes.get(name)
    if type(value) is not int:
        value = None if value is None or isinstance(value, int) else plain(value)  # numpy's, say
    return value if type(value) is int and 0 <= value < 1 << 63 else None


class StageSums:
    """The sums of one stage, by step; `latest` is that of the step that was asked for last."""

    __slots__ = ("by_step", "id", "latest")

    def __init__(self, stage_id: int) -> None:
        self.id = stage_id
        self.by_step: dict[int, StepSum] = {}
        self.latest = StepSum(_NO_STEP_YET)

    def forget(self) -> None:
        """Nothing has begun."""
        self.by_step.clear()
        self.latest = StepSum(_NO_STEP_YET)

    def of(self, step: int) -> StepSum:
        """That of a step; where there is no room for another one, one that is handed over to nobody."""
        self.latest = kept = self.by_step.get(step) or self._new(step)
        return kept

    def _new(self, step: int) -> StepSum:
        made = StepSum(step)
        if step != records.NO_STEP:
            if len(self.by_step) - (records.NO_STEP in self.by_step) >= STEPS_KEPT and not self._put_away():
                state.lost += 1
                return made
            state.highest_step = max(state.highest_step, step)
        self.by_step[step] = made
        return made

    def _put_away(self) -> bool:
        """Make room for another step: of those in which nothing is open, the one that changed first goes."""
        idle = [kept for step, kept in self.by_step.items() if step != records.NO_STEP and not kept.active]
        if not idle:
            return False
        away = min(idle, key=lambda kept: kept.last)
        del self.by_step[away.step]
        if away.is_changed:
            state.put_away(self.id, away)
        return True


class _State:
    """What is of the whole process."""

    def __init__(self) -> None:
        self.pending: list[tuple[int, StepSum]] = []  # each with the id of its stage
        self.lost = self.highest_step = 0
        self.outside_since, self.woken_at = clock.now(), 0

    def put_away(self, stage: int, away: StepSum) -> None:
        """Over, and to be taken."""
        if len(self.pending) >= PENDING_MAX:
            self.lost += 1
            return
        self.pending.append((stage, away))
        if len(self.pending) == PENDING_MAX // 2:
            banks.ring()


state = _State()


def forget(stages: Iterable[StageSums]) -> None:
    """At a new live file, and in a forked child."""
    global state
    state = _State()
    for stage in stages:
        stage.forget()


def step_is_over(stages: Iterable[StageSums]) -> None:
    """The process's step has moved on: what is over is handed over now and not a second later."""
    at = clock.now()
    if state.woken_at and at - state.woken_at < _WAKE_NS:
        return
    if any(kept.is_changed for stage in stages for kept in stage.by_step.values()):
        state.woken_at = at
        banks.ring()


def take(stages: Iterable[StageSums], step: int | None, everything: bool) -> bytes:
    """The rows of what is to be handed over.

    Args:
        step: In force.
        everything: Also what is not over yet.
    """
    at = clock.now()
    rows = [away.summary(stage).pack() for stage, away in state.pending]
    for stage in stages:
        for kept in stage.by_step.values():
            if kept.is_changed and (everything or _is_due(kept, at, step)):
                rows.append(kept.summary(stage.id).pack())
                kept.is_changed = False
    state.pending.clear()
    if everything or at - state.outside_since >= _OUTSIDE_NS:
        state.outside_since = at
    return b"".join(rows)


def _is_due(kept: StepSum, at: int, step: int | None) -> bool:
    if kept.step == records.NO_STEP:
        return at - state.outside_since >= _OUTSIDE_NS
    if step is not None and kept.step < step:
        return True
    return kept.step != step and at - kept.last >= (_QUIET_NS if kept.step < state.highest_step else _OUTSIDE_NS)
