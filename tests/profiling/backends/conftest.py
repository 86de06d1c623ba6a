"""Recorded profilers for the tests of backends."""

from __future__ import annotations

from types import ModuleType

import pytest
from builders import recorded_profilers


@pytest.fixture(scope="session")
def recorded() -> ModuleType:
    """What real profilers take, and stand-ins made from that."""
    return recorded_profilers
