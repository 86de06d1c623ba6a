"""What our threads wait for, whatever a library has put in the place of threads since."""

from __future__ import annotations

import threading
import time

import pytest

from mstxkit.host.threads import Latch


def test_a_latch_is_waited_for_until_it_is_set_and_again_once_it_is_cleared() -> None:
    latch = Latch()
    assert not latch.wait(0.01) and not latch.is_set

    setting = threading.Timer(0.05, latch.set)
    setting.start()
    assert latch.wait(60) and latch.wait(60) and latch.is_set
    setting.join()

    latch.set()
    latch.clear()
    assert not latch.wait(0.01) and not latch.wait(0.01)


def test_all_that_wait_for_it_go_on() -> None:
    latch, went_on = Latch(), []
    waiting = [threading.Thread(target=lambda: went_on.append(latch.wait(60))) for _ in range(8)]
    for thread in waiting:
        thread.start()
    time.sleep(0.05)
    latch.set()
    for thread in waiting:
        thread.join()

    assert went_on == [True] * 8


def test_a_wait_makes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where gevent has replaced threads since, a lock that one of our threads makes and waits for is a task's."""
    latch = Latch()

    def refuse() -> None:
        raise AssertionError("a lock was made")

    monkeypatch.setattr(threading, "_allocate_lock", refuse)
    with pytest.raises(AssertionError):
        threading.Event().wait(0.01)
    assert not latch.wait(0.01)
    latch.set()
    assert latch.wait(0.01)
