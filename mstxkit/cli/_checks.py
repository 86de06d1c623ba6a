"""Checks of this installation without heavy imports: engine, clock, tmpfs, packages, ways in, environment."""

from __future__ import annotations

import difflib
import os
import platform
from pathlib import Path
from typing import Mapping

from ..errors import MstxkitError
from ..host import clock, folders, life
from ..parsing.tools import find_msprof
from ..reading.report.escape import for_rich
from ..reading.report.units import size
from . import _activation, _show
from ._activation import NOTE, OK, WRONG, Check, installed

NEEDED = ("wrapt", "pyyaml")
OPTIONAL = {
    **dict.fromkeys(("typer", "rich"), "the command line needs it: pip install 'mstxkit[cli]'"),
    "pydantic": "a configuration is read by it: pip install 'mstxkit[cli]'",
    **dict.fromkeys(("numpy", "polars"), "reading a run needs it: pip install 'mstxkit[report]'"),
    "zstandard": "sealed files are compressed with zlib instead, larger: pip install 'mstxkit[report]'",
    **dict.fromkeys(("torch", "torch_npu", "mindspore"), ""),
}
TMPFS_NEEDED_BYTES = 64 << 20
VARIABLES = ("RUN", "OFF", "NATIVE", "CLOCK", "ROLE", "AUTOPATCH", "CONFIG", "JOB", "READ_BEYOND_BYTES")
_OURS, _LEFT_SHOWN = "MSTXKIT_", 4
# What mstxkit hands on to the processes that it starts.
HANDED_ON = ("RUN_ID", "PLANNED", "TAKES_OVER", "RAY_NEXT_HOOK")


def installation() -> list[Check]:
    """All checks, in the order in which to show them."""
    version = installed("mstxkit") or "not installed as a package"
    ours = Check("mstxkit", OK, f"{version}, Python {platform.python_version()}")
    here = [ours, *_check_engine(), _check_tmpfs(), *left_in_memory(), *_check_packages(), *_check_npu(), *_msprof()]
    return [*here, *_activation.ways_in(), *environment(os.environ)]


def _check_engine() -> list[Check]:
    try:
        from ..engine import choose as chosen
    except MstxkitError as exc:
        return [Check("engine", WRONG, str(exc))]
    engine = chosen.engine
    clock_choice = clock.choose(bool(engine.NATIVE))
    kinds = {clock.MONOTONIC: "CLOCK_MONOTONIC", clock.TSC: "TSC", clock.CNTVCT: "cntvct_el0"}
    which = Check("engine", OK, "C extension")
    if not engine.NATIVE:
        why = chosen.why_twin()
        which = Check("engine", NOTE, f"Python twin, where a range costs a hundred times as much: {why}")
    return [which, Check("clock", OK, f"{kinds.get(clock_choice.kind)}: {clock_choice.reason}")]


def _check_tmpfs() -> Check:
    instead = "live files go to a disk, which can make a program wait; in a container, raise --shm-size"
    try:
        space = os.statvfs(folders.SHARED_MEMORY)
    except OSError as exc:
        return Check("tmpfs", NOTE, f"{folders.SHARED_MEMORY}: {exc.strerror}: {instead}")
    free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
    detail = f"{folders.SHARED_MEMORY}: {size(free)} free of {size(total)}"
    if not os.access(folders.SHARED_MEMORY, os.W_OK | os.X_OK):
        return Check("tmpfs", NOTE, f"{folders.SHARED_MEMORY} cannot be written: {instead}")
    if free < TMPFS_NEEDED_BYTES:
        return Check("tmpfs", NOTE, f"{detail}: little room; without it, {instead}")
    return Check("tmpfs", OK, detail)


def left_in_memory() -> list[Check]:
    """What killed processes left of runs of which nobody lives here. One that was moved looks as if it was removed."""
    mine = folders.in_shared_memory()
    left = sorted(filter(_is_left, mine.glob("*")))
    bytes_left, more = size(sum(map(folders.size_bytes, left))), len(left) - _LEFT_SHOWN
    detail = f"{bytes_left} of killed processes, runs with none that lives here: {len(left)}; "
    detail += f"`mstxkit collect RUN` seals it; where a run is removed, take it away: cd {mine} && rm -r"
    names = [run.name for run in left[:_LEFT_SHOWN]] + [f"({more} more are named then)"] * (more > 0)
    return [Check("left behind", NOTE, " ".join([detail, *names]))] if left else []


def _is_left(run: Path) -> bool:
    """Are there live files in this folder, and does nobody hold the lock of any?"""
    locks = {file.with_suffix(life.SUFFIX) for file in run.glob("*.li[fv]e")}
    return bool(locks) and all(life.is_held(str(lock)) is False for lock in locks)


def _check_packages() -> list[Check]:
    needed = [Check(p, OK if v else WRONG, v or f"missing: pip install {p}") for p in NEEDED for v in [installed(p)]]
    return needed + [
        Check(package, NOTE if why and not v else OK, v or "; ".join(filter(None, ("not installed", why))))
        for package, why in OPTIONAL.items() for v in [installed(package)]
    ]  # fmt: skip


def _check_npu() -> list[Check]:
    """torch loads torch_npu by itself, which fails without CANN.

    Source: torch 2.13.0 `torch/__init__.py`, `_import_device_backends`; TORCH_DEVICE_BACKEND_AUTOLOAD=0 forbids it.
    """
    if not installed("torch_npu") or os.environ.get("ASCEND_HOME_PATH"):
        return []
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return [Check("CANN", OK, "ASCEND_HOME_PATH is not set; torch does not load torch_npu by itself")]
    detail = "ASCEND_HOME_PATH is not set: if `import torch` fails, source CANN's set_env.sh or, on a machine "
    return [Check("CANN", NOTE, detail + "without an NPU, set TORCH_DEVICE_BACKEND_AUTOLOAD=0")]


def _msprof() -> list[Check]:
    """What `mstxkit profiles --analyse` needs of CANN, where there is anything that could be parsed."""
    msprof = find_msprof(os.environ)
    if msprof.path:
        return [Check("msprof", OK, msprof.path)]
    if not (installed("torch_npu") or installed("mindspore")):
        return []
    return [Check("msprof", NOTE, f"`mstxkit profiles --analyse` cannot parse device data here: {msprof.problem}")]


def environment(variables: Mapping[str, str]) -> list[Check]:
    """One check for each variable of ours."""
    return [_check_variable(name, variables[name]) for name in sorted(variables) if name.startswith(_OURS)]


def _check_variable(name: str, value: str) -> Check:
    from ..bootstrap import settings  # it loads the engine
    from ..engine import choose

    setting = name[len(_OURS) :]
    if setting in HANDED_ON:
        return Check(name, OK, f"{value!r}: handed on by the process that started this one")
    if setting.lower() in settings.names():
        problem = value and settings.problem_with(setting.lower(), value)
        return Check(name, WRONG, f"nothing is recorded: {problem}") if problem else Check(name, OK, repr(value))
    if setting not in VARIABLES:
        return Check(name, NOTE, f"{value!r}: {_no_setting(setting, (*VARIABLES, *map(str.upper, settings.names())))}")
    if name == "MSTXKIT_OFF" and value not in ("", "0"):
        return Check(name, NOTE, f"{value!r}: nothing of mstxkit runs in processes that have this")
    if name == choose.VARIABLE and value not in choose.CHOICES:
        return Check(name, WRONG, f"{value!r} is ignored: {choose.MEANING}")
    if name == "MSTXKIT_RUN" and os.path.exists(value) and not os.path.isdir(value):
        return Check(name, WRONG, f"{value!r} is no folder; capture cannot write there")
    if name == "MSTXKIT_CONFIG" and not os.path.isfile(value):
        return Check(name, WRONG, f"{value!r} is no file; nothing is planned")
    parts = filter(None, map(str.strip, value.split(","))) if name == "MSTXKIT_AUTOPATCH" else ()
    problems = list(filter(None, map(_activation.problem_with, parts)))
    return Check(name, WRONG, f"{value!r}: {'; '.join(problems)}") if problems else Check(name, OK, repr(value))


def _no_setting(name: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {_OURS}{near[0]}? " if near else ""
    return f"not a setting of this version; {meant}known after {_OURS}: {', '.join(names)}"


def show(json: bool) -> bool:
    """All checks, on standard output. Returns: is something wrong? A note is not."""
    checks = installation()
    if json:
        _show.as_json({"checks": [check._asdict() for check in checks]})
    else:
        styles = {OK: "green", NOTE: "yellow", WRONG: "bold red"}
        table = _show.table("", "", has_header=False, no_wrap=True)
        table.add_column(overflow="fold")
        for level, name, detail in ((check.level, check.name, check.detail) for check in checks):
            table.add_row(for_rich(level, style=styles[level]), for_rich(name), for_rich(detail))
        _show.console().print(table)
    return any(check.level == WRONG for check in checks)
