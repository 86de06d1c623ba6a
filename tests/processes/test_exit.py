"""How a process ends its recording: by itself at exit, whatever way it leaves Python, else by adoption."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import lives

from mstxkit.recorder import adopt

RECORDS = """
    import os, sys, threading, time, mstxkit
    mstxkit.capture(sys.argv[1])
    with mstxkit.mstx_range("work"):
        pass
"""
WAYS_OUT = {
    "by running off its end": ("", 0),
    "by sys.exit": ("sys.exit(3)", 3),
    "by an exception": ("1 / 0", 1),
    "by sys.exit in a thread": ("thread = threading.Thread(target=sys.exit); thread.start(); thread.join()", 0),
    "by an exception in an atexit function": ("import atexit; atexit.register(lambda: 1 / 0)", 0),
    "with a range open that is never closed": ("kept = mstxkit.mstx_range('forgotten'); kept.__enter__()", 0),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_process_seals_its_recording_however_it_leaves_python(run: Path, way: str) -> None:
    leave, status = WAYS_OUT[way]
    lives.run(lives.dedented(RECORDS) + leave, run, status=status)

    assert lives.ended(run) == {"work": 1}
    assert [row["state"] for row in lives.processes(run)] == ["ended"]
    assert not list((run / "live").iterdir())
    assert not lives.live_folder(run).exists()


def test_what_is_open_at_exit_is_named(run: Path) -> None:
    lives.run(
        lives.dedented(RECORDS) + "stage = mstxkit.stage('actor_update'); stage.__enter__()\n"
        "inner = mstxkit.mstx_range('forgotten'); inner.__enter__()",
        run,
    )

    found = [(row["name"], row["stage"], row["depth"]) for row in lives.ranges(run) if row["open"]]
    assert found == [("actor_update", "actor_update", 0), ("forgotten", "actor_update", 1)]


def test_os_exit_leaves_everything_to_adoption(run: Path) -> None:
    lives.run(lives.dedented(RECORDS) + "os._exit(4)", run, status=4)
    before = [row["state"] for row in lives.processes(run)]
    adopted = adopt.collect_dead(run)

    assert before == ["killed"]
    assert [(one.records, one.open_ranges) for one in adopted] == [(1, False)]
    assert lives.ended(run) == {"work": 1}
    assert [row["state"] for row in lives.processes(run)] == ["killed"]


def test_what_finalizers_and_earlier_exit_handlers_mark_after_the_end_is_counted_as_dropped(run: Path) -> None:
    lives.run(
        """
        import atexit, sys, weakref
        class Held:
            pass
        held = Held()
        def mark():
            with mstxkit.mstx_range("late"):
                pass
        weakref.finalize(held, mark)
        atexit.register(lambda: [mark() for _ in range(10)])
        import mstxkit
        mstxkit.capture(sys.argv[1])
        class Deleted:
            def __del__(self, mstx_range=mstxkit.mstx_range):
                with mstx_range("late"):
                    pass
        kept = Deleted()
        atexit.register(mark)
        """,
        run,
    )

    assert [(row["state"], row["dropped"]) for row in lives.processes(run)] == [("ended", 1 + 10 + 1)]
    assert lives.ended(run)["late"] == 1
    assert not lives.damage(run)


def test_daemon_threads_may_record_until_the_very_end(run: Path) -> None:
    """They are in the middle of ranges while the recorder stops: each is ended or open, none is both, the exit is
    clean.
    """
    out = lives.run(
        lives.dedented(RECORDS)
        + lives.dedented(
            """
            def work(k):
                number = 0
                while True:
                    with mstxkit.mstx_range(f"thread {k}", n=number):
                        number += 1
                    if number % 16 == 0:
                        time.sleep(0.0005)

            sys.setswitchinterval(0.0001)
            for k in range(6):
                threading.Thread(target=work, args=(k,), daemon=True).start()
            time.sleep(0.1)
            """
        ),
        run, MSTXKIT_BANK_BYTES="65536", MSTXKIT_BANKS="64",
    )  # fmt: skip

    rows = lives.ranges(run)
    assert not out
    for k in range(6):
        numbers = [row["attributes"]["n"] for row in rows if row["name"] == f"thread {k}" and not row["open"]]
        assert numbers == list(range(len(numbers)))
        assert sum(row["open"] for row in rows if row["name"] == f"thread {k}") <= 1
    assert [(row["state"], row["dropped"]) for row in lives.processes(run)] == [("ended", 0)], (
        "after it nothing is lost"
    )
    assert not lives.damage(run)


def test_an_exit_in_the_middle_of_an_adoption_leaves_the_rest_to_the_next_one(run: Path) -> None:
    lives.leave_dead(run, 3)
    lives.run("import sys, mstxkit; mstxkit.capture(sys.argv[1])", run)
    adopt.collect_dead(run)

    assert lives.ended(run) == {"ended": 3}
    assert lives.still_open(run) == {"open": 3}
    assert not list((run / "live").iterdir())


def test_what_exit_handlers_of_the_program_do_is_recorded(run: Path) -> None:
    """Also of one that was registered before capture began, and of one that a later import registers."""
    lives.run(
        """
        import atexit, sys
        import mstxkit
        def saves(name):
            with mstxkit.stage(name):
                pass
        atexit.register(saves, "checkpoint")
        mstxkit.capture(sys.argv[1])
        atexit.register(saves, "upload")
        with mstxkit.stage("train"):
            pass
        """,
        run,
    )

    assert lives.ended(run) == {"train": 1, "upload": 1, "checkpoint": 1}
    assert [row["state"] for row in lives.processes(run)] == ["ended"]
