"""Something to do to a module right after its import, so that a process loads no more than verl itself does."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, Callable

_wanted: dict[str, Callable[[Any], None]] = {}


def importing(name: str, action: Callable[[Any], None]) -> None:
    """Call `action` with the module of this name: now, or once it is there. Not every version has every module."""
    if name in sys.modules:
        action(sys.modules[name])
    else:
        _wanted[name] = action


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        action = _wanted.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, action)  # type: ignore[assignment]
        return spec


class _Loader:
    """Its own loader, and then what is to be done. That may be another one's proxy, which takes no attribute itself."""

    def __init__(self, loader: Any, action: Callable[[Any], None]) -> None:
        self._loader, self._action = loader, action

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        self._loader.exec_module(module)
        self._action(module)


sys.meta_path.insert(0, _Finder())
