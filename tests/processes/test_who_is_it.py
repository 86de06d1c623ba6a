"""Each process of a job that starts others knows what it is to its rank, from its first moment to a kill."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import lives

import mstxkit
from mstxkit.engine.choose import engine
from mstxkit.recorder import adopt

pytestmark = pytest.mark.days("odd")

METHODS = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])


def job(tmp_path: Path, run: Path, program: str, *arguments: str, **variables: str) -> list[dict[str, Any]]:
    """Run a program from a file, as a spawned child needs it; its processes, with those that were killed."""
    file = tmp_path / "program.py"
    file.write_text(lives.PATIENT + lives.dedented(program))
    done = subprocess.run(
        [sys.executable, str(file), str(run), *arguments],
        env=lives.environment(**variables), capture_output=True, text=True,
        timeout=lives.FINISHES_WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mstxkit: fault" not in done.stderr
    adopt.collect_dead(run)
    found = lives.processes(run)
    assert len({row["label"] for row in found}) == len(found)
    return [row for row in found if row["part"] != "fork server"]


def parts(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["rank"], row["part"]) for row in found]


@METHODS
def test_pools_and_plain_children_are_told_apart(run: Path, tmp_path: Path, method: str) -> None:
    """The shape of a reward server: a pool that is closed, one that is ended by force, an executor, and two others."""
    found = job(
        tmp_path, run,
        """
        import multiprocessing, sys, time
        from concurrent.futures import ProcessPoolExecutor
        import mstxkit

        def work(number):
            with mstxkit.stage("reward"):
                time.sleep(0.02)

        if __name__ == "__main__":
            mstxkit.capture(sys.argv[1])
            context = multiprocessing.get_context(sys.argv[2])
            with context.Pool(1) as pool:
                pool.map(work, range(2))
                pool.close()
                pool.join()
            with context.Pool(1) as pool:
                pool.map(work, range(2))
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                list(pool.map(work, range(2)))
            children = [context.Process(target=work, args=(0,)), context.Process(target=work, args=(0,), name="scorer")]
            for child in children:  # one after the other: they are in the order in which they are started
                child.start()
                child.join()
        """,
        method, RANK="0", WORLD_SIZE="2",
    )  # fmt: skip

    assert parts(found) == [
        (0, "trainer"), (0, "pool 1"), (0, "pool 2"), (0, "pool 3"), (0, "process 4"), (0, "scorer"),
    ]  # fmt: skip
    assert found[0]["label"] == "rank 0"
    assert found[-1]["label"] == "rank 0 scorer"
    assert lives.ended(run) == {"reward": 8}
    assert {row["state"] for row in found if row["part"] in ("trainer", "process 4", "scorer")} == {"ended"}


def test_a_child_that_lives_for_a_moment_and_is_killed_is_known(run: Path, tmp_path: Path) -> None:
    found = job(
        tmp_path, run,
        """
        import multiprocessing, os, signal, sys, time
        import mstxkit

        def work():
            with mstxkit.stage("reward"):
                os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            mstxkit.capture(sys.argv[1])
            for method in ("fork", "spawn", "forkserver"):
                child = multiprocessing.get_context(method).Process(target=work)
                child.start()
                child.join()
        """,
    )  # fmt: skip

    assert [row["part"] for row in found] == [None, "process 1", "process 2", "process 3"]
    assert Counter(row["state"] for row in found)["killed"] == 3


def test_a_fork_is_a_child_and_not_what_its_parent_said_it_was(run: Path) -> None:
    lives.run(
        """
        import multiprocessing, os, sys, mstxkit

        def work():
            mstxkit.mark("at work")
            if not os.fork():
                with mstxkit.mstx_range("of a child's child"):
                    pass
                os._exit(0)
            os.wait()

        mstxkit.capture(sys.argv[1])
        mstxkit.identify(rank=4, part="tokenizer")
        if not os.fork():
            with mstxkit.mstx_range("forked"):
                pass
            sys.exit()
        os.wait()
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        """,
        run,
    )
    adopt.collect_dead(run)

    assert parts(lives.processes(run)) == [(4, "tokenizer"), (4, "child"), (4, "process 1"), (4, "child")]


@METHODS
def test_children_with_ranks_of_their_own_are_trainers(run: Path, tmp_path: Path, method: str) -> None:
    """As `torch.multiprocessing.spawn` starts them."""
    found = job(
        tmp_path, run,
        """
        import multiprocessing, os, sys
        import mstxkit

        def train(rank):
            os.environ["RANK"] = str(rank)
            with mstxkit.stage("actor_update"):
                pass

        if __name__ == "__main__":
            mstxkit.capture(sys.argv[1])
            context = multiprocessing.get_context(sys.argv[2])
            children = [context.Process(target=train, args=(rank,)) for rank in range(2)]
            for child in children:
                child.start()
            for child in children:
                child.join()
        """,
        method,
    )  # fmt: skip

    assert parts(found) == [(0, "trainer"), (1, "trainer"), (None, None)]
    assert [row["under"] for row in found] == [None, None, None]
    assert [row["label"] for row in found[:2]] == ["rank 0", "rank 1"]


LOADS = """
    import os, signal, sys
    import mstxkit
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            with mstxkit.stage("data_loading"):
                return index

    if __name__ == "__main__":
        mstxkit.capture(sys.argv[1])
        loader = DataLoader(
            Numbers(), num_workers=3, persistent_workers=True, multiprocessing_context=sys.argv[2]
        )
        for step in mstxkit.step(3), mstxkit.step(4):
            for batch in loader:
                with mstxkit.stage("actor_update"):
                    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_trainer_and_its_data_loader_workers_have_a_row_each(run: Path, tmp_path: Path, method: str) -> None:
    pytest.importorskip("torch")
    found = job(tmp_path, run, LOADS, method, RANK="0", WORLD_SIZE="1")

    assert parts(found) == [(0, "trainer"), *((0, f"dataloader {worker}") for worker in range(3))]
    assert [row["label"] for row in found] == ["rank 0", *(f"rank 0 dataloader {worker}" for worker in range(3))]


def test_the_main_thread_has_its_name_where_a_program_has_not_loaded_threading(run: Path) -> None:
    """An import of mstxkit does not load it."""
    lives.run(
        """
        import sys, mstxkit
        with mstxkit.at_step(1):
            was_loaded = "threading" in sys.modules
        with mstxkit.capture(sys.argv[1]), mstxkit.mstx_range("r"):
            assert not (was_loaded and mstxkit.status().native)
        """,
        run,
    )

    assert mstxkit.open_run(run).tracks()["name"].to_list() == ["MainThread"]


def test_capture_begins_well_while_another_thread_is_importing_multiprocessing(tmp_path: Path) -> None:
    printed = lives.run(
        """
        import importlib.util, sys
        import mstxkit
        # As an import leaves them that has just begun: in sys.modules, with nothing in them yet.
        for name in ("multiprocessing.util", "multiprocessing.process"):
            spec = importlib.util.find_spec(name)
            spec._initializing = True
            sys.modules[name] = importlib.util.module_from_spec(spec)
        mstxkit.capture(sys.argv[1])
        with mstxkit.mstx_range("recorded"): pass
        print(mstxkit.status().faults)
        """,
        tmp_path / "run",
    )

    assert printed.strip() == "{}"
    assert mstxkit.open_run(tmp_path / "run").ranges()["name"].to_list() == ["recorded"]


@pytest.mark.skipif(not engine.NATIVE, reason="each import has a twin of its own, which records by itself")
@pytest.mark.parametrize(("folder", "said"), [("run", "joins"), ("other", "joins")])
def test_who_imports_mstxkit_anew_is_still_one_process(run: Path, folder: str, said: str) -> None:
    out = lives.run(
        """
        import sys, threading, mstxkit
        mstxkit.capture(sys.argv[1])
        with mstxkit.stage("before"):
            pass
        for name in [name for name in sys.modules if name.split(".")[0] == "mstxkit"]:
            del sys.modules[name]
        import mstxkit
        try:
            with mstxkit.capture(sys.argv[2]):
                print("joins")
        except mstxkit.errors.CaptureError as exc:
            print(exc)
        with mstxkit.stage("after"):
            print([thread.name for thread in threading.enumerate()].count("mstxkit-sealer"))
        """,
        run, run.parent / folder,
    )  # fmt: skip

    assert said in out and out.split()[-1] == "1"
    assert lives.ended(run) == {"before": 1, "after": 1}
    assert [row["state"] for row in lives.processes(run)] == ["ended"] and not (run.parent / "other").exists()
