"""A process's stacks: written where they are asked for, and signals as they were before, whoever had them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from builders import lives

from mstxkit import faults
from mstxkit.recorder.exits import Unhandled
from mstxkit.recorder.last_words import LastWordsHere
from mstxkit.store import stacks

BEGIN = """
    import ctypes, faulthandler, os, signal, sys, threading, mstxkit
    from mstxkit.recorder.stack_file import StackFile
    from pathlib import Path
    path = Path(sys.argv[1])
"""


def said(path: Path, program: str, status: int = 0) -> str:
    """What a program prints that has `path` for its stacks."""
    return lives.run(lives.dedented(BEGIN) + lives.dedented(program), path, status=status)


def test_signals_are_put_back_as_they_were(tmp_path: Path) -> None:
    program = """
        def caught():
            return next(line for line in open("/proc/self/status") if line.startswith("SigCgt"))
        before = caught()
        stacks = StackFile(path)
        during = caught()
        stacks.close()
        print(before == caught() != during, faulthandler.is_enabled(), path.exists())
    """

    assert said(tmp_path / "s", program).split() == ["True", "False", "False"]


def test_faulthandler_that_the_user_has_enabled_stays_his(tmp_path: Path) -> None:
    program = """
        own = open(sys.argv[1] + ".own", "w+")
        faulthandler.enable(own)
        stacks = StackFile(path)
        stacks.close()
        print(faulthandler.is_enabled())
        sys.stdout.flush()
        ctypes.string_at(0)
    """

    assert said(tmp_path / "s", program, status=-signal.SIGSEGV).split() == ["True"]
    assert "Segmentation fault" in (tmp_path / "s.own").read_text()


def test_faulthandler_that_the_user_enables_later_stays_his(tmp_path: Path) -> None:
    program = """
        stacks = StackFile(path)
        own = open(sys.argv[1] + ".own", "w+")
        faulthandler.enable(own)
        faulthandler.register(signal.SIGURG, own)
        stacks.close()
        os.kill(os.getpid(), signal.SIGURG)
        print(faulthandler.is_enabled())
    """

    assert said(tmp_path / "s", program).split() == ["True"]
    assert "most recent call first" in (tmp_path / "s.own").read_text()


def test_a_handler_that_the_user_has_for_the_signal_stays_his(tmp_path: Path) -> None:
    program = """
        signal.signal(signal.SIGURG, lambda *_: print("his"))
        stacks = StackFile(path)
        os.kill(os.getpid(), signal.SIGURG)
        stacks.close()
        os.kill(os.getpid(), signal.SIGURG)
        print(stacks.answers)
    """.replace("print(stacks.answers)", "")

    assert said(tmp_path / "s", program).split() == ["his", "his"]


@pytest.mark.parametrize(
    "sets", ["signal.signal(signal.SIGURG, lambda number, _: handler(number))", "libc.signal(signal.SIGURG, handler)"]
)
def test_a_handler_that_the_user_sets_later_for_the_signal_stays_his(tmp_path: Path, sets: str) -> None:
    program = f"""
        libc = ctypes.CDLL(None)
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: print("his", flush=True))
        stacks = StackFile(path)
        {sets}
        os.kill(os.getpid(), signal.SIGURG)
        stacks.close()
        os.kill(os.getpid(), signal.SIGURG)
    """

    assert said(tmp_path / "s", program).split() == ["his", "his"]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL])
def test_a_fatal_signal_ends_the_process_as_it_would_have_and_leaves_its_stack(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = f"""
        stacks = StackFile(path)
        def dies():
            os.kill(os.getpid(), {int(number)})
        dies()
    """
    said(tmp_path / "s", program, status=-number)

    text = (tmp_path / "s").read_text()
    assert "Fatal Python error" in text
    assert " in dies" in text


def test_a_handler_of_the_program_for_a_fatal_signal_is_called_all_the_same(tmp_path: Path) -> None:
    program = """
        libc = ctypes.CDLL(None)
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os._exit(33))
        libc.signal(signal.SIGABRT, handler)
        stacks = StackFile(path)
        os.kill(os.getpid(), signal.SIGABRT)
    """

    said(tmp_path / "s", program, status=33)


@pytest.mark.parametrize("leaves", ["close()", "close(is_left=True)"])
def test_a_handler_that_the_program_sets_later_for_a_fatal_signal_stays_its_own(tmp_path: Path, leaves: str) -> None:
    """As a library does that is imported later; at our end, or in a forked child."""
    program = f"""
        libc = ctypes.CDLL(None)
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os._exit(33))
        stacks = StackFile(path)
        libc.signal(signal.SIGABRT, handler)
        stacks.{leaves}
        print(faulthandler.is_enabled(), flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    """

    assert said(tmp_path / "s", program, status=33).split() == ["False"]


def test_a_second_fatal_signal_goes_where_it_would_have_gone_and_ends_the_process_as_it_would_have(
    tmp_path: Path,
) -> None:
    """The first one too: what the program does at it comes after our words."""
    program = """
        libc, seen = ctypes.CDLL(None), []
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(seen.append)
        libc.signal(signal.SIGABRT, handler)
        stacks = StackFile(path)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGABRT)
        print(len(seen), flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    """

    assert said(tmp_path / "s", program, status=-signal.SIGSEGV).split() == ["2"]
    assert (tmp_path / "s").read_text().count("Fatal Python error") == 2


def test_nothing_is_written_into_a_file_that_has_taken_our_number(tmp_path: Path) -> None:
    program = """
        stacks = StackFile(path)
        number = stacks._file.number
        os.close(number)
        other = open(sys.argv[1] + ".other", "wb")
        assert other.fileno() == number
        stacks.look()
        print(stacks.write("asked"), faulthandler.is_enabled())
        os.kill(os.getpid(), signal.SIGURG)
        stacks.close()
        other.close()
    """

    assert said(tmp_path / "s", program).split() == ["False", "False"]
    assert (tmp_path / "s.other").read_bytes() == b""


HOOKS = """
    import sys, threading
    from mstxkit.recorder.exits import Unhandled
    seen = []
    sys.excepthook = lambda *exc: print("his", exc[0].__name__)
    threading.excepthook = lambda args: print("his", args.exc_type.__name__)
    before = sys.excepthook, threading.excepthook
    hooks = Unhandled(seen.append)
"""


def test_hooks_are_chained_and_put_back() -> None:
    program = (
        HOOKS
        + """
    def raises():
        raise KeyError("x")
    thread = threading.Thread(target=raises, name="scorer")
    thread.start()
    thread.join()
    print(seen[0]["type"], seen[0]["thread"], seen[0]["is_main"])
    hooks.put_back()
    print((sys.excepthook, threading.excepthook) == before)
    """
    )

    assert lives.run(program).split() == ["his", "KeyError", "KeyError", "scorer", "False", "True"]


def test_a_hook_that_somebody_sets_later_stays_and_calls_ours_no_more() -> None:
    program = (
        HOOKS
        + """
    ours = sys.excepthook
    later = lambda *exc: ours(*exc)
    sys.excepthook = later
    hooks.put_back()
    sys.excepthook(ValueError, ValueError("x"), None)
    print(sys.excepthook is later, seen)
    """
    )

    assert lives.run(program).split() == ["his", "ValueError", "True", "[]"]


def test_ctrl_c_and_exit_are_no_exceptions_to_tell_of() -> None:
    seen: list[object] = []
    hooks = Unhandled(seen.append)
    hooks._in_main = lambda *_: None
    hooks._of_main(KeyboardInterrupt, KeyboardInterrupt(), None)
    hooks._of_main(SystemExit, SystemExit(1), None)
    hooks.put_back()

    assert seen == []


def test_a_look_that_comes_after_the_end_begins_nothing(tmp_path: Path) -> None:
    """The sealer's thread, which looks once a second, ends after all else."""
    words = LastWordsHere(tmp_path / "h-1-1.live")
    words.consider()
    during = sorted(path.suffix for path in tmp_path.iterdir())
    words.end(time.monotonic() + 20)
    words.consider()

    assert (len(during), list(tmp_path.iterdir())) == (2, [])


def test_where_ctypes_cannot_be_loaded_that_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.delitem(sys.modules, "mstxkit.recorder.stack_file", raising=False)
    words = LastWordsHere(tmp_path / "h-1-1.live")
    words.consider()
    words.end(time.monotonic() + 20)

    assert faults.counts == {"last_words": 1}


@pytest.mark.parametrize("harm", ["closed", "removed", "removed and made anew"])
def test_who_sleeps_in_a_pipe_that_is_lost_ends_all_the_same(tmp_path: Path, harm: str) -> None:
    """Else each fork would wait for it, and the end of the recorder longer than it may: its last records were lost."""
    (tmp_path / "live").mkdir()
    words = LastWordsHere(tmp_path / "live" / "h-1-1.live")
    words.consider()
    assert words._pipe is not None and lives.wait_until(lambda: not words.background.lacks_cpu)
    time.sleep(0.1)  # it is in the kernel by now, most probably
    if harm == "closed":
        os.close(words._pipe.number)
    else:
        shutil.rmtree(tmp_path / "live")
    if harm == "removed and made anew":
        (tmp_path / "live").mkdir()
        words._look()
    has_ended = words.background.pause(time.monotonic() + 10)
    words.end(time.monotonic() + 10)

    assert has_ended


def test_who_does_not_answer_at_the_end_leaves_time_to_seal(tmp_path: Path) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def hangs() -> None:
        asked.set()
        goes_on.wait()

    words = LastWordsHere(tmp_path / "h-1-1.live", hangs)
    words.consider()
    (tmp_path / "h-1-1.ask").write_bytes(stacks.ASK_ALL)
    assert asked.wait(20)
    deadline = time.monotonic() + 20
    words.end(deadline)
    is_left = deadline - time.monotonic()
    goes_on.set()

    assert is_left > 0
