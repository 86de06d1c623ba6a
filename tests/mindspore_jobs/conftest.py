"""MindSpore for its tests: loaded once, before what it changes in the process can be a test's own."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def mindspore() -> Any:
    """The real one."""
    return pytest.importorskip("mindspore")
