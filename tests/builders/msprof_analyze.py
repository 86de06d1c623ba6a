"""msprof-analyze as a command, from the packages that `make setup` unpacks beside the environments.

MSPROF_ANALYZE_OF_TESTS names another folder of packages.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

_PLACE = Path(__file__).resolve().parents[2] / ".venvs/msprof_analyze/26.2.0"
UNPACKED = Path(os.environ.get("MSPROF_ANALYZE_OF_TESTS", _PLACE))
# Ours are for the Python of the locks: pandas is built for that one, and Python 3.9 cannot read click.
_FITS = UNPACKED != _PLACE or sys.version_info[:2] == (3, 11)
IS_HERE = _FITS and (UNPACKED / "msprof_analyze").is_dir()
# Both major versions of pandas: the newest, and the one that MindStudio's guide asks for, where it is unpacked too.
PANDAS = {3: None, 2: UNPACKED.parent / "pandas-2.3.2"}
_SCRIPT = """#!{python}
import sys
sys.path[:0] = {places!r}
from msprof_analyze.cli.entrance import msprof_analyze_cli
if __name__ == "__main__":  # it spawns processes
    msprof_analyze_cli()
"""


def has(pandas: int) -> bool:
    """Is it here, with this major version of pandas?"""
    before = PANDAS[pandas]
    return IS_HERE and (before is None or before.is_dir())


def install(folder: Path, pandas: int = 3) -> dict[str, str]:
    """The command in a folder, on this major version of pandas, and the environment in which a shell finds it."""
    folder.mkdir()
    command = folder / "msprof-analyze"
    places = [str(place) for place in (PANDAS[pandas], UNPACKED) if place is not None]
    command.write_text(_SCRIPT.format(python=sys.executable, places=places))
    command.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    return {**environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def mstx_sum(folder: Path, place: Path, pandas: int = 3) -> dict[tuple[str, int], tuple[float, ...]]:
    """By name and step, what it makes of the ranges of a folder: count, least, most, sum, and the ranks of these.

    Args:
        place: Where it may write.
    """
    if not has(pandas):
        pytest.skip(f"needs msprof-analyze with pandas {pandas}: make setup-frameworks")
    command = ["msprof-analyze", "cluster", "-m", "mstx_sum", "-d", folder, "-o", place / "sums"]
    place.mkdir(exist_ok=True)

    environ = install(place / "bin", pandas)
    done = subprocess.run([*command, "--export_type", "db"], env=environ, capture_output=True, text=True, timeout=300)

    database = place / "sums" / "cluster_analysis_output" / "cluster_analysis.db"
    assert database.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    query = "select Name, StepId, Count, MinNs, MaxNs, SumNs, MinRank, MaxRank from MSTXAllCannStats"
    with closing(sqlite3.connect(database)) as base:
        return {row[:2]: row[2:] for row in base.execute(query)}
