"""Loads each of the two engines, whichever this process runs on."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

MODULES = {"native": "mstxkit.engine.native.hot", "twin": "mstxkit.engine.twin.hot"}


def load(which: str) -> Any:
    """The engine "native" or "twin"; the test is skipped where there is none, unless the suite runs on that one."""
    try:
        return importlib.import_module(MODULES[which])
    except ImportError as exc:
        if os.environ.get("MSTXKIT_NATIVE") == "1":
            raise
        pytest.skip(f"the C engine cannot be loaded here: {exc}")
