"""Sources of systems that no package registry has, for tests of their own training loops: from archives, or by branch.

    python .ci/systems.py                           what is not there yet: from archives, else from GitHub
    SYSTEM_SOURCES=FOLDER python .ci/systems.py     where the archives lie, instead of in ../shared/sources

They go into .venvs/systems, a folder each, and nothing of them is committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".venvs" / "systems"
ARCHIVES = Path(os.environ.get("SYSTEM_SOURCES") or ROOT.parent / "shared" / "sources")
_HOST = "https://github.com"
_QUIET = ("-c", "advice.detachedHead=false")


class System(NamedTuple):
    """A repository, and its branch, tag or commit; what an archive of it is called, with or without that."""

    name: str
    version: str

    @property
    def folder(self) -> str:
        """What a clone of it, and the top of its archive, is called."""
        return self.name.rpartition("/")[2]

    @property
    def place(self) -> Path:
        """Where its files are put."""
        return PLACE / f"{self.folder}_{self.version}"

    @property
    def archive(self) -> Path:
        """Where it would lie."""
        named = ARCHIVES / f"{self.place.name}.tar.xz"
        return named if named.exists() else ARCHIVES / f"{self.folder}.tar.xz"


MINDSPEED_LLM = (
    System("Ascend/MindSpeed-LLM", "26.1.0"),
    System("Ascend/MindSpeed", "26.1.0_core_r0.12.1"),
    System("NVIDIA/Megatron-LM", "core_v0.12.1"),
)
# Of its branch `master`.
MINDSPEED_RL = (System("Ascend/MindSpeed-RL", "05a90d77cb6cfad8999e2aee21068284db959579"),)


def are_to_be_had(systems: tuple[System, ...]) -> bool:
    """Without a network?"""
    return all(one.place.exists() or one.archive.exists() for one in systems)


def unpack(system: System) -> Path:
    """Its files, from its archive unless they are there; in one move, so that any number of processes may ask."""
    return system.place if system.place.exists() else _put(system, ("tar", "-xJf", str(system.archive)))


def clone(system: System) -> Path:
    """Its files from where they are published."""
    git = ("git", *_QUIET, "-C", system.folder)
    fetch = (*git, "fetch", "-q", "--depth", "1", f"{_HOST}/{system.name}.git", system.version)
    return _put(system, ("git", "init", "-q", system.folder), fetch, (*git, "checkout", "-q", "FETCH_HEAD"))


def _put(system: System, *commands: tuple[str, ...]) -> Path:
    PLACE.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".partial-", dir=PLACE))
    try:
        for command in commands:
            subprocess.run(command, check=True, cwd=aside)
        os.rename(aside / system.folder, system.place)
    except OSError:
        if not system.place.exists():
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return system.place


def main() -> None:
    """Have all of them. Ends with 1 where one cannot be had."""
    for one in (*MINDSPEED_LLM, *MINDSPEED_RL):
        try:
            unpack(one) if one.archive.exists() else one.place.exists() or clone(one)
        except subprocess.CalledProcessError as exc:
            sys.exit(f"{one.name} {one.version}: not to be had: {exc}")


if __name__ == "__main__":
    main()
