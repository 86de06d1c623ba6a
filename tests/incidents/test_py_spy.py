"""Ranks that can write their stacks neither when asked nor by a signal: py-spy reads them from outside.

It is no dependency. The environment of the frameworks has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.hanging import Job

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", autouse=True)
def _py_spy() -> None:
    """As the watchman finds it, and may use it."""
    py_spy = shutil.which("py-spy", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    if py_spy is None:
        pytest.skip("py-spy is not installed")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        command = [py_spy, "dump", "--pid", str(other.pid), "--nonblocking"]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=30)
        other.communicate(b"\n")
    if tried.returncode:
        pytest.skip(f"py-spy may not read other processes here: {tried.stderr.strip()[-200:]}")


def test_a_rank_with_a_handler_of_its_own_whose_native_code_holds_the_gil_is_named(tmp_path: Path) -> None:
    incident, report = incident_of("native", tmp_path, word="own handler")

    assert (incident.kind, incident.rank, incident.range) == ("hang", 0, "score")
    assert (report["stacks_by"], report["has_gil"]) == ("py-spy", True)
    assert "GIL" in incident.reason
    assert incident.details["stack"][0].startswith("native at ")


def test_the_stack_of_a_stopped_rank_is_had(tmp_path: Path) -> None:
    incident, report = incident_of("stopped", tmp_path)

    assert report["stacks_by"] == "py-spy"
    assert "SIGSTOP" in incident.reason
    assert any(call.startswith("stopped at ") for call in incident.details["stack"])


def incident_of(deed: str, folder: Path, word: str = "") -> tuple[Any, dict[str, Any]]:
    """Of rank 0, for which rank 1 waits; and its report."""
    job = Job(folder / "run", deed, "waits", word=word)
    try:
        incident = job.incident()
        (report,) = (report for report in job.reports() if report["rank"] == 0)
    finally:
        job.end()
    return incident, report
