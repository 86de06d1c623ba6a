"""What tests of the demo share: several real ranks that run a script, and the tables of a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

# torch_npu may be installed without CANN: loaded by itself, it would end `import torch` with an error.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

ROOT = Path(__file__).resolve().parents[2]
RanksRun = Callable[[str], "list[dict[str, Any]]"]


@pytest.fixture
def on_two_ranks(tmp_path: Path) -> RanksRun:
    """Run a script, which ends with `say(**figures)`, in two ranks that have met. Returns: the figures of each."""
    opening = (
        "import json, sys, torch, torch.distributed as dist\n"
        "from mstxkit.demo.loop import *\n"
        "def say(**figures): print(json.dumps(figures))\n"
        "join(sys.argv[1])\n"
    )

    def run(script: str) -> list[dict[str, Any]]:
        urls = [f"file://{tmp_path}/store?rank={rank}&world_size=2" for rank in range(2)]
        code = opening + script + "\nleave()\n"
        ranks = [subprocess.Popen([sys.executable, "-c", code, u], cwd=ROOT, stdout=subprocess.PIPE) for u in urls]
        outputs = [process.communicate()[0] for process in ranks]
        assert [process.returncode for process in ranks] == [0, 0]
        return [json.loads(output) for output in outputs]

    return run
