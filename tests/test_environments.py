"""`.ci/environments.py`: the demo's environment holds what the demo needs, and nothing else is fetched for it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("environments", ROOT / ".ci/environments.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "environments", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.delenv("PIP_TORCH", raising=False)
    (tmp_path / "demo").mkdir()
    return module


@pytest.mark.parametrize("has_build_without_cuda", [True, False])
def test_the_demo_gets_torch_and_reports_and_nothing_else(
    environments: ModuleType, monkeypatch: pytest.MonkeyPatch, has_build_without_cuda: bool
) -> None:
    asked: list[list[str]] = []

    def pip(self: Any, *arguments: str) -> None:
        asked.append(list(arguments))
        if environments.WITHOUT_CUDA[1] in arguments and not has_build_without_cuda:
            raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(environments._Environment, "pip", pip)
    monkeypatch.setattr(environments._Environment, "once", lambda self, what, stamp, install: install())
    monkeypatch.setattr(environments._Environment, "create", lambda *_: None)
    monkeypatch.setattr(environments._Environment, "install_mstxkit", lambda self, *wanted: asked.append(list(wanted)))
    monkeypatch.setattr(environments, "_is_locked", lambda python: True)
    monkeypatch.setattr(environments, "debian_package", lambda *_: pytest.fail("a program for tests alone"))
    monkeypatch.setattr(environments, "unpack_debian", lambda *_: pytest.fail("a program for tests alone"))
    environments.make("demo")

    packages = {word for words in asked for word in words if re.match(r"[a-z_.\[]+(\[|[=>]=|$)", word)}
    assert packages == {environments.TORCH, *environments.TOOLS, ".[report]"}
    assert asked[0][:2] == ["-qq", "--index-url"], "a build without CUDA first"
    assert asked[1][-1] == "wheel"
