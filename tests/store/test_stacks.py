"""What a process writes of its threads, read back: as CPython's faulthandler writes it, and as nobody should."""

from __future__ import annotations

import faulthandler
import threading
from pathlib import Path

import pytest

from mstxkit.store import stacks
from mstxkit.store.stacks import StackFrame, ThreadStack

TEXT = """@mstxkit begin {"threads": [[16, 4711, "MainThread"]], "signal": 23}
Thread 0x0000000000000011 (most recent call first):
  File "/a/b.py", line 7 in inner
  File "/a/c.py", line 9 in <module>

Current thread 0x0000000000000010 (most recent call first):
  File "/a/d.py", line 1 in main
"""


def test_threads_have_their_calls_innermost_first_and_are_named_where_that_is_known() -> None:
    words = stacks.read_stacks(TEXT)

    assert words.signal == 23
    assert words.threads == (
        ThreadStack(17, (StackFrame("/a/b.py", 7, "inner"), StackFrame("/a/c.py", 9, "<module>"))),
        ThreadStack(16, (StackFrame("/a/d.py", 1, "main"),), 4711, "MainThread"),
    )


def test_a_later_dump_replaces_an_earlier_one_and_exceptions_stay() -> None:
    raised = stacks.line_of(stacks.EXCEPTION, {"type": "ValueError"}).decode()
    words = stacks.read_stacks(TEXT + raised + TEXT.replace("inner", "deeper"))

    assert words.threads[0].frames[0].function == "deeper"
    assert [raised["type"] for raised in words.exceptions] == ["ValueError"]


def test_a_fatal_signal_is_told_in_cpythons_words() -> None:
    words = stacks.read_stacks(TEXT + "Fatal Python error: Segmentation fault\n\n" + TEXT.partition("\n")[2])

    assert words.fatal == "Segmentation fault"
    assert len(words.threads) == 2


def test_names_of_threads_are_read_as_python_3_14_writes_them() -> None:
    words = stacks.read_stacks('Thread 0x11 [scorer] (most recent call first):\n  File "x", line ??? in f\n')

    assert words.threads == (ThreadStack(17, (StackFrame("x", 0, "f"),), 0, "scorer"),)


def test_what_this_cpython_writes_is_read(tmp_path: Path) -> None:
    with (tmp_path / "dump").open("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    (mine,) = (
        thread for thread in stacks.read_stacks((tmp_path / "dump").read_text()).threads
        if thread.ident == threading.get_ident()
    )  # fmt: skip

    assert mine.frames[0].function == "test_what_this_cpython_writes_is_read"


@pytest.mark.parametrize(
    "text",
    [
        "", "\0" * 100, "@mstxkit threads [", "@mstxkit threads " + "[" * 100_000, '@mstxkit threads {"threads": 1}',
        'Thread 0x11 (most recent call first):\n  File "x", line 99999999999999 in f', "  File \"x\", line 1 in f",
        '@mstxkit begin {"threads": [[1e999, -1, {}], "x", []], "signal": -1}',
    ],
)  # fmt: skip
def test_hostile_text_is_read_without_an_error(text: str) -> None:
    assert all(frame.line >= 0 for thread in stacks.read_stacks(text).threads for frame in thread.frames)


def test_a_stack_survives_json_and_a_hostile_one_is_cut() -> None:
    thread = ThreadStack(0, (StackFrame("a.py", 3, "f"),), 5, "main")

    assert ThreadStack.read(thread.as_json()) == thread
    assert ThreadStack.read({"frames": [[1], "x", ["a" * 10_000, 1 << 70, None]]}).frames == (
        StackFrame("a" * 300, 0, ""),
    )
