"""Up to which step a job was judged is told where who judges says nothing, or does not keep up, and only there."""

from __future__ import annotations

import time

import pytest

from mstxkit.reading.report.judged_so_far import in_words
from mstxkit.store.job_file import JobState, RoleFigures
from mstxkit.store.whereabouts import Age, Whereabouts

NOW_NS = 1_800_000_000 * 10**9


def job(said_s: float, step: int = 299, ended_s: float = 0.0, role: str = "") -> JobState:
    """Whose judge said something so long ago, of a step that ended so long ago."""
    roles = (RoleFigures(role, step, 4, end_ns=NOW_NS - int(ended_s * 1e9)),)
    return JobState(roles, written_ns=NOW_NS - int(said_s * 1e9))


def rank(step: int | None, seen_s: float = 2.0, role: str = "") -> Whereabouts:
    return Whereabouts("vm", 7, 0, role, "", step, "reward", 1.0, NOW_NS, Age(seen_s, True))


@pytest.mark.parametrize(
    ("state", "where", "told"),
    [
        (job(40, ended_s=41), rank(1950), "judged up to step 299, 40 s ago: the job is in step 1,950 by now"),
        (job(40, ended_s=900), rank(300), "judged up to step 299, 40 s ago: the job is in step 300 by now"),
        (job(1, ended_s=40), rank(1950), "judged up to step 299, 40 s ago: the job is in step 1,950 by now"),
        (job(1, ended_s=3), rank(450), ""),  # short steps
        (job(1, ended_s=900), rank(300), ""),  # long steps: the next one is not over
        (job(1, ended_s=900, role="reward"), rank(1950, role="actor"), ""),  # a role that has nothing to do
        (job(40, ended_s=41), rank(1950, seen_s=60), ""),  # the job is over, or its host silent
        (job(40, ended_s=41), rank(None)._replace(stage=None), ""),
        (JobState(written_ns=1), rank(1950), ""),  # nothing was judged yet
        (None, rank(1950), ""),
    ],
)
def test_it_is_told_where_the_judge_is_silent_or_behind(
    state: JobState | None, where: Whereabouts, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_NS)

    assert in_words(state, [where]) == told
