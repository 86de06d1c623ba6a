"""What every test can rely on: it starts from a clean process state, and fails if it leaves one that is not.

The session's header says which engine is loaded; asking for one with MSTXKIT_NATIVE and getting the other is an error.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any, Iterator

import pytest
from hypothesis import HealthCheck, settings

from mstxkit import faults
from mstxkit.recorder.engine import engine

_THREADS_END_WITHIN_S = 5.0
_ENGINELESS = (
    "tests/cli/test_analyse.py", "tests/cli/test_escalate.py", "tests/cli/test_status_escalations.py", "tests/config/",
    "tests/control/test_asking.py", "tests/control/test_duty", "tests/control/test_explaining.py",
    "tests/control/test_files", "tests/control/test_light.py", "tests/control/test_machine",
    "tests/control/test_messages.py", "tests/control/test_requests.py", "tests/parsing/",
    "tests/presets/", "tests/test_reader_escalations.py",
)  # fmt: skip
# A busy machine is no failure: no timing decides a test.
settings.register_profile("mstxkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mstxkit")


def pytest_report_header() -> str:
    return (
        f"mstxkit engine: {'C' if engine.NATIVE else 'Python twin'} (MSTXKIT_NATIVE={os.environ.get('MSTXKIT_NATIVE')})"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of what never asks the engine, files and commands that work on them; and those that load both engines."""
    for item in items:
        if item.nodeid.startswith(_ENGINELESS):
            item.add_marker("engineless")


def pytest_sessionstart(session: pytest.Session) -> None:
    wanted = os.environ.get("MSTXKIT_NATIVE")
    if wanted in ("0", "1") and bool(engine.NATIVE) is not (wanted == "1"):
        pytest.exit(f"MSTXKIT_NATIVE={wanted}, but the engine loaded is {engine.__name__}", returncode=3)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C is Python's: where tests run in the background of a shell, it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Engine, import hooks, MSTXKIT_ environment, threads and fault switches are as before the test."""
    faults.reset()
    before = _snapshot()
    threads = set(threading.enumerate())
    finders, reraise, on_fault = list(sys.meta_path), faults.reraise, faults.on_fault
    yield
    left = _differences(before, _snapshot())
    left += [f"thread {thread.name!r} still runs" for thread in _late(threads)]
    _put_back(before, finders)
    faults.reraise, faults.on_fault = reraise, on_fault
    assert not left, f"{request.node.name} left behind: " + "; ".join(left)


def _snapshot() -> dict[str, Any]:
    state: dict[str, Any] = {f"environment {k}": v for k, v in os.environ.items() if k.startswith("MSTXKIT_")}
    state["import hooks"] = [_name_of(finder) for finder in sys.meta_path if _is_ours(finder)]
    state["recording"] = engine.recording()
    state["clock"] = engine.clock_kind()
    state["open ranges"] = engine.counters()["open"]
    state["faults raised again"] = faults.reraise
    return state


def _name_of(finder: Any) -> str:
    return f"{type(finder).__module__}.{getattr(finder, '__name__', type(finder).__name__)}"


def _is_ours(finder: Any) -> bool:
    """Other packages may add finders of theirs when a test imports them first."""
    return _name_of(finder).startswith("mstxkit.")


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)!r} became {after.get(key)!r}" for key in keys]


def _late(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads of the test that do not end by themselves in reasonable time."""
    deadline = time.monotonic() + _THREADS_END_WITHIN_S
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in new if thread.is_alive()]


def _put_back(before: dict[str, Any], finders: list[Any]) -> None:
    """So that one test's leftovers do not fail the next."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder in finders or not _is_ours(finder)]
    for key in [k for k in os.environ if k.startswith("MSTXKIT_") and f"environment {k}" not in before]:
        del os.environ[key]
    for key, value in before.items():
        if key.startswith("environment "):
            os.environ[key[len("environment ") :]] = value
