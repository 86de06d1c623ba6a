"""msprof-analyze as a command, from the packages that `make setup` unpacks beside the environments.

MSPROF_ANALYZE_OF_TESTS names another folder of packages.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_PLACE = Path(__file__).resolve().parents[2] / ".venvs/msprof_analyze/26.2.0"
UNPACKED = Path(os.environ.get("MSPROF_ANALYZE_OF_TESTS", _PLACE))
IS_HERE = (UNPACKED / "msprof_analyze").is_dir()
_SCRIPT = """#!{python}
import sys
sys.path.insert(0, {place!r})
from msprof_analyze.cli.entrance import msprof_analyze_cli
if __name__ == "__main__":  # it spawns processes
    msprof_analyze_cli()
"""


def install(folder: Path) -> dict[str, str]:
    """The command in a folder, and the environment in which a shell finds it."""
    folder.mkdir()
    command = folder / "msprof-analyze"
    command.write_text(_SCRIPT.format(python=sys.executable, place=str(UNPACKED)))
    command.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MSTXKIT_", "PYTHON"))}
    return {**environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
