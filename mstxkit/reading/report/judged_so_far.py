"""How far a job that runs was judged, where who judges says nothing more, or does not keep up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Iterable

from ...store import job_file, whereabouts
from ...store.job_file import JobState
from ...store.whereabouts import Whereabouts, write_span

# A judge says at least each three seconds that it is there, and judges a step within some; hosts say each five where
# their ranks are.
_LATE_S, _SEEN_S, _STEPS, _NS = 20.0, 15.0, 2, 1e9


def judged_so_far(path: str, run_id: str) -> str:
    """As `in_words`, of a run folder."""
    return in_words(job_file.read_state(Path(path), run_id), whereabouts.read_seen(Path(path), run_id, []))


def in_words(job: JobState | None, where: Iterable[Whereabouts]) -> str:
    """`judged up to step 299, 40 s ago: the job is in step 1,950 by now`; "" where it is judged as it goes on, nobody
    judges it, or none of its ranks is seen.
    """
    now_ns, job = time.time_ns(), job or JobState()
    silent_s = (now_ns - job.written_ns) / _NS
    seen = [(place.role, place.step or 0) for place in where if place.is_of_a_rank and place.age.seconds < _SEEN_S]
    for role in job.roles:
        reached, late_s = max((step for name, step in seen if name == role.role), default=-1), silent_s
        if silent_s <= _LATE_S and reached - role.step > _STEPS:
            late_s = (now_ns - role.end_ns) / _NS
        if reached >= 0 and late_s > _LATE_S:
            return f"judged up to step {role.step:,}, {write_span(late_s)} ago: the job is in step {reached:,} by now"
    return ""
