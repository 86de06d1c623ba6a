"""Is a module that has not been imported still to come, or is there none of it here? Answered without importing it."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from typing import Any, Sequence

from .report import SKIPPED, WAITING, Reason


class Presence:
    """What is installed, as found at this moment: each package is looked for once."""

    def __init__(self) -> None:
        self._paths: dict[str, Sequence[str] | None] = {}

    def of_module(self, name: str) -> tuple[str, str]:
        """State and reason of a target in a module that is not imported yet."""
        if self._path_of(name.partition(".")[0]) is None:
            return SKIPPED, Reason.NOT_INSTALLED
        is_there = self._path_of(name) is not None
        return (WAITING, Reason.NOT_IMPORTED) if is_there else (SKIPPED, Reason.ABSENT)

    def _path_of(self, name: str) -> Sequence[str] | None:
        """Where submodules of a module lie: [] for one that has none, None where there is no such module."""
        if name not in self._paths:
            self._paths[name] = self._search(name)
        return self._paths[name]

    def _search(self, name: str) -> Sequence[str] | None:
        if name in sys.modules:
            return list(getattr(sys.modules[name], "__path__", ()))
        package = name.rpartition(".")[0]
        path = self._path_of(package) if package else None
        if package and path is None:
            return None
        spec = _spec(name, path)
        return None if spec is None else list(spec.submodule_search_locations or ())


def _spec(name: str, path: Sequence[str] | None) -> Any:
    try:
        return importlib.util.find_spec(name) if path is None else PathFinder.find_spec(name, path)
    except (ImportError, ValueError):
        return None
