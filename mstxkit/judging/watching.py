"""A run judged from outside: what its hosts have handed over so far, by whoever looks, where nobody else judges it.

One job has one judge at a time. Where another one is at work, its word is taken; where one has been, what came since.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Iterator, NamedTuple

from ..errors import MstxkitError
from ..store import batches, job_file, judge_lock, layout, settings_file, verdicts
from ..store.job_file import JobState
from ..store.settings_file import LiveSettings
from ..store.verdicts import Verdict
from ..telemetry.outlets import Outlets
from . import settings
from .run_judge import RunJudge

WHO = "watch"
# A job of which nothing has come for so long is not waited for.
_SILENT_S = 30.0
_LOOKS_EVERY_S, _ACKNOWLEDGED_WITHIN_S = 0.25, 15.0


class Outlook(NamedTuple):
    """What was to be seen.

    Args:
        verdicts: As they were said last, withdrawn ones too.
        steps: How many steps of roles were judged now; None: somebody else judges, or has judged all there is.
        hosts: That have handed anything over.
        last_step: That was judged, by whoever did.
        judged_steps: Of each role in which ranks are compared, how many steps could lead to a verdict; None of one:
            not known.
    """

    verdicts: list[Verdict]
    steps: int | None
    hosts: int
    last_step: int | None
    judged_steps: tuple[int | None, ...] = ()


def judge_once(run: Path, run_id: str) -> Outlook:
    """Judge what is there, unless it is judged already."""
    run_judge = _open_run_judge(run, run_id)
    if run_judge is None:
        figures = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, run_id)
        step = None if figures is None else figures.step
        state = job_file.read_state(run, run_id)
        counts = (state or JobState()).judged_steps if state or step is None else (None,)  # an older one says none
        return Outlook(verdicts.read_verdicts(run), None, len(batches.files_in(run)), step, counts)
    run_judge.writes &= bool(batches.files_in(run))  # of what nobody has handed over, nothing is said to be judged
    run_judge.look()
    hosts = run_judge.controller.directory
    if time.time() - hosts.heard_s > _SILENT_S or hosts.have_all_ended:
        run_judge.judge(time.time(), at_once=True)
    run_judge.close()
    last_step, counts = run_judge.controller.figures.step, run_judge.state().judged_steps
    return Outlook(run_judge.verdicts(), run_judge.outcome_steps, len(hosts.hosts), last_step, counts)


def _open_run_judge(run: Path, run_id: str, outlets: Outlets | None = None) -> RunJudge | None:
    """A judge of what is not judged yet; None where another one is at work or has judged all of it."""
    try:
        lock = judge_lock.take_lock(run)
    except (OSError, MstxkitError):
        lock = -1  # it may only be read: judged in memory
    if lock is None:
        return None
    figures = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, run_id)
    newest_ns = max((os.stat(file).st_mtime_ns for file in batches.files_in(run)), default=0)
    if figures is not None and figures.is_final and figures.written_ns >= newest_ns:
        if lock >= 0:
            os.close(lock)
        return None
    return RunJudge(run, run_id, WHO, lock=lock, outlets=outlets)


def follow_verdicts(run: Path, run_id: str, outlets: Outlets | None = None) -> Iterator[Verdict]:
    """Verdicts as they come, those that hold now first, until whoever asks has enough; judged here while nobody else
    does. `outlets`: where figures go while it is judged here.
    """
    shown: dict[str, Verdict] = {}
    run_judge: RunJudge | None = None
    while True:
        run_judge = run_judge or _open_run_judge(run, run_id, outlets)
        if run_judge is not None:
            run_judge.look()
        for verdict in verdicts.read_verdicts(run) if run_judge is None else run_judge.verdicts():
            before = shown.get(verdict.id)
            if before is None or before._replace(time_ns=verdict.time_ns, step=verdict.step) != verdict:
                shown[verdict.id] = verdict
                yield verdict
        time.sleep(_LOOKS_EVERY_S if run_judge is None else run_judge.pause_s)


class Acceptance(NamedTuple):
    """What became of changed settings.

    Args:
        settings: In force.
        judge: Does who judges the job judge by them? None: nobody judges it now.
        hosts: How many hosts have said that they have them.
        missing: Hosts that have not.
    """

    settings: LiveSettings
    judge: bool | None
    hosts: int
    missing: tuple[str, ...]


def check_settings(texts: list[str]) -> dict[str, float]:
    """`name=value` texts as settings. Raises MstxkitError: there is no such setting, or it cannot have that value; the
    message says what is allowed.
    """
    values: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise MstxkitError(f"--set {text}: name=value is needed, slow_rank.effect=0.15 say")
        changed = settings.change_setting(settings.default_settings(), name.strip(), value.strip())
        values[name.strip()] = changed.as_json()[name.strip()]
    return values


def change(run: Path, run_id: str, values: dict[str, float], within_s: float = _ACKNOWLEDGED_WITHIN_S) -> Acceptance:
    """Change settings of a run while it goes on, and wait until all have them, but not longer than that."""
    after = settings_file.change_settings(run, run_id, values)
    run_judge = RunJudge(run, run_id, WHO, writes=False)
    deadline = time.monotonic() + within_s
    while True:
        run_judge.look()
        hosts = [host for host in run_judge.controller.directory.hosts.values() if not host.has_ended]
        late = [host for host in hosts if host.settings < after.version]
        missing = tuple(host.host for host in late if host.seen_s >= time.time() - _SILENT_S)
        judge: bool | None = None
        if judge_lock.is_held(run):
            figures = settings_file.read_figures(run / layout.VERDICTS / layout.FIGURES, run_id)
            judge = figures is not None and figures.settings >= after.version
        if (not missing and judge is not False) or time.monotonic() > deadline:
            return Acceptance(after, judge, len(hosts) - len(late), missing)
        time.sleep(_LOOKS_EVERY_S)
