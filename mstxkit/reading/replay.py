"""A run's steps gone through once more with other times of its members, by the judge's replay: what they would take.

Who hands over to whom stays as it was, among members and from role to role.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from ..judging import replay
from ..judging.inside import entries_of
from ..judging.measuring import HANDED
from ..judging.replay import Course, Less
from .role_runs import RoleRun, Seconds


def lengths_s(run: RoleRun, own_s: Seconds) -> Seconds:
    """(T,) seconds of each step, if own times were these and nothing had to be waited for that is handed over.

    Args:
        run: The role's steps.
        own_s: (T, M, K) own seconds of each member in each piece; NaN counts as none.
    """
    held_s = np.where(run.waits, 0.0, run.wait_s)
    return run.length_s() - _won_s(run, [run], run.own_s - own_s + held_s)


def saved_s(runs: Sequence[RoleRun], run: RoleRun, own_s: Seconds, since: int, until: int) -> tuple[float, float]:
    """How long a step of these took, and how much shorter it would have been: means, in seconds.

    Over is a step when the last member is done with it; in a role in which nobody waits, when all are, in the mean.

    Args:
        runs: Of all roles.
        run: The role's steps.
        own_s: As of `lengths_s`.
        since, until: Places of the first step and of the one after the last.
    """
    took = (_lengths_in_the_mean_s(run) if run.is_free else run.length_s())[since:until]
    took = took[np.isfinite(took)]
    is_fed = any(feed is not None for each in runs for cut in each.cut for feed in cut.feeds)
    won = _won_s(run, runs if is_fed else [run], run.own_s - own_s)[since:until]
    return float(took.mean()) if len(took) else 0.0, float(won.mean()) if len(won) else 0.0


def _lengths_in_the_mean_s(run: RoleRun) -> Seconds:
    """(T, M) seconds from when each member was done with the step before to when it is done with this one."""
    ended = np.fmax.reduce(run.done_s, axis=2)
    lengths = np.diff(ended, axis=0, prepend=np.fmin.reduce(run.came_s[:1], axis=2))
    lengths[1:][np.diff(run.steps) != 1] = np.nan
    return np.asarray(lengths)


def _won_s(run: RoleRun, runs: Sequence[RoleRun], less_s: Seconds) -> Seconds:
    """(T,) by how much shorter each step would be with so much less of (T, M, K) own times."""
    every = sorted((course for each in runs for course in _courses(each)), key=lambda c: float(np.nanmedian(c.ended_s)))
    own = _courses(run)
    of_steps = (each[run.cells(at)] for at, each in enumerate(np.nan_to_num(less_s)))
    less = {course.place: _less(course, each) for course, each in zip(own, of_steps) if each.any()}
    leads = replay.earlier(every, less) if less else {}
    won = np.zeros(len(own))
    for at, course in enumerate(own):
        if course.place in leads:
            lead = np.nan_to_num(leads[course.place])
            won[at] = _over_s(run, course.ended_s) - _over_s(run, course.ended_s - lead[:, -1])
            won[at] -= _over_s(run, course.began_s) - _over_s(run, course.began_s - lead[:, 0])
    return won


def _over_s(run: RoleRun, at_s: Seconds) -> float:
    return float(np.nanmean(at_s) if run.is_free else np.nanmax(at_s))


def _less(course: Course, less_s: Seconds) -> list[Less]:
    is_inside = (course.mode == HANDED) & (course.entered is not None)
    return [Less(at, less_s[:, at], bool(is_inside[at])) for at in np.flatnonzero(less_s.any(axis=0)).tolist()]


def _courses(run: RoleRun) -> list[Course]:
    """Each step as the judge's replay takes it."""
    return run.once("courses", lambda: [_course(run, at) for at in range(len(run.steps))])


def _course(run: RoleRun, at: int) -> Course:
    (step, pieces, _, feeds, *_), rows, cells = run.cut[at], run.rows_of[at], run.cells(at)
    is_handed, rings = (run.mode == HANDED).any(), step.collectives
    entered = entries_of(step, rings) if is_handed and rings is not None else None
    came_s, done_s, own_s = (part[at][cells] for part in (run.came_s, run.done_s, run.own_s))
    columns, meets = cells[1].ravel(), run.labels[cells].T
    in_a_row = (run.rows[piece] for piece in columns.tolist())
    return Course(
        run.role, step.step, step.members, pieces.kinds, pieces.stages, run.mode[columns],
        came_s, done_s, own_s, tuple(None if (labels == labels[0]).all() else labels for labels in meets), feeds,
        tuple(None if row is None else row[rows] for row in in_a_row), np.fmin.reduce(came_s, axis=1),
        np.fmax.reduce(done_s, axis=1), entered, np.zeros((0, 0)),
    )  # fmt: skip
