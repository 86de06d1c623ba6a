"""Fixtures of the process tests: a run folder whose live files must be gone at the end, and small file systems."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest
from builders import lives
from builders.mounts import frozen_disk, mount

__all__ = ["frozen_disk", "mount", "run"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run folder, not made yet."""
    with lives.own_run(tmp_path) as folder:
        yield folder
