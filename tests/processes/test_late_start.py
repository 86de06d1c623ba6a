"""A forked child begins to record with its first range or mark, or after a second: programs fork for each sample."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import lives

import mstxkit
from mstxkit.recorder import adopt

pytestmark = pytest.mark.days("even")

FORKED = """
    import asyncio, functools, os, sys, threading, time, mstxkit
    from mstxkit.recorder import late_start
    late_start._AFTER_S = 60.0  # however long a busy machine takes: it begins with its first range, or not at all
    mstxkit.capture(sys.argv[1])

    @mstxkit.mstx_timer
    def timed(): pass

    @mstxkit.mstx_timer
    async def coroutine(): pass

    @mstxkit.mstx_timer
    def generator(): yield 1

    def forked(child):
        if (pid := os.fork()) == 0:
            child()
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0
"""


def recorded(run: Path, child: str) -> list[str]:
    """Run this in a forked child; what of it is in the run."""
    lives.run(FORKED + f"    def child():\n        {child}\n    forked(child)\n", run)
    assert not lives.damage(run)
    opened = mstxkit.open_run(run)
    names = [*opened.ranges()["name"], *opened.marks()["message"]]
    return sorted(name.rpartition(".")[2] for name in names)


@pytest.mark.parametrize(
    ("child", "names"),
    [
        ("mstxkit.mstx_range('first').__enter__().__exit__(None, None, None)", ["first"]),
        ("mstxkit.stage('first').__enter__().__exit__(None, None, None)", ["first"]),
        ("mstxkit.mstx_range('first', tokens=7).__enter__().__exit__(None, None, None)", ["first"]),
        ("mstxkit.mark('first')", ["first"]),
        ("timed()", ["timed"]),
        ("asyncio.run(coroutine())", ["coroutine"]),
        ("list(generator())", ["generator"]),
        ("timed(); mstxkit.mark('second')", ["second", "timed"]),
    ],
)
def test_the_first_one_is_recorded_whatever_it_is(run: Path, child: str, names: list[str]) -> None:
    assert recorded(run, child) == names


def test_two_threads_that_come_first_are_recorded_both(run: Path) -> None:
    child = """
        barrier, name = threading.Barrier(8), threading.current_thread
        def work(number):
            barrier.wait()
            with mstxkit.mstx_range(f"of {number}"): pass
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
    """
    assert recorded(run, child.strip()) == [f"of {number}" for number in range(8)]


def test_a_child_that_has_nothing_to_say_leaves_nothing(run: Path) -> None:
    lives.run(
        FORKED
        + """
    def pooled():
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(abs, range(4))
    folder, _, here = mstxkit.status().live_file.rpartition("/")
    becomes_another, is_killed = lambda: os.execv("/bin/true", ["true"]), lambda: os.kill(os.getpid(), 9)
    for leaves in (sys.exit, lambda: os._exit(0), becomes_another, is_killed):
        if (pid := os.fork()) == 0:
            leaves()
        os.waitpid(pid, 0)
    pooled()
    others = [name for name in os.listdir(folder) if name.partition(".")[0] != here.partition(".")[0]]
    assert [name for name in others if not name.startswith("keeper-")] == []  # the host's, on a slow one
    """,
        run,
    )
    adopt.collect_dead(run)

    assert len(lives.processes(run)) == 1


def test_a_child_that_lives_on_is_known_though_it_says_nothing(run: Path) -> None:
    lives.run(
        FORKED
        + """
    late_start._AFTER_S = 1.0
    if (pid := os.fork()) == 0:
        from mstxkit.recorder import current
        while not current.recorder: time.sleep(0.01)
        sys.exit()
    os.waitpid(pid, 0)
    """,
        run,
    )

    assert [row["state"] for row in lives.processes(run)] == ["ended", "ended"]


@pytest.mark.parametrize("program", ["forked", "multiprocessing"])
def test_what_ends_a_child_before_its_first_range_is_known(run: Path, program: str) -> None:
    lives.run(
        FORKED
        + {
            "forked": """
    if (pid := os.fork()) == 0:
        raise ValueError("of the child")
    os.waitpid(pid, 0)
    """,
            "multiprocessing": """
    import multiprocessing
    def work(): raise ValueError("of the child")
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    """,
        }[program],
        run,
    )

    assert [row["ending"] for row in lives.processes(run)] == [None, "by ValueError"]


def test_a_child_of_a_child_that_said_nothing_is_recorded(run: Path) -> None:
    child = """
        if os.fork() == 0:
            with mstxkit.mstx_range("of a child's child"): pass
            sys.exit()
        os.wait()
    """
    assert recorded(run, child.strip()) == ["of a child's child"]
    assert len(lives.processes(run)) == 2


def test_a_child_that_captures_itself_goes_on_with_what_it_was_to_begin(run: Path) -> None:
    child = "mstxkit.capture(sys.argv[1]); assert mstxkit.status().on; mstxkit.mark('captured')"

    assert recorded(run, child) == ["captured"]
    assert len(lives.processes(run)) == 2


def test_a_child_that_asks_for_a_profile_first_asks_its_run(run: Path) -> None:
    child = """
        [os.environ.pop(name) for name in list(os.environ) if name.startswith("MSTXKIT_RUN")]
        mstxkit.escalate("actor_update", ranks="all")
    """
    recorded(run, child.strip())

    assert (run / "control/requests.json").exists()


def test_a_parent_that_forks_all_the_time_is_seen_to_live_and_is_sealed(run: Path) -> None:
    """Its threads are ended for each fork, and started some time after it: not never."""
    lives.run(
        """
        import os, sys, time, mstxkit
        from mstxkit.recorder import current
        from mstxkit.store import livefile
        mstxkit.capture(sys.argv[1], heartbeat_s=0.01, seal_every_s=0.2)
        def is_sealed(): return any(file.stat().st_size > 4096 for file in (current.recorder.run / "sealed").iterdir())
        began, deadline = time.monotonic_ns(), time.monotonic() + 60
        seen = lambda: livefile.heartbeat_ns(current.live_view()) > began + 1_000_000_000
        while not (seen() and is_sealed()):
            assert time.monotonic() < deadline, (seen(), is_sealed())
            for number in range(200):
                with mstxkit.mstx_range(f"range {number}", number=number): pass
            if (pid := os.fork()) == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        """,
        run,
    )
    assert not lives.damage(run)
