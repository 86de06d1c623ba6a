"""Where every thread of some processes is: by asking them, else by a signal, else by py-spy where it is installed.

First a pipe, on which a thread of each sleeps: it writes with the GIL held, so nothing moves meanwhile. Who does not
answer has the GIL held by native code: then a signal's handler writes, and nothing moves either. Who is stopped, or
waits for a disk, can do neither: py-spy reads its memory from outside, where this user may.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable, NamedTuple

from ..store import layout, stacks
from ..store.stacks import StackFrame, ThreadStack
from ..store.values import list_of, small_number, table_of, text_of
from . import kernel
from .looking import WatchedProcess

# How long each way may take, seconds; a process that is merely busy answers within a few switches of the GIL.
ANSWERS_WITHIN_S, _SIGNAL_WITHIN_S, _PY_SPY_WITHIN_S = 1.2, 0.5, 3.0
# Who has written its threads says who it is next, and reads its ring.
_TOLD_WITHIN_S = 0.5
_LOOKS_EVERY_S = 0.02
_CANNOT_ANSWER = ("stopped", "traced", "gone")
ITSELF, BY_SIGNAL, BY_PY_SPY, NOBODY = "itself", "signal", "py-spy", ""


class Answer(NamedTuple):
    """Threads of a process, and by what they are known: `itself`, `signal`, `py-spy`, "" for nothing. `has_gil`: has
    one of them Python's lock, as py-spy has seen? `has_ring`: has it handed over its ring, as it is now?
    """

    by: str = NOBODY
    threads: tuple[ThreadStack, ...] = ()
    has_gil: bool = False
    has_ring: bool = False


def threads_of(processes: Iterable[WatchedProcess], folder: Path, is_idle: Callable[[str], bool]) -> dict[str, Answer]:
    """Those of each process, by its name. `processes`: all of them are asked at once. `folder`: of the live files.
    `is_idle`: does this one nothing that could be held up? Then its ring is read as well, and a signal may be sent.
    """
    waiting = {process.name: (process, process.stacks_state()) for process in processes}
    before = {name: process.last_words() for name, (process, _) in waiting.items()}
    for process, _ in waiting.values():
        what = stacks.ASK_ALL if is_idle(process.name) else stacks.ASK_THREADS
        ask_process(folder, process.name, what)
    states = {name: kernel.state_of(of[0].pid) if of[0].pid else "" for name, of in waiting.items()}
    able = {name: of for name, of in waiting.items() if states[name] not in _CANNOT_ANSWER}
    answers = _answers_of(able, ITSELF, ANSWERS_WITHIN_S)
    full = _full_answers({name: (able[name][0], before[name].full_answers) for name in answers})
    answers = {name: answer._replace(has_ring=name in full and is_idle(name)) for name, answer in answers.items()}
    # A signal may end a call of the kernel's: only who does nothing is sent one.
    mute = {name: of for name, of in able.items() if name not in answers and is_idle(name) and _may_signal(of[0])}
    answers.update(_answers_of(mute, BY_SIGNAL, _SIGNAL_WITHIN_S))
    for name, (process, _) in mute.items():
        words = process.last_words()
        if words.answers > before[name].answers:  # on a busy host it was only late
            answers[name] = Answer(ITSELF, words.threads)
    deadline = time.monotonic() + _PY_SPY_WITHIN_S
    for name, (process, _) in waiting.items():
        if name not in answers and process.pid and time.monotonic() < deadline:
            answers[name] = _by_py_spy(process.pid)
    return answers


def ask_process(folder: Path, name: str, what: bytes) -> None:
    """Write into the pipe of a process, by its name. Never raises, waits for nobody."""
    pipe = folder / f"{name}{layout.ASK_SUFFIX}"
    try:
        number = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # it has none yet, or nobody sleeps on it any more
    try:
        os.write(number, what)
    except OSError:
        pass  # it is full: it was asked often, and never answered
    finally:
        os.close(number)


def _answers_of(
    asked: dict[str, tuple[WatchedProcess, tuple[int, int]]], by: str, within_s: float
) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    deadline = time.monotonic() + within_s
    while len(answers) < len(asked) and time.monotonic() < deadline:
        time.sleep(_LOOKS_EVERY_S)
        for name, (process, before) in asked.items():
            if name not in answers and _has_settled(process.stacks_state) != before:
                answers[name] = Answer(by, process.last_words().threads)
    return {name: answer for name, answer in answers.items() if answer.threads}


def _full_answers(asked: dict[str, tuple[WatchedProcess, int]]) -> set[str]:
    """Those that have said all, more often than before, within a moment."""
    names, deadline = set[str](), time.monotonic() + _TOLD_WITHIN_S
    while True:
        names |= {name for name in asked.keys() - names if asked[name][0].last_words().full_answers > asked[name][1]}
        if len(names) == len(asked) or time.monotonic() >= deadline:
            return names
        time.sleep(_LOOKS_EVERY_S)


def _has_settled(state: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    """Once nothing has been added for a moment."""
    before, after = None, state()
    while after != before:
        time.sleep(_LOOKS_EVERY_S / 4)
        before, after = after, state()
    return after


def _may_signal(process: WatchedProcess) -> bool:
    """Only where our own handler is: whose else it is, is nobody's to call."""
    number = process.last_words().signal
    if number != signal.SIGURG or not kernel.catches_signal(process.pid, number) or process.is_gone():
        return False
    try:
        if process.pidfd >= 0:
            signal.pidfd_send_signal(process.pidfd, number)
        else:
            os.kill(process.pid, number)
        return True
    except OSError:
        return False


def _by_py_spy(pid: int) -> Answer:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    py_spy = shutil.which("py-spy", path=path)
    if py_spy is None:
        return Answer()
    command = [py_spy, "dump", "--pid", str(pid), "--nonblocking", "--json"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=_PY_SPY_WITHIN_S,
        )  # fmt: skip
        listed = list_of(json.loads(done.stdout))
    except (OSError, ValueError, RecursionError, subprocess.SubprocessError):
        return Answer()  # not allowed, or of another version
    tables = [table_of(fields) for fields in listed[: stacks.THREADS_AT_MOST]]
    has_gil = any(fields.get("owns_gil") is True for fields in tables)
    return Answer(BY_PY_SPY, tuple(map(_of_py_spy, tables)), has_gil) if tables else Answer()


def _of_py_spy(fields: Any) -> ThreadStack:
    """Names as Python's own stacks have them: py-spy says `Thread.run` for `run`.

    Source: py-spy 0.4, `src/stack_trace.rs`, as serde writes it.
    """
    frames = (table_of(frame) for frame in list_of(fields.get("frames"))[: stacks.FRAMES_AT_MOST])
    calls = tuple(
        StackFrame(
            text_of(f.get("filename")), small_number(f.get("line")) or 0, text_of(f.get("name")).rpartition(".")[2]
        )
        for f in frames
    )
    tid = small_number(fields.get("os_thread_id")) or 0
    return ThreadStack(0, calls, tid, text_of(fields.get("thread_name")))
