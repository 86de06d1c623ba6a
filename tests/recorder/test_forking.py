"""Before a fork our threads are gone for the kernel too, whether they were joined or ended by themselves."""

from __future__ import annotations

import os
import threading
import time

import pytest
from builders import lives

from mstxkit.recorder import forking
from mstxkit.recorder.background import Background

ENDS_BY_ITSELF = """
    import os, threading, time
    from mstxkit.recorder import forking
    from mstxkit.recorder.background import Background
    forking._COUNTS = True

    class EndsSlowly:
        def __del__(self):
            time.sleep(0.02)

    def turn():
        local.held = EndsSlowly()
        return False

    def listed():
        return set(os.listdir("/proc/self/task"))

    local = threading.local()
    background = Background("ends", turn)
    before = listed()
    for _ in range(10):
        background.start()
        while background.runs:
            time.sleep(0.001)
        forking.end_threads(lambda deadline: int(background.pause(deadline)), time.monotonic() + 60)
        assert listed() == before
"""


def test_a_thread_that_ends_by_itself_is_not_listed_any_more() -> None:
    process = lives.start(ENDS_BY_ITSELF)
    status, _, err = lives.finished(process)

    assert (status, err) == (0, "")


def test_a_thread_that_has_the_number_of_one_long_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_COUNTS", True)
    background = Background("stays", lambda: background.sleep(60) or True)
    background.start()
    assert lives.wait_until(lambda: background._thread.native_id is not None)
    thread = str(background._thread.native_id)
    monkeypatch.setattr(forking, "_left", [(thread, time.monotonic() - 2)])
    waited: list[float] = []
    monkeypatch.setattr(forking.time, "sleep", waited.append)

    forking.end_threads(lambda deadline: 0, time.monotonic() + 60)
    assert waited == [] and thread in os.listdir("/proc/self/task")
    assert background.pause()


def test_a_thread_that_ends_as_soon_as_it_is_asked_counts_as_one_that_has_ended() -> None:
    """All are asked before any is waited for. Else a fork took it for one that goes on: Python 3.12 warned of it."""
    asked = threading.Event()
    background = Background("ends at once", asked.wait, asked.set)
    background.start()
    background.ask()
    assert lives.wait_until(lambda: not background.runs)

    assert background.pause()
    assert not background.pause(), "there is none any more"
