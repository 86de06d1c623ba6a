"""Without the packages that an extra brings, every verb works, or says in one line how to get what it lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

import mstxkit
import mstxkit.cli
from mstxkit.errors import MissingPackageError

ROOT = Path(mstxkit.__file__).resolve().parents[1]
READS = (
    "status run", "report run", "report run --json", "report run --html x.html", "report run --open --no-browser",
    "top run", "top run --once", "top run --json", "top run --follow", "top run --set slow_rank.effect=0.2",
    "escalate run --stage reward --ranks suspect+peer", "compare run run", "export run --to perfetto",
    "export run --to chrome", "export run --to trace-view", "export run --to ascend-db", "export run --to csv",
    "export run --to parquet", "export run --to otlp", "import --run run", "collect run --compact",
    "collect run --compact --ray", "demo",
)  # fmt: skip
WORKS = (
    "--help", "run --run other -- true", "status", "doctor", "doctor --patches", "profiles run", "collect run",
    "profiles run --analyse", "config show profiler_config.json", "config convert profiler_config.json --to verl",
)  # fmt: skip
# As where nothing of it is installed: the packages that are here cannot be imported.
PROGRAM = """
import json, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
LACKING = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Nothing())
from typer.testing import CliRunner
from mstxkit.cli import build_application
said = {}
for line in sys.stdin.read().splitlines():
    words = line.split()
    done = CliRunner().invoke(build_application(words[0]), words)
    error = "" if done.exception is None or isinstance(done.exception, SystemExit) else repr(done.exception)
    said[line] = done.exit_code, done.output, error
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each verb says, all in one process."""
    folder = tmp_path_factory.mktemp("without")
    environment = {key: text for key, text in os.environ.items() if not key.startswith("MSTXKIT_")}
    environment["PYTHONPATH"] = str(ROOT)
    record = "import mstxkit; mstxkit.capture('run'); mstxkit.step(); mstxkit.stage('reward').__enter__()"
    subprocess.run([sys.executable, "-c", record], cwd=folder, env=environment, check=True, timeout=60)
    (folder / "profiler_config.json").write_text('{"start_step": 1, "warmup": 1, "active": 1}')
    command = [sys.executable, "-c", PROGRAM, ",".join((*MissingPackageError.EXTRAS, "torch_npu"))]
    lines = "\n".join((*READS, *WORKS))
    done = subprocess.run(
        command, cwd=folder, env=environment, input=lines, stdout=subprocess.PIPE, check=True, text=True, timeout=100
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("words", READS)
def test_what_cannot_be_done_is_one_line_with_the_command_that_helps(said: dict[str, Any], words: str) -> None:
    code, output, error = said[words]

    assert (code, error) == (mstxkit.cli.WRONG_USE, ""), "1 would say that somebody is to blame"
    (line,) = output.splitlines()
    assert line.startswith("mstxkit: ") and " needs " in line
    assert "pip install 'mstxkit[" in line


@pytest.mark.parametrize("words", WORKS)
def test_what_needs_none_of_them_works(said: dict[str, Any], words: str) -> None:
    code, output, error = said[words]

    assert (code, error) == (0, ""), output
    assert "pip install 'mstxkit[" not in output or words in ("status", "doctor")


def test_every_verb_was_tried() -> None:
    tried = {words.partition(" ")[0] for words in (*READS, *WORKS)}

    assert {verb.rstrip("_") for verb in mstxkit.cli.list_verbs()} - tried == set()


def test_an_extra_brings_each_package() -> None:
    """By the name that pip knows: `import google.protobuf` comes with opentelemetry-proto."""
    tomllib = pytest.importorskip("tomllib")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {extra: " ".join(needed).replace("-", "_") for extra, needed in extras.items()}

    assert [n for n, extra in MissingPackageError.EXTRAS.items() if n != "google" and n not in brought[extra]] == []
