"""A run with raw profiles for the tests of parsing."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.raw_profiles import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
