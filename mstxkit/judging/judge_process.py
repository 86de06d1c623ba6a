"""The process that judges a run beside rank 0, over the run folder: alone, niced, and gone once the run has ended.

`cluster/beside.py` starts it; nothing of a training is in it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ..errors import MstxkitError
from ..host import detached, identity, life
from ..store import documents, job_file, judge_lock, layout, metrics_setting, process_pointer, run_file
from ..telemetry.outlets import Outlets
from .run_judge import RunJudge

WHO = "controller"
# Said by who starts it: one judges already, and nothing is heard of it.
SILENT = "silent"
# Who has stopped it may want to look at it, and lets it go on: then it ends. Unless a page of figures is to be served.
_NICE, _STOPPED = 10, "Tt"
_ENDED_EVERY_S, _QUIET_S, _SAYS_WITHIN_S = 3.0, 2.0, 6.0
# Processes of other hosts of which this one cannot tell: they live while something comes of their hosts.
_SILENCE_S = 300.0


def main() -> None:
    """The process: let go of who started it, then judge. Its words are the run folder and the run's id."""
    detached.let_go()
    os.nice(_NICE)
    run, run_id, is_silent = Path(sys.argv[1]), sys.argv[2], sys.argv[4:5] == [SILENT]
    try:
        lock = judge_lock.take_lock(run)
        if lock is None and is_silent and not _is_heard(run):
            lock = judge_lock.take_over(run, __name__, "" if sys.argv[3] else _STOPPED)
        if lock is not None:
            job_file.show_life(run, run_id)
            judge(run, run_id, lock, goes=Outlets(run, run_id, metrics_setting.of_word("".join(sys.argv[3:4]))))
    except (OSError, MstxkitError):
        pass  # the run is gone


def judge(run: Path, run_id: str, lock: int = -1, silence_s: float = _SILENCE_S, goes: Outlets | None = None) -> None:
    """Judge a run until its processes have ended, it is gone, or another one has begun to judge in its place."""
    run_judge = RunJudge(run, run_id, WHO, lock=lock, outlets=goes)
    hosts, looked_s, was_over = run_judge.controller.directory, 0.0, False
    while run_judge.writes:
        if not judge_lock.is_mine(run, lock):  # another one has taken over, or will
            return
        run_judge.look()
        # While something comes, somebody lives. What came before the clock was set back came long ago.
        if abs(time.time() - hosts.heard_s) > _QUIET_S and time.monotonic() - looked_s >= _ENDED_EVERY_S:
            is_over = _is_over(run, run_id, hosts.heard_s, silence_s)
            if is_over and (was_over or hosts.have_all_ended):
                break
            looked_s, was_over = time.monotonic(), is_over
        time.sleep(run_judge.pause_s)
    run_judge.look(at_last=True)
    run_judge.judge(time.time(), at_once=True)
    run_judge.close()


def _is_heard(run: Path) -> bool:
    """Does who holds the lock say anything, in a time in which a judge at rest does so twice?"""
    before, until_s = documents.state_of(run / layout.VERDICTS / layout.JOB), time.monotonic() + _SAYS_WITHIN_S
    while time.monotonic() < until_s:
        time.sleep(0.2)
        if documents.state_of(run / layout.VERDICTS / layout.JOB) != before:
            return True
    return False


def _is_over(run: Path, run_id: str, heard_s: float, silence_s: float) -> bool:
    if run_file.id_of(run) != run_id:
        return True
    pointers = [run / layout.LIVE / name for name in documents.names_in(run / layout.LIVE, layout.POINTER)]
    if abs(time.time() - heard_s) > silence_s:
        return not any(_is_up(pointer) for pointer in pointers if pointer.name.startswith(f"{identity.name_host()}-"))
    return all(_is_up(pointer) is False for pointer in pointers)


def _is_up(pointer: Path) -> bool | None:
    """Does the process of this pointer live? None: that cannot be told here."""
    try:
        content = documents.read_small(pointer, process_pointer.LIMIT_BYTES)
        return False if content is None else life.is_alive(process_pointer.parse_pointer(content))
    except MstxkitError:
        return None
