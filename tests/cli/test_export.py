"""`mstxkit export` writes what was asked for, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from builders import lives, odd_runs
from builders.run_files import BankFiles, ProcessFiles, new_run
from typer.testing import CliRunner, Result

pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

from mstxkit import cli  # noqa: E402
from mstxkit.reading.exporters import list_formats, load_exporter  # noqa: E402


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two ranks, two stages, steps 3 to 5, a step a minute."""
    run = new_run(tmp_path / "run")
    for rank in range(2):
        bank = BankFiles()
        for step in range(3, 6):
            for place, stage in enumerate(("actor_generate", "reward")):
                at = (step * 60 + place) * 10**9
                bank.range(f"{stage} {step}", at, at + 5, stage=stage, own=True, step=step)
        ProcessFiles(run, 10 + rank, rank=rank).seal_indexed(bank)
    return run


def export(run: Path, *words: object) -> Result:
    return CliRunner().invoke(cli.build_application("export"), ["export", str(run), *map(str, words)])


def ranges(run: Path, *words: object) -> set[tuple[int, str]]:
    """Rank and name of what is exported."""
    out = run.parent / "tables"
    done = export(run, "--to", "parquet", "-o", out, *words)
    assert done.exit_code == 0, done.output
    return {tuple(row) for row in pl.read_parquet(out / "ranges" / "*.parquet").select("rank", "name").rows()}


ALL = {(rank, f"{stage} {step}") for rank in (0, 1) for stage in ("actor_generate", "reward") for step in (3, 4, 5)}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ALL),
        (("--steps", "4"), {each for each in ALL if each[1].endswith(" 4")}),
        (("--steps", "4:"), {each for each in ALL if not each[1].endswith(" 3")}),
        (("--steps", ":999999999"), ALL),
        (("--ranks", "1-900000000"), {each for each in ALL if each[0] == 1}),
        (("--stages", "act*"), {each for each in ALL if each[1].startswith("actor_generate")}),
        (("--stages", "rule_reward"), {each for each in ALL if each[1].startswith("reward")}),
        (("--steps", "3:4", "--ranks", "0", "--stages", "reward"), {(0, "reward 3"), (0, "reward 4")}),
    ],
)
def test_a_part_of_a_run_is_what_the_options_name(
    run: Path, words: tuple[str, ...], expected: set[tuple[int, str]]
) -> None:
    assert ranges(run, *words) == expected


def test_since_counts_back_from_the_end_of_the_run(run: Path) -> None:
    """Its last sign of life is the heartbeat, or the last anchor: ten seconds after its start."""
    assert ranges(run, "--since", "1s") == ALL


def test_a_time_of_day_is_the_last_one_that_the_run_has_come_to(run: Path) -> None:
    """Ten seconds after its start; ranges begin three minutes later, and the last one ends after two more."""
    start = datetime.fromtimestamp(1.7e9)
    before, after = (f"{start + timedelta(seconds=seconds):%H:%M:%S}" for seconds in (5, 400))

    assert ranges(run, "--since", before) == ranges(run, "--since", after) == ALL
    assert export(run, "--to", "csv", "--until", after).exit_code == cli.WRONG_USE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--steps", "9"), "it has steps 3 to 5"),
        (("--ranks", "7"), "it has ranks 0 to 1"),
        (("--stages", "rewrd"), "did you mean reward?"),
        (("--since", "yesterday"), "2026-11-24T18:30"),
        (("--layout", "torch-npu"), "has no such option"),
        (("--excel",), "has no such option"),
    ],
)
def test_what_nothing_answers_to_ends_with_2_and_what_there_is(run: Path, words: tuple[str, ...], said: str) -> None:
    done = export(run, "--to", "perfetto", *words, "-o", run.parent / "out")

    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert not (run.parent / "out").exists()


@pytest.mark.parametrize("to", list_formats())
@pytest.mark.parametrize(
    "words",
    [
        ("--steps", "10"),
        ("--since", "2200-01-01"),
        ("--until", "1970-01-01"),
        ("--steps", "3", "--until", "1970-01-01"),
    ],
)
def test_options_that_leave_nothing_end_with_2_and_when_the_run_was(run: Path, to: str, words: tuple[str, ...]) -> None:
    """Each may be in reach of the run, and nothing of it in between."""
    ProcessFiles(run, 20, rank=0).seal_indexed(BankFiles().range("late", 0, 5, step=20))
    (run.parent / "out").mkdir()

    done = export(run, "--to", to, *words, "-o", run.parent / "out" / "made")

    assert done.exit_code == 2
    (line,) = done.output.splitlines()
    assert " ".join(words) in line and "it lasted from 2023-11-" in line
    assert list((run.parent / "out").iterdir()) == []


@pytest.mark.parametrize("to", list_formats())
def test_every_format_names_its_output_and_leaves_nothing_else(
    run: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)

    done = export(run, "--to", to)

    name = f"run{load_exporter(to).suffix}"
    assert (done.exit_code, done.output.split(":")[0]) == (0, name)
    assert sorted(path.name for path in run.parent.iterdir()) == ["run", name]


@pytest.mark.parametrize("to", list_formats())
def test_every_format_writes_a_run_of_nothing(tmp_path: Path, to: str) -> None:
    assert export(new_run(tmp_path / "run"), "--to", to, "-o", tmp_path / "out").exit_code == 0


def test_a_folder_with_other_files_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()

    done = export(run, "--to", "csv", "-o", tmp_path / "mine")

    assert done.exit_code == 1
    assert "holds other files" in done.output


@pytest.mark.parametrize("to", ["chrome", "ascend-db"])
def test_ctrl_c_in_the_middle_leaves_nothing(run: Path, to: str, ctrl_c: None) -> None:
    """The last column of a large run is never reached."""
    slow = "import sys, time; from mstxkit.reading.run_files import RunFiles\n"
    slow += "def wait(*a, **k):\n    print('there', flush=True); time.sleep(60)\n"
    slow += "RunFiles.finisher = wait; RunFiles._coded = wait; sys.argv = ['mstxkit', *sys.argv[1:]]\n"
    slow += "from mstxkit.cli import main; main()"
    words = ["export", str(run), "--to", to, "-o", str(run.parent / "out")]
    child = subprocess.Popen(
        [sys.executable, "-c", slow, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=lives.environment()
    )
    assert child.stdout is not None and child.stdout.readline() == b"there\n"

    child.send_signal(signal.SIGINT)

    _, said = child.communicate(timeout=60)
    assert child.returncode != 0
    assert b"Traceback" not in said
    assert [path.name for path in run.parent.iterdir()] == ["run"]


# Each is Ctrl-C where it once printed a traceback: while modules are loaded, again while the first is dealt with, and
# where it cannot be raised, as in a generator that is thrown away.
AT_ITS_BEGIN = (
    "real = builtins.__import__\nbuiltins.__import__ = lambda n, *a: (n == 'typer' and strike(), real(n, *a))[1]"
)
TWICE = """
from mstxkit.reading.run_files import RunFiles
from datetime import datetime, timedelta
from pathlib import Path
RunFiles._coded = lambda *a: strike()
unlink, rmtree = Path.unlink, shutil.rmtree
Path.unlink = lambda *a, **k: (strike(), unlink(*a, **k))
shutil.rmtree = lambda *a, **k: (strike(), rmtree(*a, **k))
threading._shutdown = strike
"""

LOST = """
from mstxkit.reading.run_files import RunFiles
class Dying:
    def __del__(self):
        strike()
def coded(*a):
    Dying()
    strike()
RunFiles._coded = coded
"""


@pytest.mark.parametrize("to", ["perfetto", "csv"])
@pytest.mark.parametrize("where", [AT_ITS_BEGIN, TWICE, LOST], ids=["at its begin", "twice", "lost"])
def test_ctrl_c_at_any_time_leaves_nothing_and_prints_no_traceback(
    run: Path, to: str, where: str, ctrl_c: None
) -> None:
    strike = "import builtins, shutil, signal, sys, threading\nfrom mstxkit.cli import main\n"
    strike += "strike = lambda: signal.raise_signal(signal.SIGINT)\n"
    words = ["export", str(run), "--to", to, "-o", str(run.parent / "out")]
    command = [sys.executable, "-c", f"{strike}{where}\nsys.argv = ['mstxkit', *sys.argv[1:]]\nmain()", *words]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=lives.environment())

    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_pipe_gets_one_line(run: Path, tmp_path: Path) -> None:
    words = ["export", str(run), "--to", "perfetto", "-o", str(tmp_path / "t.pftrace")]

    done = subprocess.run(
        [sys.executable, "-m", "mstxkit", *words], capture_output=True, text=True, env=lives.environment()
    )

    assert done.stdout.splitlines() == [f"{tmp_path}/t.pftrace: 12 events"]
    assert done.stderr == ""


def test_what_is_missing_of_a_damaged_run_is_said(tmp_path: Path) -> None:
    """The rest is written: a file with half of the ranks looks like a whole one."""
    odd_runs.altered(new_run(tmp_path / "run"))

    done = export(tmp_path / "run", "--to", "perfetto", "-o", tmp_path / "t.pftrace")

    assert (done.exit_code, (tmp_path / "t.pftrace").exists()) == (0, True)
    assert done.output.splitlines() == [
        f"{tmp_path}/t.pftrace: 30 events",
        f"not all of the run could be read: mstxkit report {tmp_path}/run says what is missing",
    ]


def test_where_nothing_is_left_of_a_damaged_run_that_is_said_too(tmp_path: Path) -> None:
    odd_runs.altered(new_run(tmp_path / "run"))

    done = export(tmp_path / "run", "--to", "perfetto", "--until", "1970-01-01", "-o", tmp_path / "t.pftrace")

    assert (done.exit_code, (tmp_path / "t.pftrace").exists()) == (2, False)
    assert done.output.endswith("; not all of it could be read (mstxkit report)\n")


def test_a_device_or_a_pipe_is_not_replaced(run: Path, tmp_path: Path) -> None:
    """As root, `-o /dev/null` would be the end of it."""
    os.mkfifo(tmp_path / "pipe")

    done = export(run, "--to", "perfetto", "-o", tmp_path / "pipe")

    assert done.exit_code == 1 and "is no file, and would be replaced" in done.output
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_of_the_same_name_is_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("before")

    assert export(run, "--to", "chrome", "-o", tmp_path / "t.json").exit_code == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_what_is_too_much_for_msprof_analyze_is_said(tmp_path: Path) -> None:
    bank = BankFiles()
    for at in range(16_001):
        bank.range("r", at, at + 1)
    ProcessFiles(new_run(tmp_path / "run")).seal_indexed(bank)

    lines = export(tmp_path / "run", "--to", "ascend-db", "-o", tmp_path / "out").output.splitlines()

    assert lines[1] == f"MindStudio Insight: Import Data, {tmp_path / 'out'}"
    assert "16,001 ranges" in lines[2]


@pytest.mark.parametrize("to", ["ascend-db", "trace-view"])
@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("a b", None),
        ("r&d", "'&'"),
        ("50%", "'%'"),
        ("it's; `so`", "\"'\" ';' '`'"),
        ("\x07", "'\\x07'"),
        ("link", "a link"),
    ],
)
def test_a_path_that_insight_rejects_is_said(run: Path, to: str, folder: str, why: str | None) -> None:
    """The export itself is whole: who only wants msprof-analyze can go on."""
    place = run.parent / folder
    if folder == "link":
        place.symlink_to(run)
    else:
        place.mkdir()

    done = export(run, "--to", to, "-o", place / "out")

    rejected = [line for line in done.output.splitlines() if "takes nothing from" in line]
    assert done.exit_code == 0 and len(rejected) == (why is not None)
    assert why is None or why in rejected[0]


def test_csv_for_excel_has_microseconds(run: Path) -> None:
    done = export(run, "--to", "csv", "--excel", "-o", run.parent / "out")

    assert done.exit_code == 0
    header = (run.parent / "out" / "ranges.csv").read_text(encoding="utf-8-sig").splitlines()[0].split(",")
    assert {"start_us", "duration_us"} <= {*header}
