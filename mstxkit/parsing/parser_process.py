"""The process in which one profile is parsed: it alone imports torch_npu or MindSpore, and gives way to everybody else.

Started by `work`. Its standard input is a pipe that the command holds open: when that ends, however it ends, this
process and all that it started are killed, so that nobody parses on behind the back of the next command.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import sys
import threading
from typing import Any

from ..host.detached import give_way
from .kinds import KINDS, Kind

_TEXT_LIMIT = 2000


def main() -> None:
    """Parse, or with no folder only load what parses; write versions and problem as JSON to the descriptor."""
    kind, answer_fd, export, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    _end_with_the_command()
    give_way()
    answer = _parse_folder(KINDS[kind], folder, export)
    with os.fdopen(answer_fd, "w") as stream:
        json.dump(answer, stream)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if answer["problem"] else 0)  # torch_npu has an exit hook that waits for devices


def _end_with_the_command() -> None:
    """Kill this process group when the command is gone; nobody else reads that pipe."""
    pipe = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    def watch() -> None:
        os.read(pipe, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _parse_folder(kind: Kind, folder: str, export: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"versions": {}, "problem": ""}
    try:
        analyse = importlib.import_module(kind.module).analyse
        answer["versions"] = {kind.name: str(getattr(sys.modules[kind.name], "__version__", "unknown"))}
        if folder:
            # `analyse` with those of its options that this version has: 7.0 has no export_type, 6.0.rc1 only the path.
            parameters = inspect.signature(analyse).parameters
            options: dict[str, Any] = {"max_process_number": 1} if "max_process_number" in parameters else {}
            if export:
                if "export_type" not in parameters:
                    raise ValueError("this version's analyse has no export_type: leave out --export")
                options["export_type"] = export.split(",")
            analyse(folder, **options)
    except Exception as exc:
        answer["problem"] = f"{type(exc).__name__}: {exc}"[:_TEXT_LIMIT]
    return answer
