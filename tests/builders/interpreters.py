"""Interpreters of their own, for what happens when one starts: with `mstxkit.pth`, and a small framework to patch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections import Counter
from pathlib import Path

import mstxkit

ROOT = Path(mstxkit.__file__).resolve().parents[1]
PTH = ROOT / "mstxkit" / "bootstrap" / "mstxkit.pth"
ENDS_WITHIN_S = 60.0
FRAMEWORK = {
    "toyrl/__init__.py": "from .trainer import Trainer\n",
    "toyrl/trainer.py": "class Trainer:\n    def fit(self):\n        return 42\n",
}
TARGETS = """
framework: toyrl
targets:
  - path: toyrl.trainer:Trainer.fit
    stage: train_step
"""
USES_IT = "from toyrl import Trainer\nassert Trainer().fit() == 42\n"


def make(folder: Path, *, source: bool = True) -> Path:
    """An environment with the `.pth`, and where it finds mstxkit and what is installed here; its interpreter.

    Args:
        source: Can mstxkit be found there?
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if source:
        (site_of(folder) / "a-source.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    shutil.copy(PTH, site_of(folder))
    return folder / "bin" / "python"


def site_of(folder: Path) -> Path:
    """The site-packages of an environment."""
    (found,) = folder.glob("lib/python3*/site-packages")
    return found


def write(folder: Path, files: dict[str, str]) -> Path:
    """Files of a program, by their paths in `folder`."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


class Program:
    """A folder with the framework, targets and scripts, and a run that its processes may join."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, write(folder / "program", {**FRAMEWORK, "targets.yaml": TARGETS})
        self.run_folder = folder / "run"

    def environment(self, **variables: str) -> dict[str, str]:
        """A user's environment who asks for all of it, or for what `variables` say."""
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_", "PYTHON")) or k == "MSTXKIT_NATIVE"
        }
        asked = {"MSTXKIT_RUN": str(self.run_folder), "MSTXKIT_AUTOPATCH": str(self.folder / "targets.yaml")}
        return {**kept, "PYTHONPATH": str(self.folder), **asked, **variables}

    def run(self, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the interpreter with these words, to its end."""
        return self.command(self.python, *words, **variables)

    def command(self, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command, to its end."""
        return subprocess.run(
            [str(word) for word in words],
            env=self.environment(**variables), cwd=self.folder, capture_output=True, text=True, timeout=ENDS_WITHIN_S,
        )  # fmt: skip

    def says(self, code: str, *options: str, **variables: str) -> str:
        """What a program prints that must go well, and print nothing else."""
        done = self.run(*options, "-c", code, **variables)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    def recorded(self) -> list[tuple[str, int]]:
        """Name and number of ranges of each process that was recorded."""
        rows = mstxkit.open_run(self.run_folder).ranges().to_dicts()
        return sorted(
            Counter(row["name"] for row in rows if row["pid"] == pid).most_common(1)[0] for pid in self.pids()
        )

    def pids(self) -> list[int]:
        """Every process that took part, each once for every time that it did."""
        return [row["pid"] for row in mstxkit.open_run(self.run_folder).processes().to_dicts()]
