"""A run at this moment, from its files alone: for `mstxkit top`, on any host that sees the folder. It writes nothing.

Who judges the job says what is shown. Where nobody does, the job is judged here, in memory.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple, TypeVar, cast

from ..store import batches, documents, incidents, job_file, judge_lock, layout, verdicts, whereabouts
from ..store.documents import Unusable
from ..store.incidents import Incident
from ..store.job_file import JobState
from ..store.verdicts import Verdict
from ..store.whereabouts import Whereabouts
from .run_judge import RunJudge

T = TypeVar("T")
# Whoever judges says so once a second; the clocks of two hosts may differ.
_JUDGED_WITHIN_S, _SILENT_S = 20.0, 30.0
# So many of the newest are looked at.
_INCIDENTS_AT_MOST = 4
_NS = 10**9
# Who is seen so long after a job's last word is of its next attempt: hosts agree better on the time.
_ANEW_NS = 5 * _NS


class Judges:
    """Who says what is shown."""

    ANOTHER, HERE, OVER, NOBODY = "another", "here", "over", "nobody"


class LiveState(NamedTuple):
    """What was seen.

    Args:
        state: The job; None where nothing has been handed over yet.
        verdicts: Those that hold, the costliest first.
        where: Where each process is, as its keeper has said.
        by: One of `Judges`.
        age_s: Since anything was said, by the clocks of two hosts; of a job that is over, since it last handed over.
        incident: The newest that is not over, before any that somebody has asked for; None: none is.
    """

    state: JobState | None
    verdicts: tuple[Verdict, ...]
    where: tuple[Whereabouts, ...]
    by: str
    age_s: float
    incident: Incident | None = None


class LiveReader:
    """Looks at one run again and again. What has not changed is not read again. `run`: the run folder, resolved.
    `run_id`: its id.
    """

    def __init__(self, run: Path, run_id: str) -> None:
        self._run, self._run_id = run, run_id
        self._kept: dict[object, tuple[Any, Any]] = {}
        self._run_judge: RunJudge | None = None

    def look(self) -> LiveState:
        """What is there now. *Cost*: a call a host, and the files that have changed."""
        names = incidents.list_names(self._run)[-_INCIDENTS_AT_MOST:]
        files = (incidents.folder_of(self._run, name) / layout.INCIDENT_FILE for name in names)
        states = [*zip(names, map(documents.state_of, files))]
        return self._seen()._replace(incident=self._read_anew("incident", states, lambda: self._gravest(names)))

    def _seen(self) -> LiveState:
        where = self._where()
        state = documents.state_of(self._run / layout.VERDICTS / layout.JOB)
        job = self._read_anew("job", state, lambda: job_file.read_state(self._run, self._run_id))
        by = self._by(job, where)
        if by in (Judges.ANOTHER, Judges.OVER):
            self._run_judge = None
            newest_ns = self._newest_ns() if by == Judges.OVER else 0
            age_s = (time.time_ns() - newest_ns) / _NS if newest_ns else _age_s(job)
            folder = self._run / layout.VERDICTS
            states = [documents.state_of(folder / n) for n in documents.names_in(folder, layout.VERDICTS_SUFFIX)]
            every = self._read_anew("verdicts", states, lambda: verdicts.read_verdicts(self._run))
            return LiveState(job, _pick_holding(every), where, by, age_s)
        return self._judged_here(where)

    def _by(self, job: JobState | None, where: tuple[Whereabouts, ...]) -> str:
        if job is not None and job.is_final and self._newest_ns() <= job.written_ns and not _is_alive(job, where):
            return Judges.OVER
        if job is not None and (abs(_age_s(job)) < _JUDGED_WITHIN_S or judge_lock.is_held(self._run)):
            return Judges.ANOTHER
        return Judges.HERE

    def _newest_ns(self) -> int:
        states = map(documents.state_of, batches.files_in(self._run))
        return max((state[3] for state in states if state), default=0)

    def _judged_here(self, where: tuple[Whereabouts, ...]) -> LiveState:
        if self._run_judge is None:
            self._run_judge = RunJudge(self._run, self._run_id, "top", writes=False)
        run_judge = self._run_judge
        run_judge.look()
        hosts = run_judge.controller.directory
        silent_s = time.time() - hosts.heard_s
        if silent_s > _SILENT_S or hosts.have_all_ended:
            run_judge.judge(time.time(), at_once=True)
        state = run_judge.state()
        is_over = hosts.have_all_ended and not _is_alive(state, where)
        by = (Judges.OVER if is_over else Judges.HERE) if state.hosts else Judges.NOBODY
        return LiveState(state if state.hosts else None, _pick_holding(run_judge.verdicts()), where, by, silent_s)

    def _read_anew(self, what: object, states: object, read: Callable[[], T]) -> T:
        """As it was read before, unless its files have changed since."""
        if what not in self._kept or self._kept[what][0] != states:
            self._kept[what] = states, read()
        return cast("T", self._kept[what][1])

    def _gravest(self, names: list[str]) -> Incident | None:
        """Who asks for one while the job hangs, still wants to see that it does."""
        going_on: list[Incident] = []
        for name in names:
            with suppress(Unusable):
                incident = incidents.read_summary(self._run, name, self._run_id)
                going_on += [incident] if incident is not None and not incident.over_ns else []
        return max(going_on, key=lambda going: (going.kind != incidents.REQUEST, going.incident), default=None)

    def _where(self) -> tuple[Whereabouts, ...]:
        every = list[Whereabouts]()
        for file in whereabouts.files_in(self._run):
            read_s, of_host = self._read_anew(file, documents.state_of(file), partial(self._read_whereabouts, file))
            since_s = time.monotonic() - read_s
            every += [w._replace(age=w.age._replace(seconds=w.age.seconds + since_s)) for w in of_host]
        ages_s: dict[tuple[int | None, str, str], float] = {}
        for where in every:
            ages_s[where.who] = min(where.age.seconds, ages_s.get(where.who, where.age.seconds))
        # Not where a rank was on a host that a restarted job has left.
        return tuple(w for w in every if w.rank is None or w.age.seconds - ages_s[w.who] <= _SILENT_S)

    def _read_whereabouts(self, file: Path) -> tuple[float, list[Whereabouts]]:
        """When it was read, on a clock that is never set, and what it says; [] where it cannot be read."""
        try:
            return time.monotonic(), whereabouts.in_file(file, self._run_id)
        except (Unusable, OSError):
            return time.monotonic(), []


def _is_alive(job: JobState, where: tuple[Whereabouts, ...]) -> bool:
    """Does a process of it live? Who has judged all there was need not have seen the end (`top --once`, say), and the
    job may have been started anew since.
    """
    anew_ns = job.written_ns + _ANEW_NS
    lately = [place for place in where if place.age.seconds < _SILENT_S]
    return any(job.ended < job.hosts or place.written_ns > anew_ns for place in lately)


def _age_s(job: JobState | None) -> float:
    return float("inf") if job is None else (time.time_ns() - job.written_ns) / _NS


def _pick_holding(all_of_them: list[Verdict]) -> tuple[Verdict, ...]:
    holding = (verdict for verdict in all_of_them if not verdict.withdrawn)
    return tuple(sorted(holding, key=lambda verdict: (not verdict.is_blaming, -verdict.impact_ratio)))
