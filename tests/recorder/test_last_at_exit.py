"""What others still end after us at the end of the interpreter: then what they left is sealed once they have."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import lives


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


ENDS_LATER = """
    import atexit, multiprocessing, multiprocessing.util, os, sys, time
    import mstxkit
    def serve(ready):
        with mstxkit.mstx_range("served"):
            pass
        ready.set()
        time.sleep(60)
    mstxkit.capture(sys.argv[1])  # its end is registered after that of multiprocessing, and comes before it
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=serve, args=(ready,), daemon=True)
    child.start()
    ready.wait()
"""


def test_a_daemon_that_multiprocessing_ends_at_the_very_end_is_sealed(run: Path) -> None:
    lives.run(ENDS_LATER, run)

    assert list((run / "live").iterdir()) == []
    assert lives.ended(run) == {"served": 1}
    assert sorted(row["state"] for row in lives.processes(run)) == ["ended", "left"]


def test_where_multiprocessing_never_ends_its_children_all_of_us_is_sealed_all_the_same(run: Path) -> None:
    program = (
        lives.dedented(ENDS_LATER)
        + "child.kill(); child.join()\natexit.unregister(multiprocessing.util._exit_function)"
    )
    lives.run(program, run)

    assert list((run / "live").iterdir()) == []
    assert lives.ended(run) == {"served": 1}


def test_a_stand_in_of_ray_ends_its_workers_after_us(run: Path) -> None:
    """Ray's shutdown, called by an atexit function that was registered first, says `set_mode(None)` at its end."""
    lives.run(
        """
        import atexit, os, signal, sys, types
        worker = types.SimpleNamespace(mode=0, set_mode=lambda mode: None)
        sys.modules["ray._private.worker"] = types.SimpleNamespace(global_worker=worker)
        def shutdown():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            worker.set_mode(None)
        atexit.register(shutdown)
        import mstxkit
        mstxkit.capture(sys.argv[1])
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            with mstxkit.mstx_range("worked"):
                pass
            os.write(write, b".")
            signal.pause()
        os.read(read, 1)
        """,
        run,
    )

    assert list((run / "live").iterdir()) == []
    assert lives.ended(run) == {"worked": 1}
