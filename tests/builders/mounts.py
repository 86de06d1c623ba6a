"""Mounts small file systems for a test, among them one that can be frozen."""

from __future__ import annotations

import os
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


@pytest.fixture
def frozen_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of the test's own that can be frozen: it answers no write."""
    tools = [shutil.which(name) for name in ("mkfs.ext4", "fsfreeze", "mount")]
    if os.geteuid() or None in tools:
        pytest.skip("needs root, mkfs.ext4, fsfreeze and mount")
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 32 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True).returncode:
        pytest.skip("no loop device can be mounted here")
    yield place
    subprocess.run(["fsfreeze", "-u", place], capture_output=True)
    subprocess.run(["umount", "-l", place], check=True)
