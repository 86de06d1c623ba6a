"""Many at once: threads of one process, processes of one run, starters of one run, runs on one host."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

from builders import lives
from builders.threads import on_threads

import mstxkit
from mstxkit import faults
from mstxkit.engine.choose import engine
from mstxkit.host import names
from mstxkit.marking import wrapping

THREADS, RANGES = 64, 500


def test_64_threads_record_at_once_and_nothing_is_lost_or_doubled(run: Path) -> None:
    barrier = threading.Barrier(THREADS)

    def work(thread: int) -> None:
        barrier.wait()
        with mstxkit.stage(f"stage of {thread}"):
            for number in range(RANGES):
                with mstxkit.mstx_range("x", thread=thread, number=number):
                    pass

    with mstxkit.capture(run, bank_bytes=1 << 20, banks=8):
        on_threads(THREADS, work)
        status = mstxkit.status()

    rows = lives.ranges(run)
    found = Counter((row["attributes"]["thread"], row["attributes"]["number"]) for row in rows if row["name"] == "x")
    assert (status.counters["dropped"], status.counters["open"], status.faults) == (0, 0, {})
    assert found == {(thread, number): 1 for thread in range(THREADS) for number in range(RANGES)}
    assert {row["stage"] for row in rows if row["name"] == "x"} == {f"stage of {thread}" for thread in range(THREADS)}
    assert all(row["stage"] == f"stage of {row['attributes']['thread']}" for row in rows if row["name"] == "x")
    assert not [row for row in rows if row["open"] or row["error"]]


def test_64_threads_that_are_open_at_once_each_have_their_track(run: Path) -> None:
    inside, leave = threading.Barrier(THREADS + 1), threading.Event()

    def work(thread: int) -> None:
        with mstxkit.mstx_range(f"thread {thread}"):
            inside.wait()
            leave.wait()

    with mstxkit.capture(run):
        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        inside.wait()
        live = lives.ranges(run)
        leave.set()
        for thread in threads:
            thread.join()

    assert lives.ended(run) == {f"thread {thread}": 1 for thread in range(THREADS)}
    assert {row["name"] for row in live if row["open"]} == {f"thread {thread}" for thread in range(THREADS)}
    assert len({row["track"] for row in live}) == THREADS


PROGRAM = """
    import os, sys, mstxkit
    started = mstxkit.capture(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(200):
        with mstxkit.stage("work", number=number):
            pass
"""


def test_8_processes_start_one_run_at_once(run: Path) -> None:
    """They race for run.json, whose id the first one writes; all record into one run, and take its folder away at the
    end.
    """
    started = [lives.start(PROGRAM, run, RANK=str(rank)) for rank in range(8)]
    ended = [lives.finished(process) for process in started]

    rows = lives.ranges(run)
    assert [status for status, _, _ in ended] == [0] * 8, ended
    by_rank = {rank: [row["attributes"]["number"] for row in rows if row["rank"] == rank] for rank in range(8)}
    assert by_rank == {rank: list(range(200)) for rank in range(8)}
    assert [(row["rank"], row["state"]) for row in lives.processes(run)] == [(rank, "ended") for rank in range(8)]
    assert not lives.damage(run)


def test_starters_that_race_agree_on_the_runs_id(run: Path) -> None:
    """All begin at the same moment, in one process, as many processes would."""
    from mstxkit.store import run_file

    barrier, found = threading.Barrier(16), []

    def open_it() -> None:
        barrier.wait()
        found.append(run_file.open_run_folder(run)[1])

    on_threads(16, lambda _: open_it())

    assert found == [lives.run_id(run)] * 16
    assert sorted(path.name for path in run.iterdir()) == ["live", "run.json", "sealed"]


def test_what_others_left_is_adopted_by_the_next_start_on_the_host(run: Path) -> None:
    lives.leave_dead(run, 3)
    with mstxkit.capture(run):
        assert lives.wait_until(lambda: len(list((run / "live").iterdir())) == 1)

    assert Counter(row["state"] for row in lives.processes(run)) == {"killed": 3, "ended": 1}
    assert lives.ended(run) == {"ended": 3}
    assert lives.still_open(run) == {"open": 3}


def test_adopters_at_once_share_the_work_and_double_nothing(run: Path) -> None:
    lives.leave_dead(run, 6)
    collect = "import json, sys; from mstxkit.recorder import adopt; print(json.dumps(adopt.collect_dead(sys.argv[1])))"
    adopters = [lives.start(collect, run) for _ in range(4)]
    adopted = [one for process in adopters for one in json.loads(lives.finished(process)[1])]

    assert len({name for name, _, _ in adopted}) == len(adopted) == 6
    assert lives.ended(run) == {"ended": 6}
    assert not list((run / "live").iterdir())


def test_what_ends_while_another_ranges_text_is_encoded_is_kept(run: Path) -> None:
    """A text that is no UTF-8 is encoded in Python, and other threads run: here the hook records, as they would."""
    told: list[str] = []

    def utf8(text: str) -> bytes:
        told.append(text)
        for _ in range(10):
            with mstxkit.mstx_range("meanwhile"):
                pass
        return names.utf8(text)

    with mstxkit.capture(run):
        engine.set_hooks(names.describe_site, utf8, faults.note_fault, wrapping.decorate_target)
        try:
            with mstxkit.mstx_range("with a text", key="value \udcff"):
                pass
        finally:
            engine.set_hooks(names.describe_site, names.utf8, faults.note_fault, wrapping.decorate_target)

    ended = lives.ended(run)
    assert ended["with a text"] == 1
    assert ended["meanwhile"] == 10 * len(told) > 0
    assert [row["attributes"] for row in lives.ranges(run) if row["attributes"]] == [{"key": "value \\udcff"}]
