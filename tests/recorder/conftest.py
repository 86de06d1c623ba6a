"""Both engines, side by side: `engine` is one of the two modules, `recorded` what it writes into memory."""

from __future__ import annotations

import importlib
import os
from typing import Any, Iterator

import pytest
from written import FAKE, MONOTONIC, Written

from mstxkit import faults, names
from mstxkit.recorder import engine as chosen

MODULES = {"native": "mstxkit._native.hot", "twin": "mstxkit.recorder.python_twin"}


@pytest.fixture(params=list(MODULES))
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An engine with mstxkit's own hooks, detached, on CLOCK_MONOTONIC; left as it was."""
    module = _load(request.param)
    on_fault = faults.on_fault
    module.set_hooks(names.describe, names.utf8, faults.note, lambda settings, function: (settings, function))
    faults.on_fault = module.count_fault
    clock = module.clock_kind()
    module.set_clock(MONOTONIC)
    yield module
    for index in range(3):
        module.clear_sink(index)
    module.clear_direct()
    module.detach()
    module.set_clock(clock)
    module.set_hooks(names.describe, names.utf8, faults.note, chosen._decorate)
    faults.on_fault = on_fault


def _load(which: str) -> Any:
    try:
        return importlib.import_module(MODULES[which])
    except ImportError as exc:
        if os.environ.get("MSTXKIT_NATIVE") == "1":
            raise
        pytest.skip(f"the C engine cannot be loaded here: {exc}")


@pytest.fixture
def recorded(engine: Any) -> Iterator[Written]:
    """The engine records into memory, on a fake clock that stands still until a test moves it."""
    engine.set_clock(FAKE)
    written = Written(engine)
    yield written
    engine.set_recording(False)
    engine.detach()


@pytest.fixture
def small(engine: Any) -> Iterator[Written]:
    """The same with the smallest file there can be: banks of one page, four slots."""
    engine.set_clock(FAKE)
    written = Written(engine, slot_count=4, bank_count=3, bank_bytes=4096)
    yield written
    engine.set_recording(False)
    engine.detach()
