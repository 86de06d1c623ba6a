"""What tests of the demo share: several real ranks that run a script, and the tables of a run."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any, Callable, Iterator

import pytest

# torch_npu may be installed without CANN: loaded by itself, it would end `import torch` with an error.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

ROOT = Path(__file__).resolve().parents[2]
RanksRun = Callable[[str], "list[dict[str, Any]]"]


# Importing torch takes each rank seconds: both serve all tests of a module, one script after the other.
SERVES = """
import json, sys, torch, torch.distributed as dist
import mstxkit.demo.loop as loop
for line in sys.stdin:
    script, url = json.loads(line)
    names = {**vars(loop), "torch": torch, "dist": dist}
    names["say"] = lambda **figures: print(json.dumps(figures), flush=True)
    loop.join_ranks(url)
    exec(script, names)
    loop.leave_ranks()
"""


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RanksRun]:
    """Run a script, which says its `say(**figures)`, in two ranks that have met. Returns: the figures of each."""
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [
        subprocess.Popen([sys.executable, "-c", SERVES], cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) for _ in range(2)
    ]
    counted = itertools.count()

    def run(script: str) -> list[dict[str, Any]]:
        store = f"file://{folder}/store{next(counted)}"
        for rank, process in enumerate(ranks):
            assert process.stdin is not None
            process.stdin.write(json.dumps([script, f"{store}?rank={rank}&world_size=2"]) + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in ranks if process.stdout is not None]
        assert all(answers), "a rank has ended"
        return [json.loads(answer) for answer in answers]

    yield run
    for process in ranks:
        process.communicate(timeout=60)
    assert [process.returncode for process in ranks] == [0, 0]
