"""A role's steps gone through once more with other times of its members: what the steps would have taken then.

Where members wait for each other, each goes on when the last of them has come; elsewhere each goes on for itself. Only
differences between two such goes are told, so that what the replay leaves out is left out on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .role_runs import last_of

if TYPE_CHECKING:
    from .role_runs import RoleRun, Seconds


def ends_s(run: RoleRun, own_s: Seconds) -> Seconds:
    """(T,) when each step is over, in seconds since the first one began, if own times were these.

    Over is a step when the last member is done with it; in a role in which nobody waits, when all are, in the mean.

    Args:
        run: The role's steps.
        own_s: (T, M, K) own seconds of each member in each piece; NaN counts as none.
    """
    own = np.nan_to_num(own_s)
    now, ends = np.zeros(len(run.members)), np.zeros(len(run.steps))
    here = np.asarray(np.isfinite(run.own_s).any(axis=2))
    for at in range(len(run.steps)):
        for piece in range(len(run.kinds)):
            if run.waits[piece]:
                there = np.isfinite(run.own_s[at, :, piece])
                last = last_of(np.where(there, now, np.nan)[None], run.labels[:, piece])[0]
                now = np.where(there, last, now)
            now = now + own[at, :, piece]
        of_step = now[here[at]] if here[at].any() else now
        ends[at] = of_step.mean() if run.is_free else of_step.max()
        now = np.where(here[at], now, np.maximum(now, ends[at]))  # who does nothing in it goes with the rest
    return ends


def saved_s(run: RoleRun, own_s: Seconds, since: int, until: int) -> tuple[float, float]:
    """How long a step of these took, and how much shorter it would have been: means, in seconds.

    Args:
        run: The role's steps.
        own_s: As of `ends_s`.
        since, until: Places of the first step and of the one after the last.
    """
    held_s = np.where(run.waits, 0.0, run.wait_s)  # what is waited for somebody else stays as it was
    before = run.once("replayed as it was", lambda: ends_s(run, run.own_s + held_s))
    after = ends_s(run, own_s + held_s)
    count = max(1, until - since)

    def between(ends: Seconds) -> float:
        return float(ends[until - 1] - (ends[since - 1] if since else 0.0)) / count

    took = (_lengths_in_the_mean_s(run) if run.is_free else run.length_s())[since:until]
    took = took[np.isfinite(took)]
    step_s = float(took.mean()) if len(took) else between(before)
    return step_s, between(before) - between(after)


def _lengths_in_the_mean_s(run: RoleRun) -> Seconds:
    """(T, M) seconds from when each member was done with the step before to when it is done with this one."""
    ended = np.fmax.reduce(run.done_s, axis=2)
    lengths = np.diff(ended, axis=0, prepend=np.fmin.reduce(run.came_s[:1], axis=2))
    lengths[1:][np.diff(run.steps) != 1] = np.nan
    return np.asarray(lengths)
