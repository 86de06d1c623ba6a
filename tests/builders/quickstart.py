"""What the quick starts say: their commands, which the tests of the real loops run, and what they show."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from builders.code_blocks import blocks_in

PAGES = Path(__file__).resolve().parents[2] / "docs" / "quickstart"
RUN = "runs/exp7"  # the run of each page


def blocks(page: str, language: str) -> list[str]:
    """Its blocks of code, without comments."""
    return blocks_in(PAGES / f"{page}.md", language)


def commands(page: str) -> list[list[str]]:
    """All that a shell is given, word by word."""
    return [shlex.split(line) for line in "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()]


def mstxkit(page: str, verb: str, run: Path, *, python: str = sys.executable) -> list[str]:
    """The page's command with this verb, of another run; of `run` all up to the program that it starts."""
    words = next(words for words in commands(page) if words[:2] == ["mstxkit", verb])
    ours = words[: words.index("--") + 1] if verb == "run" else words
    return [python, "-m", "mstxkit", *(str(run) if word == RUN else word for word in ours[1:])]


def shown(page: str) -> list[str]:
    """First words of the lines that it shows: what a report shows, too."""
    lines = "".join(blocks(page, "text")).splitlines()
    return [line.split()[0] for line in lines if line.strip()]


def not_there(words: list[str]) -> list[str]:
    """Options of a command of ours that there are not, and values that they do not take."""
    from typer.main import get_command

    from mstxkit import cli, stages
    from mstxkit.patching import registry
    from mstxkit.profiling import presets

    known = {
        "--stage": {stage.key for stage in stages.STAGES}, "--preset": {*presets.list_presets()},
        "--autopatch": {*registry.list_frameworks()}, "--patches": {*registry.list_frameworks()},
    }  # fmt: skip
    ours = words[1 : words.index("--")] if "--" in words else words[1:]
    command = get_command(cli.build_application(ours[0]))
    for verb in ours[:2]:
        command = getattr(command, "commands", {}).get(verb, command)
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    wrong = [word for word in ours if word.startswith("--") and word not in options]
    pairs = ((option, value) for option, value in zip(ours, ours[1:]) if option in known)
    return wrong + [value for option, value in pairs if not known[option].issuperset(value.split(","))]
