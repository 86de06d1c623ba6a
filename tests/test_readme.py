"""What a newcomer reads first: it is short, it says the same in both languages, and everything in it runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest

pytest.importorskip("polars")

from builders import readme_tables
from builders.code_blocks import blocks_in
from builders.readme_tables import CHINESE, ENGLISH
from typer.testing import CliRunner

from mstxkit import cli

ROOT = ENGLISH.parent
WORDS_AT_MOST = 900
# What the examples of marking speak of and do not define.
PROGRAM = """
loader, generate = [["a"], ["b", "c"]], list
"""
# A training of a few steps, or for as long as a file is there.
TRAINING = """
import importlib.util, os, time
import mstxkit
if importlib.util.find_spec("torch"): import torch  # who records a profile

for number in range(100_000 if "GOES_ON" in os.environ else 3):
    if number > 3 and not os.path.exists(os.environ["GOES_ON"]): break
    mstxkit.step()
    with mstxkit.stage("actor_update"): time.sleep(0.01)
"""


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def commands(file: Path, tool: str) -> list[list[str]]:
    lines = "".join(blocks_in(file, "bash")).splitlines()
    return [words for line in lines if (words := shlex.split(line))[0] == tool]


@pytest.mark.parametrize("file", [ENGLISH, CHINESE], ids=lambda file: file.name)
def test_it_is_read_in_five_minutes(file: Path) -> None:
    """A word of Chinese has two characters in the mean."""
    rest, characters = re.subn(r"[\u4e00-\u9fff]", " ", text_of(file))

    assert len(rest.split()) + characters / 2 <= WORDS_AT_MOST


def test_both_languages_have_the_same_code_links_tables_and_figures() -> None:
    def parts(file: Path) -> dict[str, list[str]]:
        text = text_of(file).replace(f"]({CHINESE.name})", "").replace(f"]({ENGLISH.name})", "")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        return {
            "code": blocks_in(file, "bash") + blocks_in(file, "python"),
            "links": re.findall(r"\]\(([^)]*)\)", text),
            "words": sorted(re.findall(r"`([^`]+)`", prose)),
            "figures": sorted(re.findall(r"\d+(?:\.\d+)*", text)),
            "rows": [str(line.count("|")) for line in text.splitlines() if line.startswith("|")],
        }

    english, chinese = parts(ENGLISH), parts(CHINESE)

    assert english["code"] and english["links"] and english["figures"]
    assert english == chinese


@pytest.mark.parametrize(("file", "name"), readme_tables.tables(), ids=lambda part: getattr(part, "name", part))
def test_the_tables_are_current(file: Path, name: str) -> None:
    assert readme_tables.in_file(file, name) == readme_tables.tables()[file, name], "run `make readme-tables`"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which a rank of `train.py` trains and is recorded into `runs/exp7`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINING)
    for name in [name for name in os.environ if name.startswith("MSTXKIT_") and name != "MSTXKIT_NATIVE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "goes_on").touch()
    environment = {
        **os.environ,
        "GOES_ON": "goes_on",
        "MSTXKIT_RUN": "runs/exp7",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MSTXKIT_JUDGE": "0",
    }
    with subprocess.Popen([sys.executable, "train.py"], env=environment) as training:
        yield tmp_path
        (tmp_path / "goes_on").unlink()
        training.wait(60)


def listens(run: Path) -> bool:
    """Has a rank said that it is there for requests?"""
    return bool(list((run / "control" / "acks").glob("*.json")))


@pytest.mark.days("even")
@pytest.mark.slow
def test_every_command_of_it_runs(place: Path) -> None:
    deadline = time.monotonic() + 60
    while not listens(place / "runs/exp7"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    said = {}
    for words in commands(ENGLISH, "mstxkit"):
        if words[1] == "escalate":
            pytest.importorskip("torch")
        if words[1] == "run":  # beside the one that goes on: a few steps
            done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=60)
            said[" ".join(words)] = done.stderr if done.returncode else ""
            continue
        done_here = CliRunner().invoke(cli.build_application(words[1]), words[1:])
        said[" ".join(words)] = done_here.output if done_here.exit_code else ""

    assert len(said) >= 8
    assert [f"{command}: {output}" for command, output in said.items() if output] == []


@pytest.mark.parametrize("file", [ENGLISH, CHINESE], ids=lambda file: file.name)
def test_its_python_runs(file: Path, tmp_path: Path) -> None:
    (code,) = blocks_in(file, "python")
    environment = {key: text for key, text in os.environ.items() if not key.startswith("MSTXKIT_")}
    command = [sys.executable, "-W", "error", "-c", PROGRAM + code]
    subprocess.run(command, cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)}, check=True, timeout=60)
    done = CliRunner().invoke(cli.build_application("report"), ["report", str(tmp_path / "runs/exp7")])

    assert "actor_generate" in done.output


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_what_it_makes_there_is() -> None:
    """Without doing it: that tests run, and the demo, other tests show."""
    made = commands(ENGLISH, "make") + commands(ROOT / "CONTRIBUTING.md", "make")
    done = [subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True) for words in made]

    assert {"demo", "test", "setup", "check"} <= {words[1] for words in made}
    assert [one.stderr for one in done if one.returncode] == []


@pytest.mark.parametrize("name", ["LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_what_everybody_looks_for_is_there(name: str) -> None:
    assert f"]({name})" in text_of(ENGLISH)
    assert len(text_of(ROOT / name)) > 300
