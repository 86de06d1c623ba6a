"""What `mstxkit.pth` adds to the start of every Python process in an environment: CPU time, with nothing asked.

The same environment with the file and without it, in turns, a fresh process each. For comparison also what it adds to
a process that is asked to patch, and imports nothing that is patched.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from .harness import HERE, Row, spread

VARIANTS: dict[str, dict[str, str]] = {"default": {}}
ROUNDS = 101
PTH = HERE.parent / "mstxkit" / "bootstrap" / "mstxkit.pth"
ASKED = {"MSTXKIT_AUTOPATCH": "all"}


def measure(variant: str) -> list[Row]:
    """Differences of neighbours in time, and their median."""
    with tempfile.TemporaryDirectory() as folder:
        python, site = _environment(Path(folder))
        unasked, asked = [], []
        for _ in range(ROUNDS):
            without = _start_ms(python, {})
            (site / PTH.name).write_bytes(PTH.read_bytes())
            unasked.append(_start_ms(python, {}) - without)
            asked.append(_start_ms(python, ASKED) - without)
            (site / PTH.name).unlink()
    return [_row("pth.more_ms", unasked), _row("pth.asked_more_ms", asked)]


def _environment(folder: Path) -> tuple[Path, Path]:
    """An environment that finds this mstxkit: its Python, its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "a-source.pth").write_text(f"{HERE.parent}\n")
    return folder / "bin" / "python", site


def _start_ms(python: Path, asked: dict[str, str]) -> float:
    """CPU time of an interpreter that does nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    pid = os.posix_spawn(python, [str(python), "-c", "pass"], {**kept, **asked})
    _, status, used = os.wait4(pid, 0)
    assert status == 0, f"{python} ended with status {status}"
    return (used.ru_utime + used.ru_stime) * 1e3


def _row(key: str, differences: list[float]) -> Row:
    return Row(key, statistics.median(differences), "ms", spread(differences))
