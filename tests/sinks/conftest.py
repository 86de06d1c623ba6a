"""Sinks in this process: installed for one test, and everything put back after it."""

from __future__ import annotations

from types import ModuleType
from typing import Iterator

import builders.recorded_mindspore
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
    return builders.recorded_mindspore
