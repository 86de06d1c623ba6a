"""How many modules of ours take part in what docs/internals/architecture.md draws, counted as it runs.

`python tests/builders/walks.py` writes them into that page. Each walk is done once before it counts: what is loaded or
made at a first time is no part of it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Callable

from builders.escalated_run import run_of
from builders.simulated_runs import recorded_job
from typer.testing import CliRunner

import mstxkit
import mstxkit.cli
from mstxkit.reading.report import summary
from mstxkit.testing.simulator import JobShape

PACKAGE = Path(mstxkit.__file__).parent
PAGE = PACKAGE.parent / "docs" / "internals" / "architecture.md"
BEGIN, END = "<!-- counted: tests/builders/walks.py -->\n", "<!-- end -->"


def main() -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, (_, after) = text.split(BEGIN)[0], text.split(BEGIN)[1].split(END)
    PAGE.write_text(before + BEGIN + count_walks() + END + after, encoding="utf-8")


def count_walks() -> str:
    """The table, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        run, job = recorded_job(Path(folder) / "run", JobShape(ranks=2), steps=40), run_of(Path(folder) / "job")
        walks: dict[str, Callable[[], object]] = {
            "`open_run(run).ranges()` of two ranks": lambda: mstxkit.open_run(run).ranges(),
            "`mstxkit report` of the same run": lambda: summary.summarise_run(mstxkit.open_run(run)),
            "`mstxkit escalate`, in the shell": lambda: _ask(job),
        }
        rows = [f"| {name} | {len(modules_of(walk))} |\n" for name, walk in walks.items()]
    return "".join(["| what is done | modules called |\n", "|---|---|\n", *rows])


def _ask(run: Path) -> None:
    done = CliRunner().invoke(
        mstxkit.cli.build_application(), ["escalate", str(run), "--stage", "actor_update", "--ranks", "0"]
    )
    assert done.exit_code == 0, done.output


def modules_of(walk: Callable[[], object]) -> set[Path]:
    """Modules of ours of which a function is called, in this thread."""
    files: set[Path] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(Path(frame.f_code.co_filename))

    walk()
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return {file for file in files if PACKAGE in file.parents}


if __name__ == "__main__":
    main()
