"""Starts a Python of ours apart from this process: nothing of the program is in it, and it is nobody's child.

`posix_spawn` copies nothing of this process. Between the two is a shell, which starts the other one in the background
and ends: the program has a child for that moment only. One that stayed would be in the way of a program that ends or
waits for all of its children, as Jupyter's kernel does and SGLang's `kill_process_tree`.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence, TypeVar, cast

from . import environment, proc_files

_SHELL, _IN_BACKGROUND = "/bin/sh", '"$@" &'
_READERS: dict[str, Callable[[str], object]] = {
    "Path": Path, "Path | None": lambda word: Path(word) if word else None, "str": str, "int": int, "float": float,
}  # fmt: skip
T = TypeVar("T")
_children: list[int] = []  # of a process that is the first of its container
# Where the package lies: for the path of a Python that is to find it.
ROOT = str(Path(__file__).resolve().parents[2])
_START = (
    f"import sys; sys.path.extend(sys.argv.pop(1).split({os.pathsep!r})); "
    "import importlib; importlib.import_module(sys.argv.pop(1)).main()"
)
# What would make that process a part of the training, or of its launcher.
_NOT_PASSED_ON = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LD_PRELOAD", "PYTHONSTARTUP", "PYTHONINSPECT")
_NICE = 15
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # Linux, asm/unistd.h
_IDLE_CLASS = 3 << 13  # linux/ioprio.h


def start_module(module: str, words: Sequence[str], more_folders: Sequence[str] = ()) -> None:
    """Start `module.main()` with these words after its own. *Cost*: some milliseconds: never on a training thread.
    `more_folders`: where else it looks for modules: it has the standard library and mstxkit. Raises OSError: it cannot
    be started, as where the program is frozen, or has Python inside of it.
    """
    folders = os.pathsep.join([ROOT, *more_folders])
    command = ["sh", "-c", _IN_BACKGROUND, "sh", find_python(), "-I", "-S", "-c", _START, folders, module, *words]
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MSTXKIT_") and k not in _NOT_PASSED_ON}
    variables = {**kept, environment.OFF: "1"}
    if os.getpid() == 1:  # of a container: what is nobody's child is its, and nobody else waits for it
        reap_children()
        _children.append(os.posix_spawn(command[4], command[4:], variables, file_actions=null, setsigmask=()))
        return
    shell = os.posix_spawn(_SHELL, command, variables, file_actions=null, setsigmask=())
    with suppress(ChildProcessError):  # somebody here waits for every child there is
        os.waitpid(shell, 0)


def words_of(values: Iterable[object]) -> list[str]:
    """Words that say what a NamedTuple holds: paths, texts and numbers, or nothing."""
    return ["" if value is None else str(value) for value in values]


def of_words(kind: type[T], words: Sequence[str]) -> T:
    """A NamedTuple of this kind from such words, each read as its field is annotated."""
    make: Any = kind
    hints = (getattr(hint, "__forward_arg__", hint) for hint in make.__annotations__.values())
    return cast(T, make(*(_READERS[hint](word) for hint, word in zip(hints, words))))


def reap_children() -> None:
    """Wait for those that have ended, where they are children of this process. *Cost*: a call for each."""
    for pid in list(_children):
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                _children.remove(pid)
        except ChildProcessError:
            _children.remove(pid)


def end_process(pid: int | None, module: str, but_in: str = "") -> None:
    """End at once who was started so by this user, gets on no more, and is in none of these states of the kernel's."""
    with suppress(OSError):  # it is gone
        words = proc_files.read_content(f"/proc/{pid}/cmdline", 1 << 16).split(b"\0") if pid else ()
        state = "".join(proc_files.stat_of(f"/proc/{pid}")[:1])
        if pid and os.fsencode(module) in words and state not in but_in:  # nor is "", of who is gone
            os.kill(pid, signal.SIGKILL)


def find_python() -> str:
    """The Python that runs this program. Raises OSError as `start_module` does."""
    if hasattr(sys, "frozen") or "py" not in os.path.basename(sys.executable or ""):
        raise OSError(f"{sys.executable} is this program, which would be started again, and no Python")
    return sys.executable


def give_way() -> None:
    """The lowest priorities of processor and disk for the whole process: training may run on this host."""
    import ctypes  # training, which starts such processes, does without

    os.nice(_NICE)
    if (number := _IOPRIO_SET.get(os.uname().machine)) is not None:
        ctypes.CDLL(None).syscall(number, 1, 0, _IDLE_CLASS)


def let_go() -> None:
    """At the beginning of what was started: go on in nobody's way."""
    os.setsid()
    os.closerange(3, 1 << 16)
    os.chdir("/")
