"""Recorded profilers for the tests of backends."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def recorded() -> ModuleType:
    """`recorded.py`: what real profilers take, and stand-ins made from that."""
    name = "recorded_profilers"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("recorded.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
