"""Starting the demo: what cannot be run is refused before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mstxkit.demo.launch import DemoError, DemoPlan, PlanError, make_command, make_environment, run_ranks

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ranks": 0}, "at least one of each"),
        ({"steps": 0}, "at least one of each"),
        ({"slow_rank": 2}, "--slow-rank 2: with --ranks 2 the ranks are 0 to 1"),
        ({"kill_rank": -1}, "--kill-rank -1: with --ranks 2 the ranks are 0 to 1"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(options: dict[str, int], complaint: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")

    with pytest.raises(PlanError, match=complaint):
        DemoPlan(tmp_path / "new", **options).check()


def test_a_folder_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "run.json").write_text("{}")

    with pytest.raises(PlanError, match="give --run a new folder"):
        DemoPlan(tmp_path).check()


def test_without_torch_the_demo_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from mstxkit.demo.launch import DemoPlan\n"
        "from mstxkit.errors import MissingPackageError\n"
        "try: DemoPlan(Path(sys.argv[2])).check()\n"
        "except MissingPackageError as error: print(error)\n"
    )
    # -S leaves out all installed packages, torch among them.
    done = subprocess.run([sys.executable, "-S", "-c", script, ROOT, tmp_path], capture_output=True, text=True)

    assert "pip install 'mstxkit[torch]'" in done.stdout, done.stderr


def test_ranks_know_who_they_are_and_where_to_record(tmp_path: Path) -> None:
    given = make_environment(DemoPlan(tmp_path, ranks=3), rank=2)

    assert (given["RANK"], given["WORLD_SIZE"], given["OMP_NUM_THREADS"]) == ("2", "3", "1")
    assert given["MSTXKIT_RUN"] == str(tmp_path)
    assert given["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"


@pytest.mark.parametrize(("hidden", "option"), [(False, "--slow"), (True, "--slow-behind-barrier")])
def test_only_the_slow_rank_is_slow_where_the_plan_has_it(tmp_path: Path, hidden: bool, option: str) -> None:
    plan = DemoPlan(tmp_path, ranks=3, slow_rank=2, hidden=hidden)

    commands = [make_command(plan, rank, "here") for rank in range(3)]
    assert [[word for word in command if word.startswith("--slow")] for command in commands] == [[], [], [option]]


def test_a_rank_that_fails_on_its_own_ends_the_demo_with_its_number(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    too_large_for_torch = 10**30

    with pytest.raises(DemoError, match=r"rank \d of the demo ended with code 1"):
        run_ranks(DemoPlan(tmp_path / "run", seed=too_large_for_torch))
