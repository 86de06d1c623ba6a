"""A small framework on disk, patched and put back for each test."""

from __future__ import annotations

import importlib
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

import pytest

from mstxkit import Patch, Target
from mstxkit.patching import registry

_numbers = count()


class Acme:
    """A framework made for one test: its import root is new, so that no other test has imported it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"acme{next(_numbers)}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self.write("__init__", "")

    def write(self, module: str, source: str) -> None:
        """Write a module; `ACME` in its source stands for the import root."""
        (self.folder / f"{module}.py").write_text(source.replace("ACME", self.name))

    def load(self, module: str) -> ModuleType:
        return importlib.import_module(f"{self.name}.{module}")

    def patch(self, *targets: Target | str, **fields: Any) -> Patch:
        """A patch of it; `ACME` in paths stands for the import root."""
        made = tuple(Target(t.replace("ACME", self.name)) if isinstance(t, str) else t for t in targets)
        return Patch(self.name, "any", made, **fields)

    def target(self, path: str, **fields: Any) -> Target:
        given = {k: v.replace("ACME", self.name) if isinstance(v, str) else v for k, v in fields.items()}
        return Target(path.replace("ACME", self.name), **given)


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Acme]:
    monkeypatch.syspath_prepend(str(tmp_path))
    framework = Acme(tmp_path)
    yield framework
    registry.remove_patches()
    for name in [name for name in sys.modules if name.split(".")[0] == framework.name]:
        del sys.modules[name]


@pytest.fixture
def install() -> Callable[..., dict[str, Any]]:
    """Patch, and give path to state of all targets that are on."""

    def install(*patches: Patch, extra: bool = False) -> dict[str, Any]:
        registry.install_patches([(patch, extra) for patch in patches])
        return {one.path.partition(":")[2]: one for one in registry.report_targets().targets}

    return install


@pytest.fixture(params=["before import", "after import"])
def when(request: pytest.FixtureRequest) -> str:
    return str(request.param)
