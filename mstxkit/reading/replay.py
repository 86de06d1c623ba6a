"""A run's steps gone through once more with other times of its members, by the judge's replay: what they would take.

Who hands over to whom stays as it was, among members and from role to role.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import numpy as np

from ..judging import replay
from ..judging.inside import entries_of
from ..judging.measuring import HANDED
from ..judging.replay import Less, Place
from .role_runs import RoleRun, Seconds, Whole

# What is taken away of each step.
Taken = Mapping[Place, Sequence[Less]]


def take_away(run: RoleRun, less_s: Seconds, is_inside: bool = False) -> Taken:
    """So much less of own times, or of those between collectives: (T, M, K) seconds, NaN none."""
    of_steps = (each[run.cells(at)] for at, each in enumerate(np.nan_to_num(less_s)))
    return {
        course.place: [
            Less(at, each[:, at], is_inside or bool(course.mode[at] == HANDED and course.entered is not None))
            for at in np.flatnonzero(each.any(axis=0)).tolist()
        ]
        for course, each in zip(run.courses, of_steps)
        if each.any()
    }


def lengths_s(run: RoleRun, own_s: Seconds) -> Seconds:
    """(T,) seconds of each step, if own times were these and nothing had to be waited for that is handed over.
    `own_s`: (T, M, K) own seconds of each member in each piece; NaN counts as none.
    """
    held_s = np.where(run.waits, 0.0, run.wait_s)
    return run.lengths_s - _won_s(run, [run], take_away(run, run.own_s - own_s + held_s))


def saved_s(runs: Sequence[RoleRun], run: RoleRun, less: Taken, steps: Sequence[int] | Whole) -> tuple[float, float]:
    """How long a step of these took, and how much shorter it would have been: means, in seconds.

    Over is a step when the last member is done with it; in a role in which nobody waits, when all are, in the mean.

    `less`: what is taken away of the `steps` of `run`, places; `runs`: of all roles.
    """
    is_fed = any(feed is not None for each in runs for course in each.courses for feed in course.feeds)
    won = _won_s(run, runs if is_fed else [run], less)[np.asarray(steps)]
    courses = [run.courses[at] for at in steps]
    took = np.array([replay.length_s(course, np.isfinite(course.ended_s)) for course in courses])
    took = took[np.isfinite(took)]
    return float(took.mean()) if len(took) else 0.0, float(won.mean()) if len(won) else 0.0


def _won_s(run: RoleRun, runs: Sequence[RoleRun], less: Taken) -> Seconds:
    """(T,) by how much shorter each step would be."""
    every = []
    for course, step in (pair for each in runs for pair in zip(each.courses, each.parts)):
        is_inside = any(part.is_inside for part in less.get(course.place, ()))
        if is_inside and course.entered is None and step.collectives is not None:  # it matters what lies between them
            course = course._replace(entered=entries_of(step, step.collectives))
        every.append(course)
    every.sort(key=lambda course: float(np.nanmedian(course.ended_s)))
    leads = replay.leads_of(every, less) if less else {}
    won = np.zeros(len(run.courses))
    for at, course in enumerate(run.courses if leads else ()):
        won[at] = replay.won_s(course, np.nan_to_num(leads[course.place]), np.isfinite(course.ended_s))
    return won
