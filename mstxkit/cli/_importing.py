"""Imports a framework in a process of its own, patched, and reports the state of each target.

Frameworks print, exit and crash while they are imported, and what they load must not stay in the command that asked.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..host import detached
from ..patching.report import WAITING, TargetState
from ..patching.sheet import YAML_SUFFIXES

LIMIT_S = 600.0
# The folder of the caller comes first on its path, as with `python -m`; mstxkit may come from a source tree.
_CODE = (
    "import sys; sys.path.append(sys.argv[1]); from mstxkit.cli import _importing as i; i.tell_states(*sys.argv[2:])"
)


def in_a_process(name: str) -> tuple[list[TargetState], str]:
    """Patch and import this framework (or the one of a YAML file) in a new process. Returns: its targets with their
    states; and why the process did not end, or "".
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("MSTXKIT_RUN", "MSTXKIT_AUTOPATCH")}
    with tempfile.TemporaryDirectory() as folder:
        answer, printed = Path(folder, "answer.json"), Path(folder, "said")
        command = [sys.executable, "-c", _CODE, detached.ROOT, name, str(answer)]
        with printed.open("wb") as output:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            try:
                status = subprocess.run(command, env=environment, timeout=LIMIT_S, **streams).returncode
                ending = f"status {status}" if status > 0 else f"signal {-status}"
                error = f"importing it ended the process ({ending})" if status else ""
            except subprocess.TimeoutExpired:
                error = f"importing it took more than {LIMIT_S:.0f} s"
            except OSError as exc:
                error = f"no process could be started: {exc}"
        if error:
            lines = printed.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return [], ": ".join([error, *lines[-1:]])
        return [TargetState(**fields) for fields in json.loads(answer.read_text(encoding="utf-8"))], ""


def tell_states(name: str, answer: str) -> None:
    """In the new process: patch, import the modules of all targets, write every target's state, and end."""
    import mstxkit

    report = mstxkit.autopatch(targets=name) if name.endswith(YAML_SUFFIXES) else mstxkit.autopatch(name)
    errors = {}
    for module in dict.fromkeys(target.path.partition(":")[0] for target in report.targets):
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as exc:
            errors[module] = f"{type(exc).__name__}: {(str(exc).splitlines() or [''])[0]}"
    states = []
    for target in mstxkit.patch_report().targets:
        error = errors.get(target.path.partition(":")[0])
        why = {"detail": f"its import fails: {error}"} if error and target.state == WAITING else {}
        states.append({**target._asdict(), **why})
    Path(answer).write_text(json.dumps(states), encoding="utf-8")
    os._exit(0)  # threads and exit hooks of the framework are none of ours
