"""Real Ray jobs: each a driver of `ray_jobs/drivers/`, started as a user would start it, and its run read back.

Neither this nor its folder is called `ray`: it would be found as the package of that name where there is none.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

from builders.lives import UNJUDGED

from mstxkit.recorder import adopt
from mstxkit.store import process_pointer

HERE = Path(__file__).resolve().parents[1] / "ray_jobs"
ROOT = HERE.parents[1]
PACKAGES = HERE / "packages"
TARGETS = PACKAGES / "acme_rl" / "targets.yaml"
# Ray 2.60 would make one in the user's home, and a driver that joins a cluster would not look for it there.
_AUTHENTICATION = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
# Ray starts its workers at niceness 15. Beside another lane of `make test` they would get next to nothing of two cores.
NO_LESS_THAN_OTHERS = {"RAY_worker_niceness": "0"}
# Ray starts two workers before anybody asks for one, and most jobs here use neither: each is a second of a core.
_UNASKED = "RAY_prestart_worker_first_driver"
AS_RAY_HAS_IT = {_UNASKED: "1"}
# What a job starts inherits it.
_OF_JOB = "TESTED_RAY_JOB"
_ENDS_WITHIN_S, _WORKERS_END_WITHIN_S = 300, 30.0


def is_older() -> bool:
    """Is this another Ray than the newest that is tested, beside which everything runs in full?"""
    try:
        return metadata.version("ray").startswith("2.42.")
    except metadata.PackageNotFoundError:
        return False


class Job(NamedTuple):
    """A job that has ended.

    Args:
        said: What its driver printed as JSON on its last line; None if that is none.
        run: Its run folder.
        output: All that it printed.
        code: The driver's return code.
    """

    said: Any
    run: Path
    output: str
    code: int

    def ranges(self, **chosen: Any) -> list[dict[str, Any]]:
        """Every range whose columns have these values, as `Run.ranges` has it."""
        import mstxkit

        rows = mstxkit.open_run(self.run).ranges().to_dicts()
        return [row for row in rows if all(row[column] == value for column, value in chosen.items())]

    def names(self, **chosen: Any) -> dict[str, int]:
        """How often each name was recorded, among the ranges that are as chosen."""
        return dict(Counter(row["name"] for row in self.ranges(**chosen)))

    def processes(self) -> list[dict[str, Any]]:
        """Every process of the run, as `Run.processes` has it."""
        import mstxkit

        return list(mstxkit.open_run(self.run).processes().to_dicts())


Start = Callable[..., Job]


def run_driver(name: str, run: Path, *arguments: str, collects: bool = True, **variables: str) -> Job:
    """Run one of `drivers/` to its end, and seal what its workers left, which Ray ends by force.

    Args:
        collects: False: leave it as the job itself has left it.
    """
    done = _ended(name, run, arguments, variables)
    if _RAY_DID_NOT_START in done.stdout + done.stderr:  # nothing of the job has run
        shutil.rmtree(run, ignore_errors=True)
        done = _ended(name, run, arguments, variables)
    if collects and (run / "run.json").exists():
        _collect(run)
    return Job(_last_line(done.stdout), run, done.stdout + done.stderr, done.returncode)


# Ray 2.60.0, `ray/_private/node.py`: it waits 30 s for its raylet, which may be too little beside other tests.
_RAY_DID_NOT_START = "The current node timed out during startup"


def _ended(
    name: str, run: Path, arguments: Sequence[str], variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "drivers" / f"{name}.py"), *arguments, str(run)]
    token = secrets.token_hex(16)
    given, is_well = {**environment(**variables), _OF_JOB: token}, False
    pipes: dict[str, Any] = {"capture_output": True, "text": True, "timeout": _ENDS_WITHIN_S}
    try:
        done = subprocess.run(command, env=given, cwd=run.parent, **pipes)
        is_well = done.returncode == 0
        return done
    finally:
        if not is_well:
            _end_cluster_of(token)


def _end_cluster_of(token: str) -> None:
    """A driver that failed may have left its cluster: the next job on this machine would join that."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_cluster = (process / "comm").read_text().strip() in ("raylet", "gcs_server")
            if is_cluster and f"{_OF_JOB}={token}".encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            pass  # it has gone, or is somebody else's


def environment(**more: str) -> dict[str, str]:
    """The test's own, without what would steer mstxkit or Ray, and with the stand-in framework importable.

    An actor that judges takes as long to start as the job: it is there where a test asks for it (`MSTXKIT_JUDGE="1"`).
    """
    found = {key: value for key, value in os.environ.items() if not key.startswith(("MSTXKIT_", "RAY_"))}
    found["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(PACKAGES)])
    found |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return {**found, **UNJUDGED, **NO_LESS_THAN_OTHERS, _UNASKED: "0", **_AUTHENTICATION, **more}


def _last_line(printed: str) -> Any:
    try:
        return json.loads(printed.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return None


def _collect(run: Path) -> None:
    """Workers outlive the driver by a moment."""
    deadline = time.monotonic() + _WORKERS_END_WITHIN_S
    while process_pointer.all_here(run) and time.monotonic() < deadline:
        adopt.collect_dead(run)
        time.sleep(0.1)
