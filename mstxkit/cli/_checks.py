"""Checks of this installation without heavy imports: engine, clock, tmpfs, packages, environment, and the ways into
other processes: `mstxkit.pth`, entry points, frameworks, Ray.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import platform
import site
import socket
import subprocess
import sys
import sysconfig
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from ..bootstrap.activation import EVERY
from ..errors import MstxkitError, PatchError
from ..host import clock, folders, life
from ..parsing.tools import find_msprof
from ..reading.report.escape import for_rich
from ..reading.report.units import write_size
from . import _show

OK, NOTE, WRONG = "ok", "note", "wrong"
PTH = "mstxkit.pth"
GROUPS = ("verl.plugins", "vllm.general_plugins", "sglang.srt.plugins")
# The oldest Ray that mstxkit is tested with.
OLDEST_RAY = (2, 42)
CLUSTER_FILE = "/tmp/ray/ray_current_cluster"
_ASKS = "import sys; print(any(type(f).__module__ == 'mstxkit.bootstrap.pth' for f in sys.meta_path))"
_LIMIT_S = 30.0
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


class Check(NamedTuple):
    """One finding. `level`: ok, note (works, but you may want to know) or wrong."""

    name: str
    level: str
    detail: str


def _check_engine() -> list[Check]:
    try:
        from ..engine import choose as chosen
    except MstxkitError as exc:
        return [Check("engine", WRONG, str(exc))]
    engine = chosen.engine
    clock_choice = clock.choose_clock(bool(engine.NATIVE))
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
    detail = f"{folders.SHARED_MEMORY}: {write_size(free)} free of {write_size(total)}"
    if not os.access(folders.SHARED_MEMORY, os.W_OK | os.X_OK):
        return Check("tmpfs", NOTE, f"{folders.SHARED_MEMORY} cannot be written: {instead}")
    if free < TMPFS_NEEDED_BYTES:
        return Check("tmpfs", NOTE, f"{detail}: little room; without it, {instead}")
    return Check("tmpfs", OK, detail)


def left_in_memory() -> list[Check]:
    """What killed processes left of runs of which nobody lives here. One that was moved looks as if it was removed."""
    mine, left = folders.in_shared_memory(), []
    for run in sorted(mine.glob("*")):  # with live files in it, and nobody who holds the lock of any
        locks = {file.with_suffix(life.SUFFIX) for file in run.glob("*.li[fv]e")}
        if locks and all(life.is_held(str(lock)) is False for lock in locks):
            left.append(run)
    bytes_left, more = write_size(sum(map(folders.size_bytes, left))), len(left) - _LEFT_SHOWN
    detail = f"{bytes_left} of killed processes, runs with none that lives here: {len(left)}; "
    detail += f"`mstxkit collect RUN` seals it; where a run is removed, take it away: cd {mine} && rm -r"
    names = [run.name for run in left[:_LEFT_SHOWN]] + [f"({more} more are named then)"] * (more > 0)
    return [Check("left behind", NOTE, " ".join([detail, *names]))] if left else []


def _check_packages() -> list[Check]:
    needed = [Check(p, OK if v else WRONG, v or f"missing: pip install {p}") for p in NEEDED for v in [find_version(p)]]
    return needed + [
        Check(package, NOTE if why and not v else OK, v or "; ".join(filter(None, ("not installed", why))))
        for package, why in OPTIONAL.items() for v in [find_version(package)]
    ]  # fmt: skip


def _check_npu() -> list[Check]:
    """torch loads torch_npu by itself, which fails without CANN.

    Source: torch 2.13.0 `torch/__init__.py`, `_import_device_backends`; TORCH_DEVICE_BACKEND_AUTOLOAD=0 forbids it.
    """
    if not find_version("torch_npu") or os.environ.get("ASCEND_HOME_PATH"):
        return []
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return [Check("CANN", OK, "ASCEND_HOME_PATH is not set; torch does not load torch_npu by itself")]
    detail = "ASCEND_HOME_PATH is not set: if `import torch` fails, source CANN's set_env.sh or, on a machine "
    return [Check("CANN", NOTE, detail + "without an NPU, set TORCH_DEVICE_BACKEND_AUTOLOAD=0")]


def _check_msprof() -> list[Check]:
    """What `mstxkit profiles --analyse` needs of CANN, where there is anything that could be parsed."""
    msprof = find_msprof(os.environ)
    if msprof.path:
        return [Check("msprof", OK, msprof.path)]
    if not (find_version("torch_npu") or find_version("mindspore")):
        return []
    return [Check("msprof", NOTE, f"`mstxkit profiles --analyse` cannot parse device data here: {msprof.problem}")]


def find_version(package: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_pth() -> Check:
    """Is the `.pth` where this interpreter reads it, and does a new interpreter do what it says?"""
    shipped = Path(__file__).parents[1] / "bootstrap" / PTH
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    placed = [path for folder in folders for path in [Path(folder) / PTH] if path.is_file()]
    fix = f"reach others, install mstxkit in this environment again, or copy {shipped} there"
    if not placed:
        where = sysconfig.get_path("purelib")
        return Check(PTH, NOTE, f"not in {where}: only processes that import mstxkit take part; to {fix}")
    if placed[0].read_bytes() != shipped.read_bytes():
        return Check(PTH, WRONG, f"{placed[0]} is of another version of mstxkit; to put that right, {fix}")
    if why_not := _why_it_does_not_work():
        return Check(PTH, WRONG, f"{placed[0]} is there, but a new interpreter does not act on it{why_not}")
    return Check(PTH, OK, str(placed[0]))


def _why_it_does_not_work() -> str:
    others = {name: value for name, value in os.environ.items() if not name.startswith("MSTXKIT_")}
    environment = {**others, "MSTXKIT_AUTOPATCH": "all"}
    command = [sys.executable, "-c", _ASKS]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f": {exc}"
    if done.stdout.strip() == "True":
        return ""
    return f": {done.stderr.strip().splitlines()[-1]}" if done.stderr.strip() else " (is mstxkit importable there?)"


def entry_points() -> Check:
    """Do frameworks that look for plug-ins find ours?"""
    every: Any = importlib.metadata.entry_points()
    is_dict = not hasattr(every, "select")  # of all groups, in Python 3.9
    groups = {group: every.get(group, ()) if is_dict else every.select(group=group) for group in GROUPS}
    missing = [group for group, ours in groups.items() if not any(p.value.startswith("mstxkit.") for p in ours)]
    if not missing:
        return Check("entry points", OK, ", ".join(GROUPS))
    return Check("entry points", NOTE, f"not found: {', '.join(missing)}; install mstxkit in this environment again")


def _check_frameworks() -> Check:
    from ..patching import registry

    there: dict[str, str | None] = {}  # "" where one is importable only, None where it is not
    for name in registry.list_frameworks():
        try:
            there[name] = find_version(name) or (None if find_spec(name) is None else "")
        except (ImportError, ValueError):  # a module of that name is there already, and says nothing of where from
            there[name] = ""
    here = [f"{name} {version}".rstrip() for name, version in there.items() if version is not None]
    others = [name for name, version in there.items() if version is None]
    texts = [", ".join(here) or "none installed", *([f"not installed: {', '.join(others)}"] if others else [])]
    return Check("frameworks", OK, "; ".join(texts))


def _check_ray() -> list[Check]:
    version = find_version("ray")
    if version is None:
        return []
    level, detail = OK, "its workers are reached by worker_process_setup_hook"
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_RAY:
        level, detail = NOTE, f"older than {'.'.join(map(str, OLDEST_RAY))}, the oldest that mstxkit is tested with"
    return [Check("Ray", level, f"{version}: {detail}"), *check_cluster()]


def check_cluster() -> list[Check]:
    """Is there a cluster that a driver would join? Its workers have the environment of its `ray start`."""
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        with suppress(OSError):
            address = Path(CLUSTER_FILE).read_text(encoding="utf-8", errors="replace").strip()
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return []
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError as exc:
        return [Check("Ray cluster", NOTE, f"{address} does not answer: {exc.strerror or exc}")]
    detail = "its workers have the environment of `ray start`; autopatch() in the driver reaches them all the same"
    return [Check("Ray cluster", OK, f"{address} answers; {detail}")]


def problem_with(name: str) -> str | None:
    """What is wrong with one part of MSTXKIT_AUTOPATCH, in words; None if nothing is."""
    from ..patching import registry

    try:
        if name.endswith((".yaml", ".yml")):
            from ..patching.targets import as_patches

            as_patches(name)
        elif name not in (EVERY, "1"):
            registry.choose_patches((name,))
    except PatchError as exc:
        return str(exc)
    return None


def check_environment(variables: Mapping[str, str]) -> list[Check]:
    """One check for each variable of ours."""
    return [_check_variable(name, variables[name]) for name in sorted(variables) if name.startswith(_OURS)]


def _check_variable(name: str, value: str) -> Check:
    from ..bootstrap import settings  # it loads the engine
    from ..engine import choose

    setting = name[len(_OURS) :]
    if setting in HANDED_ON:
        return Check(name, OK, f"{value!r}: handed on by the process that started this one")
    if setting.lower() in settings.DEFAULTS:
        problem = value and settings.problem_with(setting.lower(), value)
        return Check(name, WRONG, f"nothing is recorded: {problem}") if problem else Check(name, OK, repr(value))
    if setting not in VARIABLES:
        every = (*VARIABLES, *map(str.upper, settings.DEFAULTS))
        near = difflib.get_close_matches(setting, every, n=1)
        meant = f"did you mean {_OURS}{near[0]}? " if near else ""
        names = f"known after {_OURS}: {', '.join(every)}"
        return Check(name, NOTE, f"{value!r}: not a setting of this version; {meant}{names}")
    if name == "MSTXKIT_OFF" and value not in ("", "0"):
        return Check(name, NOTE, f"{value!r}: nothing of mstxkit runs in processes that have this")
    if name == choose.VARIABLE and value not in choose.CHOICES:
        return Check(name, WRONG, f"{value!r} is ignored: {choose.MEANING}")
    if name == "MSTXKIT_RUN" and os.path.exists(value) and not os.path.isdir(value):
        return Check(name, WRONG, f"{value!r} is no folder; capture cannot write there")
    if name == "MSTXKIT_CONFIG" and not os.path.isfile(value):
        return Check(name, WRONG, f"{value!r} is no file; nothing is planned")
    parts = filter(None, map(str.strip, value.split(","))) if name == "MSTXKIT_AUTOPATCH" else ()
    problems = list(filter(None, map(problem_with, parts)))
    return Check(name, WRONG, f"{value!r}: {'; '.join(problems)}") if problems else Check(name, OK, repr(value))


def show_checks(json: bool) -> bool:
    """All checks, on standard output. Returns: is something wrong? A note is not."""
    version = find_version("mstxkit") or "not installed as a package"
    checks = [Check("mstxkit", OK, f"{version}, Python {platform.python_version()}")]
    checks += [*_check_engine(), _check_tmpfs(), *left_in_memory(), *_check_packages(), *_check_npu(), *_check_msprof()]
    checks += [check_pth(), entry_points(), _check_frameworks(), *_check_ray(), *check_environment(os.environ)]
    if json:
        _show.as_json({"checks": [check._asdict() for check in checks]})
    else:
        styles = {OK: "green", NOTE: "yellow", WRONG: "bold red"}
        table = _show.make_table("", "", has_header=False, no_wrap=True)
        table.add_column(overflow="fold")
        for name, level, detail in checks:
            table.add_row(for_rich(level, style=styles[level]), for_rich(name), for_rich(detail))
        _show.open_console().print(table)
    return any(check.level == WRONG for check in checks)
