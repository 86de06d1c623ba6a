"""A process that belongs to nobody: what has to be done after a training process, or beside it, at the lowest priority.

`start` is called in a training process and costs a `posix_spawn`; `begin` is the first thing that the new process does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import environment
from .priority import give_way

_ROOT = str(Path(__file__).resolve().parents[2])
_START = "import sys; sys.path.append(sys.argv.pop(1)); from {module} import main; main()"
# What would make that process a part of the training, or of its launcher.
_NOT_PASSED_ON = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LD_PRELOAD", "PYTHONSTARTUP", "PYTHONINSPECT")


def start(module: str, words: list[str]) -> int:
    """Start a Python that calls `main` of this module, with these words in `sys.argv[1:]`, and return its pid. It ends
    at once: its child does the work.

    Raises:
        OSError: it cannot be started.
    """
    command = [sys.executable, "-I", "-S", "-c", _START.format(module=module), _ROOT, *words]
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MSTXKIT_") and k not in _NOT_PASSED_ON}
    return os.posix_spawn(sys.executable, command, {**kept, environment.OFF: "1"}, file_actions=null)


def has_ended(pid: int) -> bool:
    """Has the process that `start` started ended? Clears it away. Never waits."""
    try:
        return bool(os.waitpid(pid, os.WNOHANG)[0])
    except ChildProcessError:  # somebody here waits for every child there is
        return True


def begin() -> None:
    """In the new process: let go of who started it, and give way to training."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.closerange(3, 1 << 16)
    os.chdir("/")
    give_way()
