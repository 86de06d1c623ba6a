"""The examples: they run as their own text says, and show what the package ships."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import quickstart

# torch_npu may be installed without CANN: loaded by itself, it would end `import torch` with an error.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

ROOT = Path(__file__).resolve().parents[1]
ESCALATE = ROOT / "examples" / "04_escalate.py"


def test_the_page_shows_the_loop_that_the_demo_runs_and_every_example_there_is() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| \[(\S+)\]\((\S+)\)", page, re.MULTILINE)

    assert {name for name, _ in shown} == {
        "mstxkit/demo/loop.py",
        *(path.name for path in (ROOT / "examples").glob("*.py")),
    }
    assert "torchrun --standalone --nproc-per-node 2 -m mstxkit.demo.loop" in page


@pytest.mark.daily(1)
@pytest.mark.slow
def test_the_example_trains_under_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    recorder = quickstart.mstxkit("torch", "run", tmp_path / "run")
    started = next(words for words in quickstart.commands("torch") if "mstxkit.demo.loop" in words)
    program = [sys.executable, "-m", "torch.distributed.run", *started[started.index("torchrun") + 1 :]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [*recorder, *program, "--steps", "3", "--every", "1"], env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["step", str(n)] for n in range(3)]
    assert list((tmp_path / "run" / "sealed").iterdir())


@pytest.mark.daily(1)
@pytest.mark.slow
def test_the_example_of_escalation_profiles_its_own_slow_stage_and_says_where_that_lies(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("polars")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, str(ESCALATE), "--run", str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "actor_update on rank 0 is done" in done.stdout
    (trace,) = (tmp_path / "run" / "profiles").rglob("*.pt.trace.json")
    assert str(trace) in done.stdout
    assert f"mstxkit profiles {tmp_path / 'run'} --analyse" in done.stdout


@pytest.mark.daily(1)
@pytest.mark.slow
def test_the_example_of_configuration_records_the_same_sessions_with_three_systems_files(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("polars")
    command = [sys.executable, str(ROOT / "examples" / "05_config.py"), "--folder", str(tmp_path / "runs")]

    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)

    stages = ("actor_compute_log_prob", "actor_generate", "actor_update")
    sessions = ", ".join(f"{stage} in step {number}" for stage in stages for number in (3, 4))
    assert done.returncode == 0, done.stderr
    for name in ("mindspeed_rl", "verl", "own"):
        assert f"{name}: {sessions}\n" in done.stdout, done.stdout
        assert f"{name}: actor_update is queued, planned for step 3" in done.stdout
    assert "the same sessions" in done.stdout
