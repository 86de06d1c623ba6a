"""Can a module that is not imported still come? Looked for by its file, without importing anything for it.

What lies on the path is not ours: finders may raise, `sys.modules` may hold anything, and a package below one that is
not imported yet has no parent for the import system to ask. So each package's folders are searched as the import system
searches them, but never through a namespace package's `__path__`. Where nobody can tell, the module is waited for.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from importlib.machinery import PathFinder
from typing import Any

from .report import SKIPPED, WAITING, Reason

_MISSING = object()


class Unknown(Exception):
    """Whether there is such a module cannot be told; why, in words."""


class Presence:
    """Each package is looked for once."""

    def __init__(self) -> None:
        self._searched: dict[str, tuple[str, ...] | Unknown | None] = {}

    def of_module(self, name: str) -> tuple[str, str, str]:
        """State, reason and detail of a target in a module that is not imported yet. Never raises."""
        try:
            if self._find_folders(name.partition(".")[0]) is None:
                return SKIPPED, Reason.NOT_INSTALLED, ""
            if self._find_folders(name) is None:
                return SKIPPED, Reason.ABSENT, ""
            return WAITING, Reason.NOT_IMPORTED, ""
        except Unknown as exc:
            return WAITING, Reason.NOT_IMPORTED, str(exc)

    def _find_folders(self, name: str) -> tuple[str, ...] | None:
        """Where submodules of a module lie: () for one that has none, None where there is no such module."""
        if name not in self._searched:
            try:
                self._searched[name] = self._search_module(name)
            except Unknown as exc:  # of the package that it is in
                self._searched[name] = exc
            except Exception as exc:
                self._searched[name] = Unknown(f"looking for {name} raised {type(exc).__name__}: {exc}"[:300])
        folders = self._searched[name]
        if isinstance(folders, Unknown):
            raise folders
        return folders

    def _search_module(self, name: str) -> tuple[str, ...] | None:
        module = sys.modules.get(name, _MISSING)
        if module is None:  # so Python is told that there is none
            return None
        if module is not _MISSING:
            return _folders_in(module, "__path__")
        package = name.rpartition(".")[0]
        if not package:
            return _folders_in(top_level(name), "submodule_search_locations")
        # As `PathFinder.find_spec`: the first folder that has the module; else those that are parts of a namespace.
        portions: list[str] = []
        for folder in self._find_folders(package) or ():
            finder = pkgutil.get_importer(folder)
            spec = None if finder is None else finder.find_spec(name)
            here = _folders_in(spec, "submodule_search_locations")
            if here is not None and spec is not None and spec.loader is not None:
                return here
            portions += here or ()
        return tuple(portions) or None


def top_level(name: str, first: str = "") -> Any:
    """The spec of a top-level package, without importing it; None where there is none. `first`: a folder to look into
    before all others. Raises what somebody's finder raises.
    """
    try:
        here = PathFinder.find_spec(name, [first]) if first else None
        return here if here is not None and here.origin else importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):  # ValueError: it is `__main__`, or put into sys.modules without a spec
        return None


def spec_of(name: str, first: str = "") -> Any:
    """As `top_level`; None also where somebody's finder raises."""
    try:
        return top_level(name, first)
    except Exception:
        return None


def _folders_in(owner: Any, attribute: str) -> tuple[str, ...] | None:
    """What a module or spec lists there; None without one."""
    folders = getattr(owner, attribute, None) or ()
    return None if owner is None else tuple(folder for folder in folders if isinstance(folder, str))
