"""`<process>.stacks` beside a live file: what each thread of Python was at, exceptions and signals that ended it.

Who sees that it is gone adds when and how; once a watchman has told of it, it is `<process>.told`. Who seals the live
file takes what it says of the death along.

Text. Lines that begin with `@mstxkit` are ours, JSON after a word; what lies between is as CPython's faulthandler
writes it, from a signal handler at times, and so never trusted.

Source: CPython 3.9 to 3.14, `Python/traceback.c` (`_Py_DumpTracebackThreads`), `Modules/faulthandler.c`.
"""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from . import documents, layout
from .values import count_of, list_of, short_text, small_number

BEGIN, THREADS, EXCEPTION, TOLD, GONE = "begin", "threads", "exception", "told", "gone"
# Who says that one is gone, where no process of the run does.
WATCHMAN = "watchman"
# By which a process ends through its own fault, with what CPython calls them; and by which others end it.
_CALLED = {4: "Illegal instruction", 6: "Aborted", 7: "Bus error", 8: "Floating", 11: "Segmentation fault"}
FATAL, KILL, TERMINATE = frozenset(_CALLED), 9, 15
# Of a file nobody reads more than its end; of a thread its innermost frames.
LIMIT_BYTES = 1 << 20
FRAMES_AT_MOST, THREADS_AT_MOST, _TEXT_AT_MOST = 64, 128, 300
_MARK = "@mstxkit "
_short = short_text(_TEXT_AT_MOST)
_ADDS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
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
    """What a thread was at, innermost call first."""

    ident: int  # Python's number of the thread
    frames: tuple[StackFrame, ...] = ()
    tid: int = 0  # the kernel's; 0 where it is not known
    name: str = ""  # Python's; "" where it is not known

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"tid": self.tid, "name": self.name, "frames": [list(frame) for frame in self.frames]}

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> ThreadStack:
        """Of these; what is none is left out."""
        frames = [frame for frame in map(list_of, list_of(fields.get("frames"))[:FRAMES_AT_MOST]) if len(frame) == 3]
        read = (StackFrame(_short(file), count_of(line), _short(function)) for file, line, function in frames)
        return cls(0, tuple(read), count_of(fields.get("tid")), _short(fields.get("name")))


class LastWords(NamedTuple):
    """All that a file says."""

    threads: tuple[ThreadStack, ...] = ()  # as they were written last
    # Of each that nobody caught: `type`, `text`, `thread`, `is_main`, `time_ns`, `who`.
    exceptions: tuple[Mapping[str, Any], ...] = ()
    fatal: str = ""  # the signal that ended it, in CPython's words; "" where none did
    signal: int = 0  # whoever sends this one has all threads written; 0: nobody is there to do so
    answers: int = 0  # how often it has written them itself, as it was asked, with the GIL
    full_answers: int = 0  # how often it has also said who it is, and handed over its ring where that was asked for
    gone: Mapping[str, Any] = {}  # of whoever saw that it was gone: `by`, `gone_ns`, `watched`, `signal`

    @property
    def death(self) -> dict[str, Any]:
        """What the end of a process says of that."""
        fields = {key: self.gone.get(key) for key in ("by", "gone_ns", "watched", "signal")}
        return {key: value for key, value in {**fields, "fatal": self.fatal}.items() if value}


def signal_name(number: object, fatal: str = "") -> str:
    """`SIGSEGV`, by its number or by CPython's words; these where they are of none; "" for none."""
    value = small_number(number) or next((n for n, words in _CALLED.items() if fatal.startswith(words)), 0)
    try:
        return signal.Signals(value).name if value else fatal
    except ValueError:
        return f"signal {value}"


def line_of(word: str, fields: Mapping[str, Any]) -> bytes:
    """A line of ours."""
    return f"{_MARK}{word} {json.dumps(dict(fields))}\n".encode()


def add_death(live_file: Path, by: str, gone_ns: int, **more: Any) -> None:
    """Say that the process of a live file is gone, as a process of the run of this name, or WATCHMAN, saw. Never
    raises: whoever seals that says when he saw it. `gone_ns`: CLOCK_MONOTONIC. `more`: `watched`, was it seen at that
    moment, and `signal`.
    """
    line = b"\n" + line_of(GONE, {"by": by, "gone_ns": gone_ns, **more})
    for suffix, made in ((layout.STACKS_SUFFIX, 0), (layout.TOLD_SUFFIX, os.O_CREAT)):
        try:
            descriptor = os.open(live_file.with_suffix(suffix), _ADDS | made, documents.FILE_MODE)
        except OSError:
            continue
        os.write(descriptor, line)
        os.close(descriptor)
        return


def left_beside(live_file: Path) -> LastWords:
    """What is left of the process of a live file, told of or not."""
    for suffix in (layout.TOLD_SUFFIX, layout.STACKS_SUFFIX):
        try:
            content = documents.read_small(live_file.with_suffix(suffix), 2 * LIMIT_BYTES)
        except (OSError, documents.Unusable):
            content = None
        if content is not None:
            return read_stacks(content.decode("utf-8", "replace"))
    return LastWords()


def read_stacks(text: str) -> LastWords:
    """What is said in a file, or in its end."""
    threads: dict[int, list[StackFrame]] = {}
    about: dict[int, tuple[int, str]] = {}
    exceptions: list[Mapping[str, Any]] = []
    fatal, frames, sent, answers, full_answers, gone = "", list[StackFrame](), 0, 0, 0, dict[str, Any]()
    for line in text[-LIMIT_BYTES:].splitlines():
        if line.startswith(_MARK):
            word, _, rest = line[len(_MARK) :].partition(" ")
            fields = documents.object_in(rest)
            if word in (BEGIN, THREADS):
                about, threads = _read_threads(fields), {}
                sent = small_number(fields.get("signal")) or sent
                answers += word == THREADS
            elif word == EXCEPTION:
                exceptions.append(fields)
            elif word == GONE:
                # A process of the run watches the others, and the watchman looks at them now and then.
                gone = {**fields, **gone} if fields.get("by") == WATCHMAN else {**gone, **fields}
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
    return LastWords(tuple(stacks), tuple(exceptions[-THREADS_AT_MOST:]), fatal, sent, answers, full_answers, gone)


def _read_threads(fields: Mapping[str, Any]) -> dict[int, tuple[int, str]]:
    """(tid, name) of each thread by Python's number of it."""
    listed = [list_of(row) for row in list_of(fields.get(THREADS))[:THREADS_AT_MOST]]
    return {row[0]: (count_of(row[1]), _short(row[2])) for row in listed if len(row) == 3 and type(row[0]) is int}
