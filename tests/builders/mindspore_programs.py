"""Programs that use the real MindSpore, each in a process of its own: its profiler has one state for a process.

The folder is not called `mindspore`: it would be found as the package of that name where there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_ENDS_WITHIN_S = 250
# Said of every profiler without a warm-up, of every stop of one without a schedule, and of all that its monitor made.
_ALWAYS_SAID = (
    "won't be using warmup",
    "Stop profiler while current state is RECORD",
    "stopped at the end of the prog",
)
_STEERS = ("MSTXKIT_", "MS_", "RANK", "PROFIL", "MSMONITOR_")


class Ended(NamedTuple):
    """A program that has ended well.

    Args:
        said: What it printed last as JSON on a line; None if it did not. MindSpore may say more at the exit.
        complaints: MindSpore's warnings and errors, but for those that it always has.
    """

    said: Any
    complaints: list[str]


def run(code: str, folder: Path, *arguments: object, before: str = ":", **variables: str) -> Ended:
    """Run Python code in a folder, after the shell command `before`, with these variables in its environment.

    It is a file, since MindSpore compiles nothing else.
    """
    (folder / "program.py").write_text(code)
    command = ["bash", "-ec", f'{before}; exec "$0" program.py "$@"', sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, timeout=_ENDS_WITHIN_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return Ended(_last_json(done.stdout), _complaints(done.stderr))


def environment(**more: str) -> dict[str, str]:
    """The test's own, without what would steer mstxkit, MindSpore or its profiler."""
    found = {key: value for key, value in os.environ.items() if not key.startswith(_STEERS)}
    return {**found, "PYTHONPATH": str(ROOT), **more}


def _last_json(printed: str) -> Any:
    for line in reversed(printed.splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return None


def _complaints(printed: str) -> list[str]:
    lines = (line for line in printed.splitlines() if line.startswith(("[WARNING]", "[ERROR]", "[CRITICAL]")))
    return [line for line in lines if not any(known in line for known in _ALWAYS_SAID)]
