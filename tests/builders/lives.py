"""What process tests share: Python programs run in processes of their own, and their ranges read back.

Programs run with this interpreter, the package under test and the engine that the suite was started for
(MSTXKIT_NATIVE).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

import mstxkit
from mstxkit import capturing
from mstxkit.engine.choose import engine
from mstxkit.host import folders, identity, life

PACKAGE_PARENT = Path(mstxkit.__file__).resolve().parents[1]
FINISHES_WITHIN_S = 60.0
_BUDGET = "MSTXKIT_BUDGET_RATIO"
# Most programs of tests are jobs of several ranks, and each would start a process that judges it, and one that watches.
UNJUDGED = {"MSTXKIT_JUDGE": "0", "MSTXKIT_HANG_S": "0"}


def environment(**more: str) -> dict[str, str]:
    """This environment, without what could switch mstxkit on or off, and with the package under test in front.

    Programs here are storms, whose every range is looked for afterwards: none is coalesced for its cost. Nobody judges
    them, unless a test asks for it.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MSTXKIT_") or k == "MSTXKIT_NATIVE"}
    kept[_BUDGET] = "0"
    return {**kept, **UNJUDGED, "PYTHONPATH": str(PACKAGE_PARENT), "PYTHONWARNINGS": "", **more}


def dedented(program: str) -> str:
    """A program as it stands in a test."""
    return textwrap.dedent(program)


# A fork waits 50 ms for our threads: on a busy machine a child would not be recorded from its first line on.
PATIENT = "from mstxkit.recorder import forking\nforking.WAITS_AT_MOST_S = 20.0\n"

# As on Python 3.12, in a program that has no threads of its own: Python would warn of ours.
ENDING_THREADS = """
    from mstxkit.recorder import forking
    forking.warns_of = lambda ours: True
"""


def start(
    program: str, *arguments: object, python: str = sys.executable, is_patient: bool = True, **variables: str
) -> subprocess.Popen[str]:
    """Start a program; its output can be read while it runs, and its standard input is open until it is `finished`.

    Args:
        is_patient: Do its forks wait for our threads as long as that takes?
    """
    patience = PATIENT if is_patient and "fork" in program else ""
    return subprocess.Popen(
        [python, "-c", patience + dedented(program), *map(str, arguments)],
        env=environment(**variables),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """(status, output, error output) of a started program."""
    out, err = process.communicate(timeout=FINISHES_WITHIN_S)
    return process.returncode, out, err


def run(
    program: str, *arguments: object, status: int = 0, has_faults: bool = False, is_patient: bool = True,
    **variables: str,
) -> str:  # fmt: skip
    """Run a program to its end, and return what it printed. Fails if mstxkit logged a fault, unless it should."""
    found, out, err = finished(start(program, *arguments, is_patient=is_patient, **variables))
    assert found == status, f"status {found}:\n{err}"
    assert ("mstxkit: fault" in err) is has_faults, err
    return out


def loads(program: str, *arguments: object, of: str) -> set[str]:
    """Which of these modules a program has loaded at its end."""
    told = run(f"{dedented(program)}\nimport sys; print(*sys.modules)", *arguments)
    return {*of.split()} & {*told.splitlines()[-1].split()}


def killed(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    """Send a signal to a started program and wait until it is gone."""
    os.kill(process.pid, number)
    process.communicate(timeout=FINISHES_WITHIN_S)


DIES = """
    import sys, mstxkit, mstxkit.capturing
    from mstxkit.recorder import current
    mstxkit.capture(sys.argv[1])
    current.recorder.sealer.each_second = int
    mstxkit.capturing._beside.keeper.get().background.pause()
    with mstxkit.mstx_range("ended"):
        pass
    with mstxkit.mstx_range("open"):
        print("ready", flush=True)
        sys.stdin.readline()
"""


def leave_dead(run: Path, count: int) -> None:
    """Processes that died inside `open` after `ended`, all at once, so that none of them could adopt another."""
    dying = [start(DIES, run) for _ in range(count)]
    for process in dying:
        assert process.stdout is not None and process.stdout.readline() == "ready\n", process.communicate()
    for process in dying:
        killed(process)


def wait_until(is_so: Callable[[], bool], within_s: float = 30.0) -> bool:
    """Wait for something that another process or thread does; False when it does not come."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def ranges(run: Path) -> list[dict[str, Any]]:
    """All ranges of a run, attributes decoded."""
    rows = mstxkit.open_run(run).ranges().to_dicts()
    return [{**row, "attributes": json.loads(row["attributes"] or "{}")} for row in rows]


def ended(run: Path) -> Counter[str]:
    """How often each name was recorded, from its begin to its end."""
    return Counter(row["name"] for row in ranges(run) if not row["open"])


def still_open(run: Path) -> Counter[str]:
    """The names of what processes are, or were, inside of."""
    return Counter(row["name"] for row in ranges(run) if row["open"])


def processes(run: Path) -> list[dict[str, Any]]:
    """One row a process."""
    return list(mstxkit.open_run(run).processes().to_dicts())


def killed_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Who was killed, by a report's summary."""
    groups = (group["processes"] for group in report["endings"] if group["state"] == "killed")
    return [process for processes in groups for process in processes]


def damage(run: Path) -> list[str]:
    """What the reader could not read, in words."""
    opened = mstxkit.open_run(run)
    opened.ranges()
    return [f"{one.path}: {one.reason}" for one in opened.damage]


def is_kept(run: Path) -> bool:
    """Is there a keeper already?"""
    return any(life.has_holder(lock) for lock in live_folder(run).glob("keeper-*"))


def run_id(run: Path) -> str:
    """The id in run.json."""
    return str(json.loads((run / "run.json").read_text())["run"])


def live_folder(run: Path, parent: str = folders.SHARED_MEMORY) -> Path:
    """Where the live files of a run are."""
    return Path(parent) / f"mstxkit-{os.geteuid()}" / run_id(run)


@contextmanager
def own_run(tmp_path: Path) -> Iterator[Path]:
    """A run folder, not made yet. Fails a test that leaves its recorder on, or files in /dev/shm."""
    folder, clock, budget = tmp_path / "run", engine.clock_kind(), os.environ.get(_BUDGET)
    os.environ[_BUDGET] = "0"
    yield folder
    os.environ.pop(_BUDGET)
    if budget is not None:
        os.environ[_BUDGET] = budget
    was_on = mstxkit.status().on
    capturing.stop_recording()
    engine.set_clock(clock)
    identity.forget_learnt()
    left = _left_in_shared_memory(folder)
    assert not was_on, "the test left its recorder running"
    assert not left, f"left in /dev/shm: {left}"


def _left_in_shared_memory(folder: Path) -> list[str]:
    if not (folder / "run.json").exists() or not live_folder(folder).exists():
        return []
    left = os.listdir(live_folder(folder)) or ["an empty folder"]
    shutil.rmtree(live_folder(folder))
    return left
