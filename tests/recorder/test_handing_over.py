"""A process hands over what its stages took, soon after a step is over, also as it ends; training waits for nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

import pytest
from builders import lives, packing

import mstxkit
from mstxkit import capturing, faults
from mstxkit.cluster.gathering import Gathering
from mstxkit.engine.choose import engine
from mstxkit.host import folders, identity
from mstxkit.recorder import current, forking
from mstxkit.store import batches, handed_over, run_file, summaries
from mstxkit.store.documents import Unusable
from mstxkit.store.handed_over import HandedOver
from mstxkit.store.summaries import StageSummary


def rings(run: Path) -> list[Path]:
    """All that is handed over on this host, of this run."""
    run_id = run_file.id_of(run)
    assert run_id is not None
    return sorted((Path(folders.SHARED_MEMORY) / f"mstxkit-{os.geteuid()}" / run_id).glob("*.sums"))


def own_ring() -> Path:
    live: Path = current.recorder.live.path  # type: ignore[union-attr]
    return live.with_suffix(".sums")


def is_there(reader: HandedOver, rows: list[StageSummary], document: dict[str, Any], count: int) -> bool:
    """Were so many rows handed over by now?"""
    try:
        new = reader.read_new()
    except Unusable:
        return False
    rows += packing.summaries_of(new.rows)
    document.clear()
    document.update(new.document)
    return len(rows) >= count


def wait_for(path: Path, count: int) -> tuple[list[StageSummary], dict[str, Any]]:
    reader, rows, document = HandedOver(path), [], {}
    assert lives.wait_until(lambda: is_there(reader, rows, document, count))
    return rows, document


def train(first: int, last: int) -> None:
    for number in range(first, last):
        mstxkit.step(number)
        with mstxkit.stage("rollout", tokens=100 + number, prompts=4):
            pass
        with mstxkit.stage("update"):
            pass


def test_a_step_is_handed_over_with_what_names_it(run: Path) -> None:
    with mstxkit.capture(run):
        mstxkit.identify(rank=3, role="actor")
        before = time.monotonic_ns()
        train(5, 6)
        mstxkit.step(6)
        rows, document = wait_for(own_ring(), 2)

    stages = document["stages"]
    assert {stages[row.stage - 1]: (row.step, row.tokens, row.responses) for row in rows} == {
        "rollout": (5, 105, 4), "update": (5, None, None)
    }  # fmt: skip
    assert len(rows) == 2
    assert all(before <= row.entered_ns <= row.left_ns <= time.monotonic_ns() for row in rows)
    assert (document["step"], document["end"], document["lost"]) == (6, False, 0)
    assert 0 < document["cpu"][1] < document["cpu"][0]
    assert (document["who"]["rank"], document["who"]["role"], document["who"]["pid"]) == (3, "actor", os.getpid())


WAITS = """
    import sys, time, mstxkit
    with mstxkit.capture(sys.argv[1]):
        mstxkit.step(0)
        for name, whom in zip(sys.argv[2::2], sys.argv[3::2]):
            with mstxkit.stage(name, waits_for=None if whom == "nobody" else whom):
                pass
        mstxkit.step(1)
        print("there", flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("stages", "is_controller", "waits_for"),
    [
        ({"actor_update": "nobody"}, False, {}),
        ({"wait_for_samples": "rollout", "actor_update": "nobody"}, False, {"wait_for_samples": "rollout"}),
        ({"wait_for_samples": "rollout"}, True, {"wait_for_samples": "rollout"}),
        ({"actor_generate": "workers", "adv": "nobody"}, True, {"actor_generate": "workers"}),
    ],
    ids=["computes", "computes too", "only waits", "has workers"],
)
def test_a_stage_that_waits_is_told_with_whom_and_who_only_waits_or_has_workers_is_a_controller(
    run: Path, stages: dict[str, str], is_controller: bool, waits_for: dict[str, str]
) -> None:
    """verl's trainer is an actor of Ray's, and no driver: its waits passed for a rank's work."""
    run_file.open_run_folder(run)
    arguments = [word for pair in stages.items() for word in pair]
    waiting = lives.start(WAITS, run, *arguments)
    assert waiting.stdout is not None and waiting.stdout.readline() == "there\n"
    assert lives.wait_until(lambda: bool(rings(run)))
    (path,) = rings(run)
    wait_for(path, len(stages))
    (handed,) = Gathering(path.parent).gather()
    lives.finished(waiting)

    assert (handed.process.waits, handed.process.waits_for) == (is_controller, waits_for)


def test_a_process_without_stages_has_no_ring(run: Path) -> None:
    with mstxkit.capture(run):
        for number in range(3):
            mstxkit.step(number)
            with mstxkit.mstx_range("plain"):
                pass
        current.recorder.sealer.handing_over.hand_over()  # type: ignore[union-attr]

        assert not own_ring().exists()


ENDS = """
    import sys, mstxkit
    with mstxkit.capture(sys.argv[1]):
        for number in range(3):
            mstxkit.step(number)
            with mstxkit.stage("rollout"):
                pass
        with mstxkit.stage("update"):
            pass
"""


def test_who_ends_leaves_its_last_step_for_its_keeper(run: Path) -> None:
    with mstxkit.capture(run):
        assert lives.wait_until(lambda: (own_ring().parent / f"keeper-{identity.name_host()}.life").exists())
        capturing._beside.keeper.ask("end", time.monotonic())  # type: ignore[union-attr]  # it reads it at once
        lives.run(ENDS, run)
        (path,) = rings(run)
        new = HandedOver(path).read_new()

        last = {(row.step, new.document["stages"][row.stage - 1]) for row in packing.summaries_of(new.rows)}
        assert last == {(0, "rollout"), (1, "rollout"), (2, "rollout"), (2, "update")}
        assert new.document["end"] and not path.with_suffix(".live").exists()


def test_the_last_process_of_a_host_leaves_nothing(run: Path) -> None:
    with mstxkit.capture(run):
        lives.run(ENDS, run)
        train(0, 3)
        folder = own_ring().parent

    assert not folder.exists()


IS_KILLED = """
    import sys, mstxkit
    mstxkit.capture(sys.argv[1])
    for number in range(4):
        mstxkit.step(number)
        with mstxkit.stage("rollout"):
            pass
    print("ready", flush=True)
    sys.stdin.readline()
"""


def steps_in_batches(run: Path, name: str) -> set[int | None]:
    """Of which steps the batches of this host tell, of the process of that name."""
    numbers, steps = set(), set[Optional[int]]()
    for file in batches.files_in(run):
        for batch in batches.BatchFile(file, run_file.id_of(run) or "").read():
            numbers |= {process.number for process in batch.processes() if process.name == name}
            rows = b"".join(rows for kind, number, rows in batch.parts if kind == batches.STAGES and number in numbers)
            steps |= {row.step for row in packing.summaries_of(rows)}
    return steps


def test_of_who_is_killed_what_it_handed_over_goes_on_and_its_ring_is_cleared_away(run: Path) -> None:
    with mstxkit.capture(run):
        process = lives.start(IS_KILLED, run)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        assert lives.wait_until(lambda: len(rings(run)) == 1)
        (path,) = rings(run)
        wait_for(path, 3)
        lives.killed(process)

        assert lives.wait_until(lambda: steps_in_batches(run, path.stem) == {0, 1, 2})
        assert lives.wait_until(lambda: not path.exists())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_ring_of_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "WAITS_AT_MOST_S", 20.0)
    with mstxkit.capture(run):
        train(0, 2)
        wait_for(own_ring(), 2)
        parents = own_ring()
        child = os.fork()
        if child == 0:
            train(50, 52)
            mstxkit.step(60)
            rows, _ = wait_for(own_ring(), 4)
            os._exit(0 if own_ring() != parents and {row.step for row in rows} == {50, 51} else 1)
        _, status = os.waitpid(child, 0)
        mstxkit.step(9)
        rows, _ = wait_for(parents, 4)

        assert os.waitstatus_to_exitcode(status) == 0
        assert {row.step for row in rows} == {0, 1}


def test_what_is_discarded_leaves_no_ring(run: Path) -> None:
    with mstxkit.capture(run):
        train(0, 3)
        wait_for(own_ring(), 4)
        path = own_ring()
        current.recorder.sealer.handing_over.forget()  # type: ignore[union-attr]

        assert not path.exists()


def test_a_full_memory_is_a_counted_fault_and_what_waits_is_handed_over_later(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mstxkit.capture(run):
        current.recorder.park()  # type: ignore[union-attr]
        handing = current.recorder.sealer.handing_over  # type: ignore[union-attr]
        before = faults.counts.get("handing_over", 0)
        train(0, 3)
        with monkeypatch.context() as full:
            full.setattr(faults, "reraise", False)
            full.setattr(os, "posix_fallocate", _no_space)
            handing.hand_over()
            train(3, 5)
            handing.hand_over()
        missing, counted = not own_ring().exists(), faults.counts["handing_over"] - before
        handing.hand_over()
        rows, _ = wait_for(own_ring(), 8)

    assert (missing, counted) == (True, 2)
    assert sorted(row.step or 0 for row in rows) == [0, 0, 1, 1, 2, 2, 3, 3]


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_waits_is_bounded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mstxkit.capture(run):
        current.recorder.park()  # type: ignore[union-attr]
        handing = current.recorder.sealer.handing_over  # type: ignore[union-attr]
        with monkeypatch.context() as full:
            full.setattr(faults, "reraise", False)
            full.setattr(os, "posix_fallocate", _no_space)
            for turn in range(4):
                train(turn * 1000, (turn + 1) * 1000)
                handing.hand_over()
            waiting = len(handing._waiting)

    assert waiting == handed_over.ROWS * summaries.ROW_BYTES


def test_ten_thousand_steps_are_read_or_counted_and_nothing_grows(run: Path) -> None:
    with mstxkit.capture(run):
        train(0, 1)
        mstxkit.step(1)
        wait_for(own_ring(), 2)
        reader, rows, missed, size = HandedOver(own_ring()), 0, 0, own_ring().stat().st_size
        for number in range(10):
            train(1 + number * 1000, 1 + (number + 1) * 1000)
            current.recorder.park()  # type: ignore[union-attr]
            current.recorder.sealer.handing_over.hand_over(everything=True)  # type: ignore[union-attr]
            current.recorder.resume()  # type: ignore[union-attr]
            if number % 3 == 0:
                new = reader.read_new()
                rows, missed = rows + len(new.rows) // 40, missed + new.missed
        new = reader.read_new()
        rows, missed = rows + len(new.rows) // 40, missed + new.missed

        # Each at least once; a step in force when it was taken is handed over again.
        assert missed > 0 and 20_000 <= rows + missed + engine.counters()["summaries_lost"] <= 20_100
        assert own_ring().stat().st_size == size


# What the training thread does for it

COUNTS_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
static __thread int locks;
int locks_so_far(void) { return locks; }
#define COUNTED(name, parameters, arguments)                       \\
    int name parameters                                            \\
    {                                                              \\
        static int (*next) parameters;                             \\
        if (!next) next = dlsym(RTLD_NEXT, #name);                 \\
        locks++;                                                   \\
        return next arguments;                                     \\
    }
COUNTED(pthread_mutex_lock, (pthread_mutex_t * m), (m))
COUNTED(pthread_mutex_trylock, (pthread_mutex_t * m), (m))
COUNTED(pthread_rwlock_rdlock, (pthread_rwlock_t * m), (m))
COUNTED(pthread_rwlock_wrlock, (pthread_rwlock_t * m), (m))
COUNTED(sem_wait, (sem_t * s), (s))
COUNTED(sem_trywait, (sem_t * s), (s))
COUNTED(sem_timedwait, (sem_t * s, const struct timespec *t), (s, t))
COUNTED(sem_clockwait, (sem_t * s, clockid_t c, const struct timespec *t), (s, c, t))
"""
TRAINS = """
    import ctypes, os, sys, mstxkit
    from mstxkit.engine.choose import engine
    from mstxkit.recorder import current

    locks = ctypes.PyDLL(None).locks_so_far if len(sys.argv) > 2 else lambda: 0

    def stages(count):
        for _ in range(count):
            with mstxkit.stage("rollout", tokens=5, prompts=3):
                pass
            with mstxkit.stage("update"):
                pass

    def steps(count):
        for _ in range(count):
            mstxkit.step()
            stages(10)

    with mstxkit.capture(sys.argv[1]):
        steps(20)
        current.recorder.park()  # no other thread takes the GIL meanwhile
        steps(20)
        os.getppid()
        before = locks()
        stages(2000)
        of_stages = locks() - before
        os.getppid()
        steps(100)
        os.getppid()
        of_steps = locks() - before - of_stages
        before = locks()
        engine.wake()
        of_waking = locks() - before
        current.recorder.resume()
    print(of_stages, of_steps, of_waking)
"""
needs_c = pytest.mark.skipif(not engine.NATIVE, reason="the twin takes Python's locks")


@needs_c
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is needed: it builds what counts the locks")
def test_stages_take_no_lock_and_a_step_only_to_wake_the_sealer(run: Path, tmp_path: Path) -> None:
    source, library = tmp_path / "locks.c", tmp_path / "locks.so"
    source.write_text(COUNTS_LOCKS)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", library, "-ldl"], check=True)
    counts = lives.run(TRAINS, run, "count", LD_PRELOAD=str(library)).split()
    of_stages, of_steps, of_waking = map(int, counts)

    assert (of_stages, of_waking) == (0, 1)
    # At most once a second, and never waited for: the 100 steps take milliseconds.
    assert of_steps < 20


@needs_c
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is needed: it lists the calls")
def test_stages_and_steps_call_nothing_of_the_system(run: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", str(trace), sys.executable, "-c", lives.dedented(TRAINS), str(run)],
        env=lives.environment(), text=True,
        capture_output=True, check=False, timeout=lives.FINISHES_WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = trace.read_text().splitlines()
    main = lines[0].split()[0]
    calls = [line.split(None, 1)[1] for line in lines if line.split()[0] == main]
    calls = [call for call in calls if not call.startswith("<... ")]  # the end of one that has its line already
    marks = [number for number, call in enumerate(calls) if call.startswith("getppid(")][-3:]
    of_stages, of_steps = calls[marks[0] + 1 : marks[1]], calls[marks[1] + 1 : marks[2]]

    assert of_stages == []
    assert [call for call in of_steps if not call.startswith("futex(")] == []
