"""What `capture()` brings into a training process: modules and lines of ours, CPU time, memory.

`cold`: the first `capture()` of a process, with a stage and an attribute, in a process that has loaded `mstxkit` alone;
its bytecode is there, as `pip install` leaves it. `warm`: the second one. `standing_by`: once nobody has asked for
anything, and blocks have been written. Lines are of modules that are loaded. Resident memory is less that of a process
that has loaded `mstxkit` alone, with the pages of the live file.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from .harness import HERE, NATIVE, Row, spread

VARIANTS = {"native": NATIVE}
PROCESSES = 1  # of their own: those that are measured
RUNS = 15
PROGRAM = """
import json, os, sys, time
from pathlib import Path
import mstxkit

def loaded():
    modules = [m for name, m in list(sys.modules.items()) if name.split(".")[0] == "mstxkit"]
    files = {m.__file__ for m in modules if str(m.__file__).endswith(".py")}
    return len(files), sum(Path(file).read_text(encoding="utf-8").count("\\n") for file in files)

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6

def begun(run):
    began = time.process_time_ns()
    capture = mstxkit.capture(run, seal_every_s=2)
    with mstxkit.stage("actor_update"), mstxkit.mstx_range("rollout", prompts=8):
        pass
    return capture, (time.process_time_ns() - began) / 1e6

before_mb = resident_mb()
capture, cold_ms = begun(sys.argv[1])
at_once = loaded()
time.sleep(0.2)  # by then the live file's pages are there
at_once = *at_once, resident_mb() - before_mb
if len(sys.argv) > 3:
    time.sleep(float(sys.argv[3]))
later = *loaded(), resident_mb() - before_mb
capture.stop()
capture, warm_ms = begun(sys.argv[2])
capture.stop()
print(json.dumps([cold_ms, warm_ms, at_once, later]))
"""
# By then blocks have been written, and a watchman looks.
_SETTLES_S = 12.0


def measure(variant: str) -> list[Row]:
    """In fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _run(place, "first")  # writes the bytecode
        *_, standing = _run(place, "standing", str(_SETTLES_S))
        runs = [_run(place, str(number)) for number in range(RUNS)]
    cold, warm, (at_once, *_), _ = zip(*runs)
    return [
        Row("footprint.modules", at_once[0], "modules"),
        Row("footprint.lines", at_once[1], "lines"),
        Row("footprint.cold_cpu_ms", statistics.median(cold), "ms", spread(cold)),
        Row("footprint.warm_cpu_ms", statistics.median(warm), "ms", spread(warm)),
        Row("footprint.resident_mb", at_once[2], "MB", note="the live file's 4.3 MB among them"),
        Row("footprint.standing_by_modules", standing[0], "modules"),
        Row("footprint.standing_by_lines", standing[1], "lines"),
        Row("footprint.standing_by_resident_mb", standing[2], "MB"),
    ]


def _run(place: Path, name: str, *words: str) -> list:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MSTXKIT_RUN", "MSTXKIT_JOB", "PYTHON"))}
    variables = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "PYTHONPATH": str(HERE.parent),
        "PYTHONPYCACHEPREFIX": str(place / "pyc"),
    }
    folders = [str(place / f"{name}-{which}") for which in ("cold", "warm")]
    command = [sys.executable, "-c", PROGRAM, *folders, *words]
    done = subprocess.run(command, env={**kept, **variables}, capture_output=True, text=True, check=True, cwd=place)
    return json.loads(done.stdout)
