"""CANN's `msprof`, which turns device data into tables: where it is, or what is missing and where it was looked for.

Source: torch_npu 2.13.0 `cann_parse/_cann_export.py` and mindspore 2.10.0 `common/msprof_cmd_tool.py`: `msprof` is
taken from PATH, and beside the folder `tools` of the real one there must be `_SCRIPT`. CANN's own default places:
MindStudio Profiler user guide, "Environment Setup".
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Mapping, NamedTuple

_SCRIPT = "tools/profiler/profiler_tool/analysis/msprof/msprof.py"
_BELOW_HOME = ("bin", "tools/profiler/bin")
_HOME_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")
_DEFAULT_HOMES = ("Ascend/cann", "Ascend/ascend-toolkit/latest")
# What would make the parser a profiler, a part of the training, or of a run of ours.
_NOT_FOR_PARSERS = (
    "PROFILER_SAMPLECONFIG", "PROFILING_MODE", "PROFILING_OPTIONS", "PROF_CONFIG_PATH", "MS_PROFILER_OPTIONS",
    "MSMONITOR_USE_DAEMON", "KINETO_USE_DAEMON", "MSTX_INJECTION_PATH",
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "RANK_ID", "RANK_SIZE", "RANK_TABLE_FILE",
)  # fmt: skip


class Msprof(NamedTuple):
    """The msprof to use, or why there is none: the places that were looked at, what is wrong, and what to do."""

    path: str | None
    problem: str


def find_msprof(environ: Mapping[str, str]) -> Msprof:
    """Look for msprof on PATH, then where CANN's variables and its installer put it."""
    on_path = shutil.which("msprof", path=environ.get("PATH"))
    looked = ["PATH"]
    candidates = [on_path] if on_path else []
    # The folders that CANN may be in, each with the variable that names it.
    parents = filter(None, ("/usr/local", environ.get("HOME")))
    homes = [(name, environ.get(name) or None) for name in _HOME_VARIABLES]
    for variable, home in [*homes, *(("", f"{parent}/{place}") for parent in parents for place in _DEFAULT_HOMES)]:
        if home is None:
            looked.append(f"${variable} (not set)")
            continue
        looked += [f"{home}/{place}" + (f" (${variable})" if variable else "") for place in _BELOW_HOME]
        candidates += [path for place in _BELOW_HOME if os.access(path := f"{home}/{place}/msprof", os.X_OK)]
    problems = {candidate: _problem_of(candidate) for candidate in candidates}
    for candidate, problem in problems.items():
        if not problem:
            return Msprof(candidate, "")
    nowhere = (
        f"no msprof, which belongs to the CANN toolkit; looked in {', '.join(looked)}. On a host with CANN: "
        "`source <CANN>/set_env.sh` and run this again. On one without: take the run's folder to a host that has it"
    )
    return Msprof(None, next(iter(problems.values()), nowhere))


def _problem_of(msprof: str) -> str:
    """Why torch_npu and MindSpore would not use this msprof; "" if they would."""
    real = os.path.realpath(msprof)
    script = os.path.join(real.split("tools")[0], _SCRIPT)
    if not os.path.isfile(script):
        return (
            f"{msprof} is not one that torch_npu and MindSpore can use: they look for {script}, which is not there; "
            "install the CANN toolkit, not the runtime alone"
        )
    if not os.path.isfile(real) or os.stat(real).st_uid not in (0, os.geteuid()):
        return f"{msprof} belongs neither to root nor to user {os.geteuid()}: it is not run"
    return ""


def make_environment(environ: Mapping[str, str], msprof: str | None) -> dict[str, str]:
    """The environment of a process that parses: nothing of ours runs in it, and it finds msprof."""
    names = [name for name in environ if not name.startswith("MSTXKIT_") and name not in _NOT_FOR_PARSERS]
    kept = {name: environ[name] for name in names}
    # torch would load torch_npu by itself, and hide why that fails.
    kept.update(MSTXKIT_OFF="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    if msprof and shutil.which("msprof", path=environ.get("PATH")) != msprof:
        kept["PATH"] = os.pathsep.join(filter(None, [str(Path(msprof).parent), environ.get("PATH")]))
    return kept
