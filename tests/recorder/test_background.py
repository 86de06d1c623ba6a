"""A thread of ours around a fork: held where it rests, let go of where it is at work, and gone on with after that."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest
from builders import lives

from mstxkit.recorder.background import Background


class Turns:
    """A thread that rests, works, and works for long and gives way in between, each for as long as it is told."""

    def __init__(self) -> None:
        self.rests, self.works, self.steps = threading.Event(), threading.Event(), 0
        self.is_at = ""
        self.background = Background("turns", self.turn)

    def turn(self) -> bool:
        self.is_at = "rest"
        self.background.rest(self.rests.wait)
        self.is_at = "work"
        self.works.wait()
        self.is_at = "long work"
        while self.background.give_way():
            self.steps += 1
            time.sleep(0.001)
        return True

    def come_to(self, place: str) -> None:
        assert lives.wait_until(lambda: self.is_at == place)


@pytest.fixture
def turns() -> Iterator[Turns]:
    its = Turns()
    its.background.start()
    yield its
    its.rests.set()
    its.works.set()
    its.background.go_on()
    its.background.pause()


def test_who_rests_is_held_at_once_and_does_not_go_on_until_it_may(turns: Turns) -> None:
    turns.come_to("rest")
    is_held = turns.background.hold(0.0)
    turns.rests.set()
    time.sleep(0.05)
    was_at = turns.is_at
    turns.background.go_on()

    assert (is_held, was_at) == (True, "rest")
    turns.come_to("work")


def test_who_is_at_work_is_left_behind_and_held_the_next_time(turns: Turns) -> None:
    turns.rests.set()
    turns.come_to("work")
    is_held = turns.background.hold(time.monotonic() + 0.05)
    turns.background.go_on()
    turns.rests.clear()
    turns.works.set()
    turns.come_to("long work")

    assert not is_held
    assert turns.background.hold(time.monotonic() + 30)


def test_who_works_for_long_gives_way_and_goes_on_where_it_was(turns: Turns) -> None:
    turns.rests.set()
    turns.works.set()
    turns.come_to("long work")
    for _ in range(20):
        assert turns.background.hold(time.monotonic() + 30)
        done = turns.steps
        time.sleep(0.005)
        assert turns.steps == done
        turns.background.go_on()
        assert lives.wait_until(lambda done=done: turns.steps > done)

    assert turns.is_at == "long work"


def test_our_threads_are_the_same_after_a_fork_and_record_on(tmp_path: Path) -> None:
    """Not one of them is ended and started again where Python does not warn of them."""
    with lives.own_run(tmp_path) as run:
        lives.run(
            """
            import os, sys, threading, mstxkit
            from mstxkit.recorder import forking
            forking.warns_of = lambda ours: False
            mstxkit.capture(sys.argv[1], seal_every_s=0.05)
            def ours():
                return {t for t in threading.enumerate() if t.name.startswith("mstxkit")}
            before = ours()
            for number in range(20):
                with mstxkit.mstx_range(f"range {number}"):
                    pass
                if (pid := os.fork()) == 0:
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            assert before and before <= ours()
            """,
            run,
        )

        assert len(lives.ended(run)) == 20


def test_of_two_threads_that_fork_at_once_one_waits_in_vain_and_the_lock_is_free_after_both(tmp_path: Path) -> None:
    with lives.own_run(tmp_path) as run:
        lives.run(
            """
            import os, sys, threading, mstxkit
            from mstxkit import capturing
            mstxkit.capture(sys.argv[1])
            capturing._before_fork()  # as another thread does, whose fork takes long
            other = threading.Thread(target=lambda: (capturing._before_fork(), capturing._after_fork_in_parent()))
            other.start()
            other.join()
            capturing._after_fork_in_parent()
            free = []
            third = threading.Thread(target=lambda: free.append(capturing._beside.lock.acquire(timeout=10)))
            third.start()
            third.join()
            assert free == [True]
            os._exit(0)
            """,
            run, is_patient=False,
        )  # fmt: skip
        lives.run("import sys; from mstxkit.recorder import adopt; adopt.collect_dead(sys.argv[1])", run)


@pytest.mark.parametrize(("listed", "ours", "warns"), [(3, 2, True), (4, 2, False), (1, 0, True)])
def test_python_warns_of_our_threads_only_where_there_are_no_others(
    listed: int, ours: int, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mstxkit.recorder import forking

    monkeypatch.setattr(forking, "_COUNTS", True)
    monkeypatch.setattr(os, "listdir", lambda folder: [f"{number}" for number in range(listed)])

    assert forking.warns_of(ours) is warns
