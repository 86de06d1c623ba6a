"""Which tests belong to which part of a run: docs/internals/testing.md."""

from __future__ import annotations

import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).resolve().parents[1]
# Where C and the twin must do the same. test_suite.py compares this list with who imports the engine.
ON_BOTH_ENGINES = (
    "tests/engine/", "tests/marking/", "tests/pieces/", "tests/recorder/", "tests/sinks/", "tests/processes/",
    "tests/patching/test_seams", "tests/patching/test_around", "tests/patching/test_inlining", "tests/test_capturing",
    "tests/testing/test_captured", "tests/testing/test_clock",
)  # fmt: skip


# What runs a real framework, or builds and installs.
REAL = ("npu", "wheel", "slow", "ray", "frameworks", "mindspore")


def is_of_no_use(path: Path, expression: str) -> bool:
    """Can no test in this file be what `-m` asks for? Importing all takes a third of a short part's time."""
    if path.suffix != ".py":
        return False
    if expression.startswith("twin") and not path.relative_to(_TESTS.parent).as_posix().startswith(ON_BOTH_ENGINES):
        return True
    wanted = set(re.findall(rf"(?<!not )\b(?:{'|'.join(REAL)})\b", expression))
    return bool(wanted) and not any(_may_hold(path, marker) for marker in wanted)


def _may_hold(path: Path, marker: str) -> bool:
    """It stands in the file itself, in its folder's conftest, or in a builder that the file imports."""
    text, conftest = _text(path), path.with_name("conftest.py")
    is_there = f"mark.{marker}" in text or (conftest.exists() and f"mark.{marker}" in _text(conftest))
    return is_there or any(re.search(rf"\b{builder}\b", text) for builder in _builders_with(marker))


@cache
def _builders_with(marker: str) -> list[str]:
    builders = [path for path in _TESTS.rglob("*.py") if not path.name.startswith(("test_", "conftest"))]
    return [path.stem for path in builders if f"mark.{marker}" in _text(path)]


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def runs_on_some_days(item: Any) -> bool:
    """Does `make test` leave it out on others?"""
    return any(item.get_closest_marker(marker) for marker in ("daily", "days"))


def rests(item: Any, seed: int, is_twin: bool = False) -> bool:
    """Is its turn on the next day? The seed is the day's date, as a number. On the twin all take turns."""
    marker = item.get_closest_marker("days")
    if marker is not None:
        return marker.args[0] != ("odd" if seed % 2 else "even")
    return is_twin and is_for_the_twin(item) and zlib.crc32(item.path.name.encode()) % 2 != seed % 2


def leave_out(config: Any, items: list[Any], others: list[Any]) -> None:
    """Let pytest count these as deselected, and run none of them."""
    left = {id(item) for item in others}
    items[:] = [item for item in items if id(item) not in left]
    if others:
        config.hook.pytest_deselected(items=others)


def is_for_the_twin(item: Any) -> bool:
    """Is it where both engines are compared, and does it not load both by itself?"""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    loads_both = "both" in item.fixturenames or any(isinstance(v, str) and v in ("native", "twin") for v in values)
    return item.nodeid.startswith(ON_BOTH_ENGINES) and not loads_both
