"""No call of autopatch raises on any wheel that the checks know, before anything of it is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.contracts.where import INSTALLED_VERL, OLDER_VERL, verl_paths

pytestmark = [pytest.mark.frameworks]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, logging, sys
logging.basicConfig(level=logging.WARNING)
import mstxkit
from mstxkit import faults
reports = [mstxkit.autopatch(*sys.argv[1:]), mstxkit.patch_report()]
print(json.dumps({
    "imported": [name for name in ("verl", "trl", "accelerate") if name in sys.modules],
    "faults": faults.counts,
    "states": [[[s.path, s.state, s.reason, s.detail] for s in report.targets] for report in reports],
}))
"""


def told(version: str, *names: str) -> dict[str, Any]:
    """What autopatch says of these frameworks, in a process that has imported none of them."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    environment.update(PYTHONPATH=os.pathsep.join([str(ROOT), *verl_paths(version)]), PYTHONWARNINGS="ignore")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


WHEELS = [*OLDER_VERL, INSTALLED_VERL]
CALLS = [*((version, ("verl", "verl+extra")) for version in WHEELS), *((version, ()) for version in WHEELS)]


@pytest.mark.parametrize(("version", "names"), [*soak.sample(CALLS, 2), (INSTALLED_VERL, ("trl",))])
def test_every_target_waits_or_is_absent_and_nothing_is_imported(version: str, names: tuple[str, ...]) -> None:
    answer = told(version, *names)

    assert answer["faults"] == {} and answer["imported"] == []
    assert answer["states"][0] == answer["states"][1]
    installed = [state for state in answer["states"][0] if state[0].startswith(("verl.", "trl.", "accelerate."))]
    assert any(state[1] == "waiting" for state in installed)
    assert {state[2] for state in installed} <= {
        "its module is not imported yet", "absent in this version", "disabled tier",
    }  # fmt: skip


@pytest.mark.parametrize("version", soak.sample(["0.7.1", INSTALLED_VERL], 1))
def test_mstxkit_run_says_nothing_of_it(version: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    environment.update(PYTHONPATH=os.pathsep.join([str(ROOT), *verl_paths(version)]), PYTHONWARNINGS="ignore")
    run = [sys.executable, "-m", "mstxkit", "run", "--run", str(tmp_path / "run"), "--autopatch", "verl,trl", "--"]

    done = subprocess.run(
        [*run, sys.executable, "-c", "import mstxkit; print(mstxkit.status().faults)"],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "{}"
    assert "Traceback" not in done.stderr
