"""Is a module that has not been imported still to come, or is there none of it here? Answered without importing it."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from typing import Any, Sequence

from .report import SKIPPED, WAITING, Reason


def of_module(name: str) -> tuple[str, str]:
    """State and reason of a target in a module that is not imported yet."""
    root, *parts = name.split(".")
    path = _search_path(root, None)
    if path is None:
        return SKIPPED, Reason.NOT_INSTALLED
    for i in range(len(parts)):
        path = _search_path(".".join([root, *parts[: i + 1]]), path)
        if path is None:
            return SKIPPED, Reason.ABSENT
    return WAITING, Reason.NOT_IMPORTED


def _search_path(name: str, path: Sequence[str] | None) -> Sequence[str] | None:
    """Where the submodules of a module lie: [] for one that has none, None where there is no such module."""
    if name in sys.modules:
        return list(getattr(sys.modules[name], "__path__", ()))
    spec = _spec(name, path)
    return None if spec is None else list(spec.submodule_search_locations or ())


def _spec(name: str, path: Sequence[str] | None) -> Any:
    try:
        return importlib.util.find_spec(name) if path is None else PathFinder.find_spec(name, path)
    except (ImportError, ValueError):
        return None
