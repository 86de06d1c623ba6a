"""Which versions of the frameworks this process has loaded."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from mstxkit.host import identity


def module(name: str, version: object) -> ModuleType:
    made = ModuleType(name)
    made.__dict__["__version__"] = version
    return made


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in identity.FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_what_is_loaded_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verl", module("verl", "0.9.1"))
    monkeypatch.setitem(sys.modules, "torch", module("torch", "2.13.0+cpu"))

    assert identity.versions_loaded() == "torch 2.13.0+cpu, verl 0.9.1"


def test_where_nothing_is_loaded_nothing_is_said() -> None:
    assert identity.versions_loaded() is None


@pytest.mark.parametrize("version", [None, 3, "ü", "1\n2", b"1"])
def test_what_is_no_version_is_left_out(monkeypatch: pytest.MonkeyPatch, version: object) -> None:
    monkeypatch.setitem(sys.modules, "ray", module("ray", version))

    assert identity.versions_loaded() is None


def test_a_lazy_module_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError("woken")

    monkeypatch.setitem(sys.modules, "vllm", Lazy("vllm"))

    assert identity.versions_loaded() is None


def test_all_together_they_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in identity.FRAMEWORKS:
        monkeypatch.setitem(sys.modules, name, module(name, "9" * 1000))

    assert 300 < len(identity.versions_loaded() or "") <= 400
