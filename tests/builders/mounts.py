"""Mounts small file systems for a test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Callable, Iterator

import pytest

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a tmpfs; skips the test where this user may not."""
    mounted: list[Path] = []

    def mount_tmpfs(name: str, options: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"this user cannot mount a tmpfs: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    yield mount_tmpfs
    for folder in reversed(mounted):
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
