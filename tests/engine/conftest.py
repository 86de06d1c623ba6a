"""Both engines, side by side: `engine` is one of the two modules, `recorded` what it writes into memory."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from builders import engines
from builders.watcher import Watcher
from builders.written_banks import FAKE, MONOTONIC, Written

from mstxkit import faults
from mstxkit.host import names
from mstxkit.marking.ranges import site
from mstxkit.marking.wrapping import decorate_target


@pytest.fixture(params=list(engines.MODULES))
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An engine with mstxkit's own hooks, detached, on CLOCK_MONOTONIC; left as it was."""
    module = engines.load(request.param)
    on_fault = faults.on_fault
    module.set_hooks(
        names.describe_site, names.utf8, faults.note_fault, lambda settings, function: (settings, function), site
    )
    faults.on_fault = module.count_fault
    clock = module.clock_kind()
    module.set_clock(MONOTONIC)
    yield module
    for index in range(3):
        module.clear_sink(index)
    module.clear_direct()
    module.detach()
    module.set_clock(clock)
    module.set_hooks(names.describe_site, names.utf8, faults.note_fault, decorate_target)
    faults.on_fault = on_fault


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


@pytest.fixture
def both() -> Iterator[list[Any]]:
    """Both engines, where there are two; left detached and on the clock they had."""
    loaded = [engines.load(which) for which in engines.MODULES]
    clocks = [engine.clock_kind() for engine in loaded]
    for engine in loaded:  # the one that this process does not run on has had none yet
        engine.set_hooks(names.describe_site, names.utf8, faults.note_fault, decorate_target)
    yield loaded
    for engine, clock in zip(loaded, clocks):
        engine.set_recording(False)
        engine.detach()
        engine.set_clock(clock)


@pytest.fixture
def watcher(engine: Any) -> Iterator[Watcher]:
    """Hooks are set, and the engine watches."""
    watcher = Watcher(engine).set()
    yield watcher
    watcher.clear()
