"""`mstxkit report` as typed: of real recordings, in a pipe and on 80 columns; what matches nothing says so and is 2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import lives

pytest.importorskip("polars")
pytest.importorskip("typer")

from builders.typed import typed
from typer.testing import CliRunner

from mstxkit.cli import build_application

SKEW = """
import os, sys, time, mstxkit
rank = int(sys.argv[2])
os.environ.update(RANK=str(rank), WORLD_SIZE="2")
with mstxkit.capture(sys.argv[1]):
    for n in range(4):
        mstxkit.step(n)
        for _ in range(2 if rank == 0 else 40):
            with mstxkit.stage("actor_update", tokens=100):
                time.sleep(0.02 if rank == 0 else 0.005)
"""
ONLY = """
import sys, mstxkit
@mstxkit.mstx_timer
def rerank():
    with mstxkit.mstx_range("score"):
        pass
with mstxkit.capture(sys.argv[1]):
    for _ in range(20):
        rerank()
"""


def recorded(program: str, *words: object) -> None:
    command = [sys.executable, "-c", program, *map(str, words)]
    subprocess.run(command, env=lives.environment(), check=True, timeout=120)


def report(run: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mstxkit", "report", str(run), *words]
    everything = {**lives.environment(), **environment}
    return subprocess.run(command, env=everything, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def skew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 1 sleeps five times as long a step as rank 0, in shorter pieces."""
    run = tmp_path_factory.mktemp("report") / "skew"
    for rank in range(2):
        recorded(SKEW, run, rank)
    return run


def test_who_takes_longer_a_step_is_the_slowest(skew: Path) -> None:
    (stage,) = json.loads(report(skew, "--json").stdout)["stages"]
    text = report(skew, COLUMNS="80").stdout

    assert (stage["slowest"]["rank"], [row["rank"] for row in stage["ranks"]]) == (1, [1, 0])
    assert [row["step_count"] for row in stage["ranks"]] == [40, 2]
    assert [row["tokens"] for row in stage["ranks"]] == [16_000, 800]
    assert re.findall(r"^  (rank \d)", text, re.MULTILINE) == ["rank 1", "rank 0"]
    assert max(map(len, text.splitlines())) <= 80


def figures(text: str) -> list[str]:
    """Each with its unit, also where a line ends between the two."""
    return sorted(re.findall(r"[-+]?\d[\d.,]* (?:%|[mµn]?s)(?= |$)", " ".join(text.split())))


@pytest.mark.parametrize("columns", ["40", "60"])
def test_a_narrow_terminal_cuts_no_figure(skew: Path, columns: str) -> None:
    narrow, wide = (report(skew, COLUMNS=width).stdout for width in (columns, "200"))

    assert len(figures(wide)) > 20
    assert figures(narrow) == figures(wide)


def test_a_pipe_without_a_width_has_every_column(skew: Path) -> None:
    environment = {name: value for name, value in lives.environment().items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "mstxkit", "report", str(skew)]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120).stdout

    for word in ("share", "middle", "mean", "p99", "tokens"):
        assert word in text


def test_ranges_and_timers_without_a_stage_appear(tmp_path: Path) -> None:
    recorded(ONLY, tmp_path / "run")

    done = report(tmp_path / "run")

    assert done.returncode == 0
    assert [line.split()[3] for line in done.stdout.splitlines() if line.startswith(("  rerank", "  score"))] == [
        "20"
    ] * 2


def test_steps_ranks_stages_and_ranges_can_be_chosen(skew: Path) -> None:
    found = json.loads(report(skew, "--steps", "1:2", "--ranks", "0", "--stages", "update_actor", "--json").stdout)

    assert found["chosen"] == {"steps": [1, 2], "ranks": [[0, 0]], "stages": ["update_actor"], "ranges": None}
    assert [(row["rank"], row["count"]) for row in found["stages"][0]["ranks"]] == [(0, 4)]


@pytest.mark.parametrize(
    ("target", "why"),
    [(".", "is a folder"), ("/", "is a folder"), ("", "is a folder"), ("no/page", "no folder no")],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_read(
    skew: Path, target: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mstxkit.reading.run.open_run", lambda path: pytest.fail("it is read"))
    done = CliRunner().invoke(build_application("report"), ["report", str(skew), "--html", target])

    assert (done.exit_code, why in done.output) == (1, True), done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--steps", "1:2"), "Stages, ranges and the time of a step of steps 1 to 2 only"),
        (("--stages", "update_actor"), "Stages and ranges of stages update_actor only"),
    ],
)
def test_what_is_of_the_choice_is_told(skew: Path, words: tuple[str, ...], told: str) -> None:
    assert told in " ".join(typed("report", skew, *words).stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "99"), "this run has no step 99; it has steps 0 to 3"),
        (("--steps", "x"), "--steps 'x': give one step (5), or the first and the last (5:10, 5:, :10)"),
        (("--ranks", "1,9"), "no process of this run has rank 9; it has ranks 0 to 1"),
        (("--stages", "actor_updat"), "no stage 'actor_updat' in what was asked for; did you mean actor_update?"),
        (("--ranges", "score"), "no range 'score' in what was asked for; there: none"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_choice_that_matches_nothing_says_so_and_is_wrong_use(
    skew: Path, words: tuple[str, ...], message: str, form: tuple[str, ...]
) -> None:
    done = typed("report", skew, *words, *form)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"mstxkit: {message}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--trainers", "6"), "only of a run in which one role generates and another one trains"),
        (("--peak-flops", "7e9"), "--flops-per-token and --peak-flops are given together"),
        (("--flops-per-token", "x", "--peak-flops", "7e9"), "--flops-per-token 'x'"),
        (("--rollouts", "0"), "--rollouts"),
    ],
)
def test_what_cannot_be_supposed_is_wrong_use(skew: Path, words: tuple[str, ...], told: str) -> None:
    done = typed("report", skew, *words)

    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
