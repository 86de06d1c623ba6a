"""Runs with raw profiles, stand-ins for what parses them, and the command that is run on them.

The stand-in for torch_npu is a package of that name, early on the path of the process that parses: its `analyse` does
what the file `how` of a profile says. The one for msprof lies where CANN has the real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mstxkit
from mstxkit.host import identity

ROOT = Path(mstxkit.__file__).parents[1]
GONE_PID = 1 << 22  # above any pid that Linux gives

ANALYSE = """
import json, os, shutil, signal, sqlite3, subprocess, sys, time
from pathlib import Path

def analyse(profiler_path, max_process_number=1, export_type=None):
    raw = Path(profiler_path)
    how = (raw / "how").read_text()
    output = raw / "ASCEND_PROFILER_OUTPUT"
    told = {"left": output.exists(), "export": export_type, "nice": os.nice(0), "cwd": os.getcwd(), "pid": os.getpid(),
            "ours": sorted(key for key in os.environ if key.startswith("MSTXKIT_")), "RANK": os.environ.get("RANK"),
            "patched": "mstxkit.capturing" in sys.modules, "path": [p for p in sys.path if not p]}
    output.mkdir()
    (output / "half.csv").write_text("half")
    with open(raw / "calls.jsonl", "a") as stream:
        print(json.dumps(told), file=stream)
    if how == "hangs":
        child = subprocess.Popen(["sleep", "1000"])
        (raw / "written").write_text(str(child.pid))
        (raw / "written").rename(raw / "child")  # whoever sees it may read it
        time.sleep(1000)
    if how == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "raises":
        raise RuntimeError("no such table: x\\x1b[31m")
    prof = next(raw.glob("PROF_*"), None)
    if prof is not None:
        subprocess.run([shutil.which("msprof"), "--export=on", "--type=db", f"--output={prof}"], check=True)
        shutil.move(next(prof.glob("msprof_*.db")), output / "ascend_pytorch_profiler.db")
    else:
        (output / "trace_view.json").write_text("[]")
    (output / "analyse.done").write_text("")
    if how == "fails":
        (output / "ascend_pytorch_profiler.db").unlink()
        print("[2026-11-22 00:54:14] [ERROR] [8774] profiler.py: Task [DbParser] run failed.")
    if how == "complains":
        print("[2026-11-22 00:54:14] [ERROR] [8774] profiler.py: There is no flow.")
"""

MSPROF = """#!{python}
import sqlite3, sys, time
from pathlib import Path
given = dict(word.partition("=")[::2] for word in sys.argv[1:])
if "--help" in given:
    print("--type=<type>  text, db")
elif "--export" in given:
    out = Path(given["--output"])
    if given.get("--type") == "db":
        base = sqlite3.connect(str(out / "msprof_20261122000000.db"))
        base.executescript("create table STRING_IDS (id integer primary key, value text);"
                           "create table MSTX_EVENTS (startNs integer, endNs integer);")
        base.commit()
        base.close()
    else:
        text = out / "mindstudio_profiler_output"
        text.mkdir(exist_ok=True)
        event = '[{{"name": "process_name", "ph": "M", "pid": 1, "args": {{"name": "python"}}}}]'
        (text / "msprof_20261122000000.json").write_text(event)
        (text / "op_summary_20261122000000.csv").write_text("a,b\\n")
    time.sleep({seconds})
"""

INFO = """
import json
host = {"cpu_info": [{"Frequency": "100"}]}
print(json.dumps({"status": 0, "data": {"host_info": host, "version_info": {"drv_version": 500000}}}))
"""


class Bench:
    """A run, and the stand-ins that parse it."""

    def __init__(self, folder: Path, seconds: float = 0) -> None:
        self.run, self.cann, self.packages = folder / "run", folder / "cann", folder / "packages"
        for made in (self.run / "live", self.packages / "torch_npu" / "profiler"):
            made.mkdir(parents=True)
        (self.run / "run.json").write_text(json.dumps({"format": 1, "run": "0" * 32, "created_ns": 1}))
        (self.packages / "torch_npu" / "__init__.py").write_text("__version__ = '9.9'\n")
        (self.packages / "torch_npu" / "profiler" / "__init__.py").write_text("")
        (self.packages / "torch_npu" / "profiler" / "profiler.py").write_text(ANALYSE)
        self.msprof = make_msprof(self.cann, seconds)
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("MSTXKIT_", "ASCEND_"))},
            "PYTHONPATH": str(self.packages),
            "PATH": f"{self.msprof.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "TMPDIR": str(folder),  # what a killed command leaves goes with the test's own folder
        }

    def profile(
        self,
        how: str = "is well",
        stage: str = "actor_update",
        step: int = 5,
        rank: int = 0,
        export: str = "db",
        device: bool = True,
        session: dict[str, Any] | None = None,
        name: str = "",
    ) -> Path:
        """A raw profile in its session's folder; `session`: what of session.json is other than usual."""
        folder = self.run / "profiles" / stage / f"step{step}" / f"rank{rank}" / f"{1000 + rank}-77"
        raw = folder / (name or f"host_{GONE_PID}_20261122000000000_ascend_pt")
        raw.mkdir(parents=True)
        (raw / "how").write_text(how)
        if device:
            (raw / "PROF_000001_20261122000000_ABC" / "host" / "data").mkdir(parents=True)
        info = {"config": {"experimental_config": {"_export_type": [export]}}}
        (raw / "profiler_info.json").write_text(json.dumps(info))
        if session is not None and session.get("none"):
            return raw
        usual = {
            "format": 1, "run": "0" * 32, "host": identity.name_host(), "pid": GONE_PID, "rank": rank, "stage": stage,
            "step": step, "request": f"r{rank}", "state": "recorded", "output": raw.name, "bytes": 100,
            "backend": "torch_npu",
        }  # fmt: skip
        (folder / "session.json").write_text(json.dumps({**usual, **(session or {})}))
        return raw

    def command(self, *words: object) -> list[str]:
        """`mstxkit profiles --analyse` on the run."""
        return [
            sys.executable,
            "-W",
            "error",
            "-m",
            "mstxkit",
            "profiles",
            str(self.run),
            "--analyse",
            *map(str, words),
        ]

    def analyse(self, *words: object, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run that to its end."""
        return subprocess.run(
            self.command(*words), env=self.environment(**environ), capture_output=True, text=True, timeout=100
        )

    def environment(self, **environ: str) -> dict[str, str]:
        """That of the command."""
        path = os.pathsep.join([self.environ["PYTHONPATH"], str(ROOT)])
        return {**self.environ, "PYTHONPATH": path, **environ}


def make_msprof(cann: Path, seconds: float = 0) -> Path:
    """A stand-in where CANN has the real one, with the scripts beside it that torch_npu and MindSpore look for.

    Source: torch_npu 2.13.0 `cann_parse/_cann_export.py`, mindspore 2.10.0 `common/msprof_cmd_tool.py`.
    """
    tools = cann / "tools" / "profiler"
    scripts = tools / "profiler_tool" / "analysis"
    content = {
        tools / "bin" / "msprof": MSPROF.format(python=sys.executable, seconds=seconds),
        scripts / "msprof" / "msprof.py": "",
        scripts / "interface" / "get_msprof_info.py": INFO,
    }
    for path, text in content.items():
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    return tools / "bin" / "msprof"


def calls(raw: Path) -> list[dict[str, Any]]:
    """What each parse of this profile found."""
    file = raw / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def is_gone(pid: int) -> bool:
    """Has a process ended? A zombie has."""
    return identity.pid_start(pid) is None
