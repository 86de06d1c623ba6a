"""Every command on reading in the guide runs as it stands there, in the order of the page."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
from pathlib import Path

import pytest
from builders import msprof_analyze, profiler_database, soak
from builders.run_files import WALL_OFFSET_NS, BankFiles, ProcessFiles, new_run

pytest.importorskip("numpy")
pytest.importorskip("polars")

from typer.testing import CliRunner

from mstxkit import cli

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
PAGES = ("export.md", "perfetto.md", "insight.md", "msprof_analyze.md", "compare.md", "compact.md", "reading.md",
         "report.md", "top.md", "verdicts.md")  # fmt: skip
OTHERS = ("main", "change", "exp6", "exp8")  # runs beside the one that most of them read
STEPS = range(200)
# Those that need something else have tests of their own: a job, Ray, profiles; and those that end by Ctrl-C.
ELSEWHERE = re.compile(r"mstxkit (run|escalate|profiles|demo|import|top \S+$)|.*--(ray|open|follow|patches)")
STAGES = ("actor_generate", "reward", "actor_update")
SECOND = 10**9


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the run and the profile that the pages speak of."""
    run = recorded(tmp_path / "runs" / "exp7", ranks=8)
    (tmp_path / "RUN").symlink_to(run)
    for name in OTHERS:
        recorded(tmp_path / "runs" / name, ranks=2)
    profile = tmp_path / "prof" / "node1_7_20260101000000000_ascend_pt"
    database = profiler_database.write_database(profile, 1, 1, [("own", 500)])
    with sqlite3.connect(database) as base:
        times = (WALL_OFFSET_NS, WALL_OFFSET_NS + 5 * SECOND)
        base.execute("update SESSION_TIME_INFO set startTimeNs = ?, endTimeNs = ?", times)
    base.close()
    return tmp_path


def recorded(path: Path, ranks: int) -> Path:
    run = new_run(path)
    for rank in range(ranks):
        bank = BankFiles().track(0, 100 + rank, False, "MainThread")
        for step in STEPS:
            for number, stage in enumerate(STAGES):
                at = (10 * step + number) * SECOND
                bank.range(stage, at, at + SECOND // 2, stage=stage, own=True, step=step)
        ProcessFiles(run, 100 + rank, rank=rank, role="actor").seal_indexed(bank)
    return run


def commands(page: str) -> list[str]:
    """What a page has in a block of commands, or indented by four."""
    text = (GUIDE / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```|^    (mstxkit .*?)$", text, re.MULTILINE | re.DOTALL)
    lines = (line for block in blocks for line in "".join(block).splitlines())
    return [line for line in (re.sub(r" +# .*", "", line) for line in lines) if line and not ELSEWHERE.match(line)]


def ours(command: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What one of our commands says where it fails; nothing else."""
    monkeypatch.chdir(place)
    words = shlex.split(command, comments=True)[1:]
    done = CliRunner().invoke(cli.build_application(words[0]), words)
    return done.output if done.exit_code else ""


def theirs(command: str, place: Path) -> str:
    """The same of a command of msprof-analyze."""
    environ = msprof_analyze.install(place / "tools")
    done = subprocess.run(command, shell=True, cwd=place, env=environ, capture_output=True, text=True, timeout=300)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("page", soak.sample([*PAGES], 4))
def test_the_commands_of_a_page_run(place: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {}
    for command in commands(page):
        if command.startswith("mstxkit "):
            said[command] = ours(command, place, monkeypatch)
        elif msprof_analyze.IS_HERE:
            said[command] = theirs(command, place)

    assert said
    assert {command: words for command, words in said.items() if words} == {}
    if page == "msprof_analyze.md" and msprof_analyze.IS_HERE:  # its exit code says nothing
        assert (place / "sums/cluster_analysis_output/cluster_analysis.db").stat().st_size
