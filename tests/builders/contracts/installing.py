"""Stand-in packages, imported for one test and gone after it: fixtures of contracts and of patches."""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from typing import Callable, Iterator

import pytest
from builders.contracts import outside, stand_in, surface
from builders.contracts.installed import Installed

import mstxkit

Install = Callable[[surface.Surface], Installed]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[surface.Surface], Path]:
    """Where the package of a surface lies; one that is not mutilated is written once."""
    folders: dict[int, Path] = {}
    kept: list[surface.Surface] = []

    def written(one: surface.Surface) -> Path:
        if id(one) not in folders:
            folders[id(one)] = stand_in.write(one, tmp_path_factory.mktemp(repr(one)))
            kept.append(one)  # so that its id stays its own
        return folders[id(one)]

    return written


@pytest.fixture
def install(written: Callable[[surface.Surface], Path]) -> Iterator[Install]:
    """Put the package of a surface on the path. Afterwards nothing is patched and nothing of it is imported."""
    path, finders, roots = list(sys.path), list(sys.meta_path), set()
    gc.collect()
    gc.freeze()  # reports look for who else holds a function, among everything that was made since
    aside: dict[str, object] = {}

    def install(one: surface.Surface) -> Installed:
        # Other tests may have imported torch, which stand-ins do without, but some targets are in.
        roots.update({"torch", one.framework, *(name.partition(".")[0] for name in one.modules)})
        aside.update({name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in roots})
        folder = written(one)
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        return Installed(one, folder)

    yield install
    mstxkit.unpatch()
    for name in [name for name in sys.modules if name.split(".")[0] in roots]:
        del sys.modules[name]
    sys.modules.update(aside)  # type: ignore[arg-type]
    sys.path[:] = path
    # wrapt's finder must stay, it is registered only once in a process.
    is_ours = [type(finder).__module__.startswith("mstxkit.") for finder in sys.meta_path]
    sys.meta_path[:] = [one for one, ours in zip(sys.meta_path, is_ours) if one in finders or not ours]
    outside.forget()
