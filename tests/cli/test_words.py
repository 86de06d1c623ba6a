"""What stands before a verb: the version, and completion in a shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

import mstxkit
import mstxkit.cli

ROOT = Path(mstxkit.__file__).resolve().parents[1]


def typed(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As in a shell, in a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-W", "error", "-m", "mstxkit", *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)


def test_the_version_is_that_of_the_package() -> None:
    done = typed("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"mstxkit {mstxkit.__version__}\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_shown_how_to_complete(shell: str) -> None:
    done = typed("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")

    assert (done.returncode, done.stderr) == (0, "")
    assert "_MSTXKIT_COMPLETE" in done.stdout


def test_completion_knows_the_verbs() -> None:
    words = {"COMP_WORDS": "mstxkit esc", "COMP_CWORD": "1"}

    done = typed(_MSTXKIT_COMPLETE="complete_bash", **words)

    assert done.stdout.split() == ["escalate"]


def test_completion_installs_itself_for_the_shell(tmp_path: Path) -> None:
    detection = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    done = typed("--install-completion", "bash", HOME=str(tmp_path), **detection)

    assert done.returncode == 0, done.stderr
    assert "mstxkit" in (tmp_path / ".bashrc").read_text()


def test_every_option_is_on_a_page_of_the_guide() -> None:
    """By its name: who is told of an option finds out what it is for."""
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "guide").glob("*.md"))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", pages))
    commands = [pytest.importorskip("typer.main").get_command(mstxkit.cli.build_application())]
    missing = []
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        options = (option for option in command.params if option.opts[0].startswith("-"))
        missing += [(command.name, one.opts) for one in options if named.isdisjoint((*one.opts, *one.secondary_opts))]

    assert len(commands) > 14 and missing == []


def test_every_verb_is_in_the_guides_table() -> None:
    index = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z]+)`", "".join(re.findall(r"^\| (`[a-z`, ]+) \|", index, re.MULTILINE)))

    assert sorted(named) == sorted(verb.rstrip("_") for verb in mstxkit.cli.list_verbs())
