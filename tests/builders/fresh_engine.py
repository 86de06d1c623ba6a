"""A program on one engine in a process of its own: for what lasts as long as a process does: steps, names, stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

_TESTS = Path(__file__).parents[1]
_LIMIT_S = 100
_BEFORE = """
import asyncio, gc, json, sys, threading
from mstxkit import faults
from mstxkit.store import livefile, records
from mstxkit.engine.choose import engine
from builders.written_banks import FAKE, Written

engine.set_clock(FAKE)
"""
_AFTER = """
print(json.dumps(result))
"""


def run_fresh(engine: Any, program: str) -> Any:
    """Run `program`, which finds `engine` and `Written`, on this engine in a new process; what it left in `result`."""
    paths = [str(_TESTS), str(_TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "MSTXKIT_NATIVE": str(int(engine.NATIVE)), "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("MSTXKIT_RUN", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _BEFORE + dedent(program) + _AFTER],
        capture_output=True, text=True, env=environment, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)
