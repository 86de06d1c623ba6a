"""The examples: they run as their own text says, and show what the package ships."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "01_grpo.py"


def test_the_example_is_the_loop_that_the_demo_runs() -> None:
    assert EXAMPLE.read_bytes() == (ROOT / "mstxkit" / "demo" / "loop.py").read_bytes()


@pytest.mark.slow
def test_the_example_trains_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "MSTXKIT_RUN": str(tmp_path / "run"), "OMP_NUM_THREADS": "1"}
    environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [*launcher, str(EXAMPLE), "--steps", "3", "--every", "1"], env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["step", str(n)] for n in range(3)]
    assert list((tmp_path / "run" / "sealed").iterdir())
