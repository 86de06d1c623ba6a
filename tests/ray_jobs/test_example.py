"""`examples/02_autopatch_ray.py` runs as its own text says, and shows every process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import ray_jobs

pytestmark = [pytest.mark.ray, pytest.mark.slow]

EXAMPLE = ray_jobs.ROOT / "examples" / "02_autopatch_ray.py"


def test_the_example_shows_every_process_of_its_job(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("yaml")
    command = [sys.executable, str(EXAMPLE), "--run", "run", "--ranks", "2", "--steps", "2"]

    done = subprocess.run(command, env=ray_jobs.environment(), cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    recorded = {line.split("pid")[0].strip() for line in done.stdout.splitlines() if " ranges, " in line}
    assert recorded == {"trainer", "integrated 0", "integrated 1", "reward", "dock", "task"}
    assert "steps 100 to 101" in done.stdout
    assert "reference_compute_log_prob" in done.stdout


def test_the_job_of_the_example_has_no_line_of_mstxkit() -> None:
    files = list((EXAMPLE.parent / "ray_job").glob("*.py"))

    assert files
    assert not [path.name for path in files if "import mstxkit" in path.read_text(encoding="utf-8")]
