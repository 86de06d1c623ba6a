"""Stages, interned once, and what they add up to.

They do by step: for `stage_times`; and until the sealer takes it, for who judges the job. Occurrences count for the
step at their own begin, and the time of a step is the union of all that are open. All of it is done under
`banks.lock`. An occurrence is among those that are open, or its end is in the sums: never in between.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from types import SimpleNamespace
from typing import Any, Callable

from ...host import names
from ...store import livefile, records, summaries
from ...store.summaries import StageSummary
from ..plain_values import plain
from . import banks, tracks

STEPS_KEPT, PENDING_MAX, _TIMES_KEPT = 16, 4096, 8
# A step of at_step, or one that was left by going back, is over after so long without an end; so often is handed over
# what is in no step; so often at most the sealer is woken for a step.
_QUIET_NS, _OUTSIDE_NS, _WAKE_NS = 2_000_000_000, 60_000_000_000, 1_000_000_000
_WORK = (summaries.TOKENS, summaries.RESPONSES, summaries.LONGEST_RESPONSE)

interned: dict[str, StageTotal] = {}
seen: dict[str, None] = {}  # keys of those that have begun in this process
_waits: dict[str, str] = {}
state: Any = None  # of the whole process: what is to be taken, with the number of its stage; what was lost; and when


class StepSum:
    """What one stage adds up to in one step. Times in ticks, which are ns."""

    since = count = first = last = total = longest = busy = 0
    has_busy = is_changed = False  # `is_changed`: is there anything that was not taken?

    def __init__(self, step: int) -> None:
        self.step = step
        self.open: set[Any] = set()
        # What outermost occurrences say that they did, and what those do that are inside of themselves.
        self.work: dict[str, int] = defaultdict(int)
        self.inner_work: dict[str, int] = defaultdict(int)

    def ends(self, opened: Any) -> None:
        """An occurrence has ended; without `busy` all of it was spent inside.

        What is inside of itself on its track changes nothing until the outermost ends, or where that has ended first.
        """
        if opened not in self.open:
            return  # it began before all was forgotten
        start, at, busy, is_outer = opened.start, opened.end, opened.busy, not opened.is_inner
        duration, alone = max(at - start, 0), max(at - self.since, 0) if len(self.open) == 1 else 0
        # No call from here on until it is not open any more: see `interruptions`.
        self.total += alone
        self.is_changed = self.is_changed or is_outer or self.count > 0
        if is_outer:
            self.first = start if not self.count or start < self.first else self.first
            self.last = at if at > self.last else self.last
            self.longest = duration if duration > self.longest else self.longest
            self.count += 1
            self.busy += busy or duration
            self.has_busy = self.has_busy or busy > 0
        self.open.discard(opened)
        if opened.attributes:
            self._add_work(opened.attributes, opened.stage.key, is_outer)

    def _add_work(self, attributes: dict[str, Any], stage: str, is_outer: bool) -> None:
        """What an occurrence says that it did: only whole numbers count."""
        waits_for = attributes.get(summaries.WAITS_FOR)
        if waits_for is not None:
            _waits[stage] = waits_for if type(waits_for) is str else ""
        for name in _WORK:
            is_prompts = name == summaries.RESPONSES and name not in attributes
            amount = attributes.get(summaries.PROMPTS if is_prompts else name)
            if not isinstance(amount, int):
                amount = plain(amount)  # numpy's, say
            if type(amount) is int and 0 <= amount < 1 << 63:
                work = self.work if is_outer else self.inner_work
                work[name] = max(work[name], amount) if name == summaries.LONGEST_RESPONSE else work[name] + amount

    def pack(self, stage: int) -> bytes:
        """As it is handed over. Where something is open yet: up to the last end, all since its begin is the union's."""
        total = self.total + (max(0, self.last - self.since) if self.open else 0)
        work = {**self.inner_work, **self.work}  # of both only that of outermost ones: the same would count twice
        return StageSummary(
            None if self.step == records.NO_STEP else self.step, stage, self.count, self.first, self.last, total,
            self.busy if self.has_busy else None, self.longest, *(work.get(name) for name in _WORK),
        ).pack()  # fmt: skip

    def is_due(self, at: int) -> bool:
        """Is its step over?"""
        if self.step in (records.NO_STEP, tracks.step):
            return bool(self.step == records.NO_STEP and at - state.outside_since >= _OUTSIDE_NS)
        quiet_ns = _QUIET_NS if self.step < state.highest_step else _OUTSIDE_NS
        return self.step < tracks.step != records.NO_STEP or at - self.last >= quiet_ns


class StageTotal:
    """A stage of this process, interned."""

    def __init__(self, stage_id: int, key: str) -> None:
        self.id, self.key = stage_id, key
        self.entry = livefile.STAGE, stage_id, key.encode("utf-8", "backslashreplace")
        self.sums: dict[int, StepSum] = {}  # of what is recorded
        # What is open, recorded or not: since when is any, and in which step did that one begin?
        self.open: set[Any] = set()
        self.since = self.step = 0
        self.times: dict[int, int] = defaultdict(int)  # ticks by step, of the last few

    def begins(self, opened: Any) -> None:
        """One more occurrence."""
        step = opened.w1 >> 32
        seen.setdefault(self.key)
        with banks.lock:
            if opened.live is not None:
                kept = self._sum_of(step)
                kept.since = kept.since if kept.open else opened.start
                kept.open.add(opened)
            if not self.open:
                self.since, self.step = opened.start, step
            self.open.add(opened)

    def ends(self, opened: Any) -> None:
        """One less; the last of those that overlap adds their union to the step in which the first began."""
        with banks.lock:
            if opened.w1 >> 32 in self.sums:
                self.sums[opened.w1 >> 32].ends(opened)
            if opened in self.open:
                if len(self.open) == 1:
                    self.times[self.step] += opened.end - self.since  # no call in between: see `interruptions`
                self.open.discard(opened)
                for oldest in tuple(self.times)[:-_TIMES_KEPT]:
                    self.times.pop(oldest, None)

    def _sum_of(self, step: int) -> StepSum:
        """Its sum of that step; where there is no room for another one, one that is handed over to nobody."""
        if step not in self.sums and step != records.NO_STEP:
            if len(self.sums) - (records.NO_STEP in self.sums) >= STEPS_KEPT and not self._put_away():
                state.lost += 1
                return StepSum(step)
            state.highest_step = max(state.highest_step, step)
        # A signal's handler may have been faster.
        return self.sums.get(step) or self.sums.setdefault(step, StepSum(step))

    def _put_away(self) -> bool:
        """Make room for another step: of those in which nothing is open, the one that changed first goes."""
        idle = [kept for kept in tuple(self.sums.values()) if kept.step != records.NO_STEP and not kept.open]
        if not idle:
            return False
        away = min(idle, key=lambda kept: kept.last)
        if away.open or away.step not in self.sums or self.sums[away.step] is not away:
            return self._put_away()  # a signal's handler was faster
        del self.sums[away.step]
        if away.is_changed and len(state.pending) >= PENDING_MAX:
            state.lost += 1
        elif away.is_changed:
            state.pending.append((self.id, away))
            if len(state.pending) == PENDING_MAX // 2:
                banks.ring()
        return True


def intern_stage(key: str) -> StageTotal | None:
    """The stage of that key; None where there is no room for another one."""
    stage = interned.get(key)
    is_numbered = any(digit in key for digit in "0123456789")
    if stage is None and len(interned) < (records.NUMBERED_STAGES if is_numbered else records.STAGE_MAX):
        stage = interned[key] = StageTotal(len(interned) + 1, key)
    if stage is None:
        names.tell_of_too_many_stages(key)
    return stage


def forget_sums() -> None:
    """At a new live file."""
    global state
    state = SimpleNamespace(pending=[], lost=0, highest_step=0, outside_since=banks.now(), woken_at=-_WAKE_NS)
    for stage in interned.values():
        stage.sums.clear()


forget_sums()


def _changed_sums() -> list[tuple[StageTotal, StepSum]]:
    stages = tuple(interned.values())
    return [(stage, kept) for stage in stages for kept in tuple(stage.sums.values()) if kept.is_changed]


def step_is_over() -> None:
    """The process's step has moved on: what is over is handed over now and not a second later."""
    at = banks.now()
    if at - state.woken_at >= _WAKE_NS and _changed_sums():
        state.woken_at = at
        banks.ring()


def take_summaries(everything: bool = False) -> bytes:
    """What is to be handed over of the stages of steps that are over: rows of 40 bytes, `store/summaries.py`."""
    with banks.Turn():
        at = banks.now()
        rows = [away.pack(stage_id) for stage_id, away in state.pending]
        for stage, kept in _changed_sums():
            if everything or kept.is_due(at):
                rows.append(kept.pack(stage.id))
                kept.is_changed = False
        state.pending.clear()
        if everything or at - state.outside_since >= _OUTSIDE_NS:
            state.outside_since = at
        return b"".join(rows)


# Keys of all stages, in the order of their ids from 1; and of those that have begun, in the order of their first begin.
stage_keys: Callable[[], list[str]] = partial(list, interned)
stages_seen: Callable[[], list[str]] = partial(list, seen)
# Key of each stage whose ranges have said `waits_for`, to whom; "" where that was no text.
stage_waits: Callable[[], dict[str, str]] = partial(dict, _waits)
