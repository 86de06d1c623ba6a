"""Starts a Python of ours apart from this process: nothing of the program is in it, and it is nobody's child for long.

`posix_spawn` copies nothing of this process. What is started forks once and its parent ends at once, so the child that
is waited for here is gone in a moment, and the one that works belongs to nobody here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Sequence

from . import environment

_ROOT = str(Path(__file__).resolve().parents[2])
_START = (
    f"import sys; sys.path.extend(sys.argv.pop(1).split({os.pathsep!r})); "
    "import importlib; importlib.import_module(sys.argv.pop(1)).main()"
)
# What would make that process a part of the training, or of its launcher.
_NOT_PASSED_ON = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LD_PRELOAD", "PYTHONSTARTUP", "PYTHONINSPECT")


def started(module: str, words: Sequence[str], more_folders: Sequence[str] = ()) -> int:
    """Start `module.main()` with these words after its own, and give the pid to wait for.

    Args:
        more_folders: Where else it looks for modules: it has the standard library and mstxkit.

    Raises:
        OSError: it cannot be started.
    """
    folders = os.pathsep.join([_ROOT, *more_folders])
    command = [sys.executable, "-I", "-S", "-c", _START, folders, module, *words]
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MSTXKIT_") and k not in _NOT_PASSED_ON}
    return os.posix_spawn(sys.executable, command, {**kept, environment.OFF: "1"}, file_actions=null)


def let_go() -> None:
    """At the beginning of what was started: go on as nobody's child, in nobody's way."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.closerange(3, 1 << 16)
    os.chdir("/")


def has_gone(pid: int) -> bool:
    """Clear away what was started. Is it gone?"""
    try:
        gone, _ = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # somebody here waits for every child there is
        return True
    return bool(gone)
