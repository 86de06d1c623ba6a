"""Signals are for the program's own threads: none that it blocks is taken by one of ours."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from builders import lives

from mstxkit.host import detached, threads


@pytest.mark.twin
@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "lambda *_: print('in the middle of it')"])
def test_what_a_program_blocks_to_take_it_later_waits_for_it(run: Path, handler: str) -> None:
    """It ended the process as our threads took it, or was handled while a checkpoint was being saved, say."""
    said = lives.run(
        f"""
        import os, signal, sys, threading, time, mstxkit
        mstxkit.capture(sys.argv[1])
        with mstxkit.stage("save"):
            while threading.active_count() < 3:  # of last words is the last one to begin
                time.sleep(0.01)
            signal.signal(signal.SIGUSR1, {handler})
            signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1}})
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)
            print("saved", signal.SIGUSR1 in signal.sigpending())
        print(signal.sigtimedwait({{signal.SIGUSR1}}, 5).si_signo == signal.SIGUSR1)
        """,
        run,
    )

    assert said.split("\n") == ["saved True", "True", ""]


def test_a_handler_that_forks_waits_for_nothing_wherever_it_interrupts_us(run: Path) -> None:
    """As one of SIGCHLD does that starts a worker anew: it waited for ever for a start that it had interrupted."""
    said = lives.run(
        """
        import os, random, signal, sys, threading, time, mstxkit
        mstxkit.capture(sys.argv[1])
        handled, met = [], []
        def fork():
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
        def replace(_, frame):
            while frame is not None and not frame.f_code.co_filename.endswith("capturing.py"):
                frame = frame.f_back
            met.extend([frame] if frame is not None else [])
            fork()
            handled.append(time.monotonic())
        signal.signal(signal.SIGALRM, replace)
        forks, until_s = 0, time.monotonic() + 50
        while len(met) < 3 and time.monotonic() < until_s:
            if len(handled) == forks:
                forks += 1
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 6e-3))
            with mstxkit.mstx_range("forks"):
                fork()
        signal.setitimer(signal.ITIMER_REAL, 0)
        time.sleep(1)
        print(len(met) >= 3, [thread.name for thread in threading.enumerate()].count("mstxkit-sealer"))
        with mstxkit.mstx_range("last"):
            pass
        """,
        run, is_patient=False,
    )  # fmt: skip

    assert said == "True 1\n"
    assert lives.ended(run)["last"] == 1


def test_a_handler_that_stops_capture_does_so_once_a_fork_that_it_interrupts_is_over(run: Path) -> None:
    """As one of SIGTERM does: it waited for ever as well."""
    said = lives.run(
        """
        import os, random, signal, sys, time, mstxkit
        met, until_s = [], time.monotonic() + 50
        def stop(_, frame):
            while frame is not None and not frame.f_code.co_filename.endswith("capturing.py"):
                frame = frame.f_back
            met.extend([frame] if frame is not None else [])
            capture.stop()
        signal.signal(signal.SIGALRM, stop)
        while len(met) < 3 and time.monotonic() < until_s:
            capture = mstxkit.capture(sys.argv[1])
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 2e-2))
            while mstxkit.status().run is not None and time.monotonic() < until_s:
                with mstxkit.mstx_range("forks"):
                    pid = os.fork()
                    if not pid:
                        os._exit(0)
                    os.waitpid(pid, 0)
        print(len(met) >= 3, mstxkit.status().run)
        """,
        run, is_patient=False,
    )  # fmt: skip

    assert said == "True None\n"
    assert {row["state"] for row in lives.processes(run)} == {"ended"}


def test_what_is_started_apart_has_no_signal_blocked(tmp_path: Path) -> None:
    """Of our threads it got a mask in which nearly all of them are: nobody could have ended it but by SIGKILL."""
    answer, module = tmp_path / "answer", tmp_path / "asked_of_its_mask.py"
    module.write_text(
        "import os, signal, sys\n"
        "def main():\n"
        "    with open(sys.argv[1] + '.made', 'w') as file:\n"
        "        print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), file=file)\n"
        "    os.rename(sys.argv[1] + '.made', sys.argv[1])\n"
    )

    starting = threading.Thread(target=detached.start_module, args=(module.stem, [str(answer)], [str(tmp_path)]))
    threads.start_without_signals(starting)
    starting.join()
    until_s = time.monotonic() + 60
    while not answer.exists() and time.monotonic() < until_s:
        time.sleep(0.01)

    assert answer.read_text() == "[]\n"


def test_a_thread_of_ours_takes_no_signal_from_its_first_moment_on_and_its_starter_all_as_before() -> None:
    masks = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    thread = threading.Thread(target=lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    threads.start_without_signals(thread)
    thread.join()

    assert {signal.SIGUSR1, signal.SIGINT, signal.SIGTERM} <= masks[0] and signal.SIGSEGV not in masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
