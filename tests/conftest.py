"""What every test can rely on: it starts from a clean process state, and fails if it leaves one that is not.

The session's header says which engine is loaded, and the seed of what is random; asking for one engine with
MSTXKIT_NATIVE and getting the other is an error. Which tests run on the Python twin too: docs/internals/testing.md.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Generator, Iterator

import pytest
from builders import lives, selection, soak
from hypothesis import HealthCheck, settings

from mstxkit import faults
from mstxkit.engine.choose import engine

_THREADS_END_WITHIN_S = 5.0
# What it imports is hundreds of modules of torch's, once in a process.
_IMPORTS_END_WITHIN_S = 90.0
# Where a test hangs, and is not only slow on a busy machine; else pyproject.toml says it.
_REAL_AT_MOST_S, _SOAKS_AT_MOST_S = 400, 1800
_quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a busy machine is no failure
settings.register_profile("short", max_examples=25, **_quiet)
settings.register_profile("soak", max_examples=1000, **_quiet)
settings.load_profile(soak.rounds("soak", "short"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Commands are as wide as in any pipe, and can be interrupted; Hypothesis takes the seed of all."""
    os.environ.pop("COLUMNS", None)  # pytest-xdist sets it: commands would fold their tables at 80 columns
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell: children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = soak.seed()


def pytest_report_header() -> list[str]:
    native = os.environ.get("MSTXKIT_NATIVE")
    seed = f"seed: {soak.seed()} (MSTXKIT_TEST_SEED repeats it){', in full' * soak.is_soaking()}"
    return [f"mstxkit engine: {'C' if engine.NATIVE else 'Python twin'} (MSTXKIT_NATIVE={native})", seed]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return selection.is_of_no_use(collection_path, config.option.markexpr) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`twin`: also runs on the Python twin. `soak`: stands in a module with a longer form. `daily`: some of them a
    day. `days`: on odd or even ones. Slow files begin first, and those that may take longest.
    """
    _leave_for_other_days(config, items)
    _leave_for_tomorrow(config, items)
    limits = Counter[Path]()  # as the tests say them
    for item in items:
        limits[item.path] = max(limits[item.path], _limit_s(item))
    for item in items:
        if selection.is_for_the_twin(item):
            item.add_marker("twin")
        if getattr(getattr(item, "module", None), "soak", None) is soak or selection.runs_on_some_days(item):
            item.add_marker("soak")
        if not item.get_closest_marker("timeout"):
            is_real = any(item.get_closest_marker(marker) for marker in selection.REAL)
            limit_s = _SOAKS_AT_MOST_S if soak.is_soaking() else _REAL_AT_MOST_S if is_real else None
            if limit_s is not None:
                item.add_marker(pytest.mark.timeout(limit_s))
    sizes = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, -limits[item.path], -sizes[item.path]))


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end: no test's `gc.collect()` looks through all of it again."""
    gc.collect()
    gc.freeze()


def _leave_for_other_days(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the functions of a module with `daily(count)` so many stay, with all their parameters; in soak all."""
    modules: dict[Path, dict[str, list[pytest.Item]]] = {}
    counts: dict[Path, int] = {}
    for item in items:
        if marker := item.get_closest_marker("daily"):
            counts[item.path] = marker.args[0]
            name = item.originalname  # type: ignore[attr-defined]
            modules.setdefault(item.path, {}).setdefault(name, []).append(item)
    for path, functions in modules.items():
        today = soak.sample(list(functions), counts[path])
        others = [item for name, of_it in functions.items() if name not in today for item in of_it]
        selection.leave_out(config, items, others)


def _leave_for_tomorrow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests that take turns those stay whose day it is; in soak, and where one file is asked for, all."""
    is_one_file = len({item.path for item in items}) == 1
    if not (soak.is_soaking() or is_one_file):
        others = [item for item in items if selection.rests(item, soak.seed(), is_twin=not engine.NATIVE)]
        selection.leave_out(config, items, others)


def _limit_s(item: pytest.Item) -> int:
    """How long the tests of its file may take each, where that is said."""
    limit = item.get_closest_marker("timeout")
    return int(limit.args[0]) if limit else 0


def pytest_sessionstart(session: pytest.Session) -> None:
    wanted = os.environ.get("MSTXKIT_NATIVE")
    if wanted in ("0", "1") and bool(engine.NATIVE) is not (wanted == "1"):
        pytest.exit(f"MSTXKIT_NATIVE={wanted}, but the engine loaded is {engine.__name__}", returncode=3)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logs and prints can be sent as UTF-8, from the process that runs it: lone surrogates are escaped."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "backslashreplace").decode()) for title, text in report.sections]
    return report


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run folder, not made yet, whose live files must be gone at the end; many files have one of their own."""
    with lives.own_run(tmp_path) as folder:
        yield folder


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C is Python's: where tests run in the background of a shell, it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _leaves_the_process_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Engine, import hooks, MSTXKIT_ environment, threads and fault switches are as before the test."""
    faults.reset_counts()
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
    state["folders are watched by"] = _instances_of_inotify()
    return state


def _instances_of_inotify() -> int:
    """A kernel lets a user have 128: workers whose tests leave some behind take them from all tests after these."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it is that of the listing
            count += os.readlink(f"/proc/self/fd/{number}") == "anon_inode:inotify"
    return count


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
    start = time.monotonic()
    new = [thread for thread in threading.enumerate() if thread not in before]
    for thread in new:
        within_s = _IMPORTS_END_WITHIN_S if thread.name == "mstxkit-imports" else _THREADS_END_WITHIN_S
        thread.join(max(0.0, start + within_s - time.monotonic()))
    return [thread for thread in new if thread.is_alive()]


def _put_back(before: dict[str, Any], finders: list[Any]) -> None:
    """So that one test's leftovers do not fail the next."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder in finders or not _is_ours(finder)]
    for key in [k for k in os.environ if k.startswith("MSTXKIT_") and f"environment {k}" not in before]:
        del os.environ[key]
    for key, value in before.items():
        if key.startswith("environment "):
            os.environ[key[len("environment ") :]] = value
