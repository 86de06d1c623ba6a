"""The tests of one part of the package, then of the rooms that import it: `quick.py store`, `quick.py config/adapters`.

Its own tests always run; those of other rooms follow, last changed first, until the time is up, and what was left out
is said. This file is also the plug-in of pytest that keeps the time, in each of its workers.
"""

from __future__ import annotations

import ast
import os
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Iterator

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, TESTS = ROOT / "mstxkit", ROOT / "tests"
CORE = "not npu and not wheel and not slow and not ray and not frameworks and not mindspore"
SECONDS = 45.0  # pytest's own start and end come on top
_UNTIL, _OWN = "QUICK_UNTIL", "QUICK_OWN"
_LEFT_OUT = "left out: the time is up"


def importers(part: str) -> set[str]:
    """Rooms that import a part of the package, itself left out."""
    prefix = ".".join(["mstxkit", *Path(part).parts])
    own = Path(part).parts[0]
    found = {room_of(path) for path in PACKAGE.rglob("*.py") if any(_is_below(name, prefix) for name in imports(path))}
    return found - {own, ""}


def room_of(path: Path) -> str:
    """`mstxkit/recorder/live.py` -> `recorder`; a module at the top is a room too, the package itself is none."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0].replace("__init__", "")


@cache
def imports(path: Path) -> tuple[str, ...]:
    """What a module imports, at its top or in functions; `from . import x` may name a module or no module."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    package = ("mstxkit", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def tests_of(room: str) -> list[Path]:
    """Its folder, and a file at the top that has its name."""
    return [path for path in (TESTS / room, TESTS / f"test_{room}.py") if path.exists()]


def last_changed(room: str) -> float:
    """When somebody last wrote something into it or its tests."""
    places = [PACKAGE / room, PACKAGE / f"{room}.py", *tests_of(room)]
    files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def main(arguments: list[str]) -> int:
    """Run them, two at a time, up to the first that fails."""
    parts = sorted(path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py") and path.stem[0] != "_")
    if len(arguments) != 1 or Path(arguments[0]).parts[:1] not in [(part,) for part in parts]:
        print(f"make quick PART=…, one of: {', '.join(parts)}", file=sys.stderr)
        return 2
    own = tests_of(arguments[0])
    others = sorted(importers(arguments[0]), key=last_changed, reverse=True)
    places = [*own, *(path for room in others for path in tests_of(room))]
    print(f"{arguments[0]}, then {', '.join(others) or 'nothing: no other room imports it'}", flush=True)
    os.chdir(ROOT)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles the package anew
    sys.dont_write_bytecode = False
    os.environ[_OWN] = os.pathsep.join(map(str, own))
    os.environ[_UNTIL] = str(time.monotonic() + SECONDS)
    # Handed out one by one, in their order.
    workers = ["-n", "2", "--dist", "load", "--maxschedchunk", "1"]
    return int(pytest.main(["-q", "-x", "-rfE", *workers, "-p", "quick", "-m", CORE, *map(str, places)]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is not the part's own once the time is up."""
    own = filter(None, os.environ[_OWN].split(os.pathsep))
    if time.monotonic() > float(os.environ[_UNTIL]) and not any(str(item.path).startswith(path) for path in own):
        pytest.skip(_LEFT_OUT)


class _LeftOut:
    """Counts by folder what was left out."""

    def __init__(self) -> None:
        self.folders: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and _LEFT_OUT in str(report.longrepr):
            self.folders["/".join(report.nodeid.split("::")[0].split("/")[:2])] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.folders:
            told = ", ".join(f"{count} of {folder}" for folder, count in self.folders.items())
            terminalreporter.write_line(f"left out, as the time was up: {told}")


def pytest_configure(config: pytest.Config) -> None:
    """Only who hears of all workers' tests counts them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_LeftOut())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
