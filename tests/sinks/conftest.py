"""Sinks in this process: installed for one test, and everything put back after it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Iterator

import pytest

from mstxkit import sinks


@pytest.fixture
def installed() -> Iterator[ModuleType]:
    """`mstxkit.sinks` with every sink installed."""
    sinks.install_all()
    yield sinks
    sinks.uninstall_all()


@pytest.fixture(scope="session")
def recorded_mindspore() -> ModuleType:
    """The record of MindSpore and the stand-in made from it."""
    name = "recorded_mindspore"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
