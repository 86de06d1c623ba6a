"""The process that judges a run, which also writes down each step as it is judged: `logged_judge.py RUN LOG`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from mstxkit.judging import judge_process, run_judge
from mstxkit.judging.controller import Controller
from mstxkit.judging.evidence import RoleStep
from mstxkit.store import judge_lock, run_file


def main(run: Path, log: Path) -> None:
    """Until the run is over, or this is killed."""
    with open(log, "a", buffering=1) as stream:

        def judged(step: RoleStep) -> None:
            stream.write(f"{step.step} {len(step.members)}\n")

        run_judge.Controller = partial(Controller, on_step=judged)  # type: ignore[assignment, misc]
        lock = judge_lock.take_lock(run)
        assert lock is not None, "nobody else judges it"
        judge_process.judge(run, run_file.id_of(run) or "", lock)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
