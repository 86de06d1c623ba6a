"""What tests of the reader start from."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.run_files import new_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder, with nothing in it yet."""
    return new_run(tmp_path / "run")
