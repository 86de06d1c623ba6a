"""Findings about an installation, as `doctor` and `status` show them, and first of all: are the ways into other
processes there, `mstxkit.pth`, entry points, frameworks, Ray? No heavy imports.
"""

from __future__ import annotations

import importlib.metadata
import os
import site
import socket
import subprocess
import sys
import sysconfig
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Iterable, NamedTuple

from ..bootstrap.activation import EVERY
from ..errors import PatchError

OK, NOTE, WRONG = "ok", "note", "wrong"
PTH = "mstxkit.pth"
GROUPS = ("verl.plugins", "vllm.general_plugins", "sglang.srt.plugins")
# The oldest Ray that mstxkit is tested with.
OLDEST_RAY = (2, 42)
CLUSTER_FILE = "/tmp/ray/ray_current_cluster"
_ASKS = "import sys; print(any(type(f).__module__ == 'mstxkit.bootstrap.pth' for f in sys.meta_path))"
_LIMIT_S = 30.0


class Check(NamedTuple):
    """One finding. `level`: ok, note (works, but you may want to know) or wrong."""

    name: str
    level: str
    detail: str


def installed(package: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def ways_in() -> list[Check]:
    """All of them, in the order in which to show them."""
    return [pth(), entry_points(), _check_frameworks(), *_check_ray()]


def pth() -> Check:
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
    why_not = _why_it_does_not_work()
    if why_not:
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
    missing = [group for group in GROUPS if not any(value.startswith("mstxkit.") for value in _list_values(group))]
    if not missing:
        return Check("entry points", OK, ", ".join(GROUPS))
    return Check("entry points", NOTE, f"not found: {', '.join(missing)}; install mstxkit in this environment again")


def _list_values(group: str) -> Iterable[str]:
    try:
        return [entry_point.value for entry_point in importlib.metadata.entry_points(group=group)]
    except TypeError:  # Python 3.9 gives a dict of all groups
        return [entry_point.value for entry_point in importlib.metadata.entry_points().get(group, ())]


def _check_frameworks() -> Check:
    from ..patching import registry

    there = {name: _find_version(name) for name in registry.names()}
    here = [f"{name} {version}".rstrip() for name, version in there.items() if version is not None]
    others = [name for name, version in there.items() if version is None]
    texts = [", ".join(here) or "none installed", *([f"not installed: {', '.join(others)}"] if others else [])]
    return Check("frameworks", OK, "; ".join(texts))


def _find_version(name: str) -> str | None:
    """Of a framework by its import root; "" where it is importable only, None where it is not."""
    try:
        return installed(name) or (None if find_spec(name) is None else "")
    except (ImportError, ValueError):  # a module of that name is there already, and says nothing of where from
        return ""


def _check_ray() -> list[Check]:
    version = installed("ray")
    if version is None:
        return []
    level, detail = OK, "its workers are reached by worker_process_setup_hook"
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_RAY:
        level, detail = NOTE, f"older than {'.'.join(map(str, OLDEST_RAY))}, the oldest that mstxkit is tested with"
    return [Check("Ray", level, f"{version}: {detail}"), *cluster()]


def cluster() -> list[Check]:
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
            registry.chosen((name,))
    except PatchError as exc:
        return str(exc)
    return None
