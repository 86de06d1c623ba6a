"""A sub-interpreter that imports mstxkit takes nothing from the main one: it is not recorded, and says so."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mstxkit.engine.choose import engine
from mstxkit.host import interpreters
from mstxkit.reading.run import open_run

_PROGRAM = """
import importlib, json, sys
import mstxkit
try:
    asked = importlib.import_module("_interpreters")
except ImportError:
    asked = importlib.import_module("_xxsubinterpreters")
told = sys.argv[2]
inside = f'''
import json, os
os.environ["MSTXKIT_AUTOPATCH"] = "all"
import mstxkit
from mstxkit.host import interpreters
with mstxkit.stage("sub"):
    mstxkit.mark("sub")
capture = mstxkit.capture({sys.argv[1]!r})
status = mstxkit.status()
with open({told!r}, "w") as file:
    json.dump([interpreters.is_main(), capture.run, status.on, status.native, status.faults,
               len(mstxkit.patch_report().targets)], file)
'''
mstxkit.capture(sys.argv[1])
with mstxkit.stage("main"):
    pass
for again in range(3):
    sub = asked.create(*json.loads(sys.argv[3]))
    failed = asked.run_string(sub, inside)
    assert failed is None, failed
    asked.destroy(sub)
    with mstxkit.stage("main"):
        mstxkit.mark("with a hook", long="q" * 5000)
status = mstxkit.status()
print(json.dumps([status.on, status.counters["faults"], status.faults]))
"""


def _run(tmp_path: Path, *config: str) -> tuple[list[Any], list[Any]]:
    """What the main interpreter says at its end, and what the last of three sub-interpreters said."""
    told = tmp_path / "told.json"
    environment = {**os.environ, "MSTXKIT_NATIVE": str(int(engine.NATIVE))}
    environment.pop("MSTXKIT_RUN", None)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "run"), str(told), json.dumps(config)],
        capture_output=True, text=True, env=environment, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout), json.loads(told.read_text())


def _has_subinterpreters() -> bool:
    return any(importlib.util.find_spec(name) for name in ("_interpreters", "_xxsubinterpreters"))


_CONFIGS = [(), ("legacy",)] if sys.version_info >= (3, 13) else [()]  # with a GIL of its own; with the one of all


@pytest.mark.skipif(not _has_subinterpreters(), reason="this Python has no module for sub-interpreters")
@pytest.mark.parametrize("config", _CONFIGS, ids=lambda config: "".join(config) or "own")
def test_the_main_interpreter_goes_on_and_the_other_is_refused(tmp_path: Path, config: tuple[str, ...]) -> None:
    (is_on, counted, faults), (is_main, run, sub_is_on, sub_is_native, sub_faults, patched) = _run(tmp_path, *config)

    assert is_on
    assert faults == {}
    assert counted == (3 if engine.NATIVE else 0)  # the C engine is the process's, and counts who was refused
    assert (is_main, run, sub_is_on, sub_is_native, patched) == (False, None, False, False, 0)
    assert sub_faults["capture in a sub-interpreter"] >= 1
    found = open_run(tmp_path / "run")
    assert found.stages()["count"].sum() == 4
    assert found.marks().height == 3


def test_this_is_the_main_interpreter() -> None:
    assert interpreters.is_main()
