"""Whose turn it is: which of the requests that wait on a rank is armed next. Pure: no clock, no files."""

from __future__ import annotations

from typing import Collection, Sequence

from ...store.report import QUEUED
from .moves import Now
from .task import Task


def next_task(
    tasks: Collection[Task], step: int | None, room: str, cools: bool, now: Now,
    theirs: Sequence[tuple[str, int]] = (), lead: int = 0,
) -> Task | None:  # fmt: skip
    """The request to arm, if any; those of several ranks are ready then, and wait for the step to be agreed.

    A planned window comes in its own steps, before any other and whether or not the rank cools down.
    `room`: what the budgets have no room for, in words; empty: there is room. `theirs`: profiles of others that are on
    or near: in words, and in how many steps they begin.
    """
    queued = [task for task in tasks if task.state == QUEUED]
    planned = [task for task in queued if task.request.planned is not None]
    waiting = [task for task in queued if task.request.planned is None]
    for task in queued:
        task.wait("waits for the cooldown" if cools and task.request.planned is None else room)
    if room:
        return None
    due = next((task for task in planned if task.is_due(step) and not _waits_for(task, theirs, 0)), None)
    if due is not None or cools:
        return due
    first = min((task for task in waiting if task.needs_agreement), key=Task.turn, default=None)
    for task in waiting:
        if _waits_for(task, theirs, lead):
            continue
        if task.needs_agreement and first is not None:
            task.await_others(first, now)
        elif not any(other.ready_ns is not None for other in waiting):
            return task
    return None


def _waits_for(task: Task, theirs: Sequence[tuple[str, int]], lead: int) -> bool:
    """Does it wait for somebody else's profile? Its reason says so then."""
    words = task.comes_after(theirs, lead)
    if words:
        task.ready_ns, task.reason = None, f"waits for {words}"
    return bool(words)
