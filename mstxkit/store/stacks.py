"""`<process>.stacks` beside a live file: what each thread of Python was at, exceptions and signals that ended it.

Text. Lines that begin with `@mstxkit` are ours, JSON after a word; what lies between is as CPython's faulthandler
writes it, from a signal handler at times, and so never trusted.

Source: CPython 3.9 to 3.14, `Python/traceback.c` (`_Py_DumpTracebackThreads`), `Modules/faulthandler.c`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, NamedTuple

from .values import list_of, small_number, table_of, text_of

BEGIN, THREADS, EXCEPTION, TOLD = "begin", "threads", "exception", "told"
# Of a file nobody reads more than its end; of a thread its innermost frames.
LIMIT_BYTES = 1 << 20
FRAMES_AT_MOST, THREADS_AT_MOST, _TEXT_AT_MOST = 64, 128, 300
_MARK = "@mstxkit "
# What is written into the pipe of a process: that its threads are wanted, its ring as well; that there is news to log.
ASK_THREADS, ASK_ALL, NEWS = b"?", b"!", b"n"
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]{1,16})(?: \[(.*?)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)')
_FATAL = re.compile(r"Fatal Python error: (.*)")


class StackFrame(NamedTuple):
    """A call. `line` 0: not known."""

    file: str
    line: int
    function: str


class ThreadStack(NamedTuple):
    """What a thread was at, innermost call first.

    Args:
        ident: Python's number of the thread.
        tid: The kernel's; 0 where it is not known.
        name: Python's; "" where it is not known.
    """

    ident: int
    frames: tuple[StackFrame, ...] = ()
    tid: int = 0
    name: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"tid": self.tid, "name": self.name, "frames": [list(frame) for frame in self.frames]}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> ThreadStack:
        """Of these; what is none is left out."""
        frames = [frame for frame in map(list_of, list_of(fields.get("frames"))[:FRAMES_AT_MOST]) if len(frame) == 3]
        read = (
            StackFrame(_short(text_of(file)), small_number(line) or 0, _short(text_of(function)))
            for file, line, function in frames
        )
        return cls(0, tuple(read), small_number(fields.get("tid")) or 0, _short(text_of(fields.get("name"))))


class LastWords(NamedTuple):
    """All that a file says.

    Args:
        threads: As they were written last.
        exceptions: Of each that nobody caught: `type`, `text`, `thread`, `is_main`, `time_ns`, `who`.
        fatal: The signal that ended it, in CPython's words; "" where none did.
        signal: Whoever sends this one has all threads written; 0: nobody is there to do so.
        answers: How often it has written them itself, as it was asked, with the GIL.
        full_answers: How often it has also said who it is, and handed over its ring where that was asked for.
    """

    threads: tuple[ThreadStack, ...] = ()
    exceptions: tuple[Mapping[str, Any], ...] = ()
    fatal: str = ""
    signal: int = 0
    answers: int = 0
    full_answers: int = 0


def line_of(word: str, fields: Mapping[str, Any]) -> bytes:
    """A line of ours."""
    return f"{_MARK}{word} {json.dumps(dict(fields))}\n".encode()


def read(text: str) -> LastWords:
    """What is said in a file, or in its end."""
    threads: dict[int, list[StackFrame]] = {}
    about: dict[int, tuple[int, str]] = {}
    exceptions: list[Mapping[str, Any]] = []
    fatal, frames, signal, answers, full_answers = "", list[StackFrame](), 0, 0, 0
    for line in text[-LIMIT_BYTES:].splitlines():
        if line.startswith(_MARK):
            word, _, rest = line[len(_MARK) :].partition(" ")
            fields = _object(rest)
            if word in (BEGIN, THREADS):
                about, threads = _about(fields), {}
                signal = small_number(fields.get("signal")) or signal
                answers += word == THREADS
            elif word == EXCEPTION:
                exceptions.append(fields)
            full_answers += word == TOLD
        elif match := _THREAD.match(line):
            frames = threads[int(match[1], 16)] = []
            if match[2]:
                about.setdefault(int(match[1], 16), (0, _short(match[2])))
        elif match := _FRAME.match(line):
            frames.append(StackFrame(_short(match[1]), int(match[2]) if match[2].isdecimal() else 0, _short(match[3])))
        elif match := _FATAL.match(line):
            fatal, threads = _short(match[1]), {}
    stacks = [
        ThreadStack(ident, tuple(frames[:FRAMES_AT_MOST]), *about.get(ident, (0, "")))
        for ident, frames in list(threads.items())[:THREADS_AT_MOST]
    ]
    return LastWords(tuple(stacks), tuple(exceptions[-THREADS_AT_MOST:]), fatal, signal, answers, full_answers)


def _about(fields: Mapping[str, Any]) -> dict[int, tuple[int, str]]:
    """(tid, name) of each thread by Python's number of it."""
    listed = [list_of(row) for row in list_of(fields.get(THREADS))[:THREADS_AT_MOST]]
    return {
        row[0]: (small_number(row[1]) or 0, _short(text_of(row[2])))
        for row in listed
        if len(row) == 3 and type(row[0]) is int
    }


def _object(text: str) -> Mapping[str, Any]:
    try:
        return table_of(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _short(text: str) -> str:
    return text[:_TEXT_AT_MOST]
