"""Real jobs of other shapes than equal ranks at a barrier: is the one that is slow named first, and nobody else?

Pipelines on gloo, by hand and by torch.distributed.pipelining; FSDP2; eight ranks of dp × tp × pp; trainers fed by
rollouts through a queue; a Ray controller with workers and a reward server (`real_shape.py`). Each is trained healthy,
and with one that takes twice as long from the thirtieth of ninety steps on; `BENCH_SHAPES_ROUNDS` (10) times. What is
looked at is what a user sees: what `mstxkit report` says first, and all else that it blames.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from .harness import HERE, Row
from .real_shape import SHAPES

ROOT, FACTOR, _LIMIT_S = HERE.parent, 2.0, 300
RAY_PYTHON = ROOT / ".venvs" / "frameworks" / "bin" / "python"
VARIANTS: dict[str, dict[str, str]] = {name: {} for name in SHAPES}


class Said(NamedTuple):
    """Of one job: is what is said first right, is anybody else blamed, and in which words?"""

    is_right: bool
    blames_others: bool
    words: str


def measure(variant: str) -> list[Row]:
    """Shares of all jobs: of 1 all are right, and of 0 nobody else is blamed in any."""
    rounds = int(os.environ.get("BENCH_SHAPES_ROUNDS", "10"))
    rows = []
    for kind, factor in (("healthy", 1.0), ("slow", FACTOR)):
        said = [look_at(variant, factor) for _ in range(rounds)]
        wrong = [each.words for each in said if not each.is_right or each.blames_others]
        note = f"of {rounds}; {said[0].words}" + (f"; not: {'; '.join(wrong)}" if wrong else "")
        rows.append(
            Row(f"shapes.{variant}_{kind}_right", sum(each.is_right for each in said) / rounds, "share", note=note)
        )
        others = sum(each.blames_others for each in said) / rounds
        rows.append(Row(f"shapes.{variant}_{kind}_others_blamed", others, "share"))
    return rows


def look_at(shape: str, factor: float) -> Said:
    """Train once, and read what is said of it."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(shape, run, factor)
        told = subprocess.run(
            [sys.executable, "-m", "mstxkit", "report", str(run), "--json"], cwd=ROOT, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    document = json.loads(told.stdout)
    blaming = [matter for matter in document["matters"] if matter["blames"]]
    if factor == 1.0:
        return Said(not blaming, bool(blaming), document["headline"]["words"])
    right = [matter for matter in blaming if is_right(matter, shape)]
    return Said(bool(blaming) and blaming[0] in right, right != blaming, "; ".join(m["words"] for m in blaming))


def is_right(matter: dict[str, Any], shape: str) -> bool:
    """Is that the one, in a stage of its own?"""
    expected = SHAPES[shape]
    is_role = matter["ranks"] == [expected.slow] or (not matter["ranks"] and bool(expected.role))
    is_role &= expected.role in matter["words"]
    return is_role and any(stage in matter["words"] for stage in expected.stages)


def train(shape: str, run: Path, factor: float) -> None:
    """Start the job and wait for its end; how it failed is in the error."""
    ranks, program = SHAPES[shape].ranks, [str(HERE / "real_shape.py"), shape, str(run), str(factor)]
    python = str(RAY_PYTHON) if shape == "controller" else sys.executable
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    done = subprocess.run(
        [python, *launch, *program], env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
