"""A framework that is newer or older than its patch knows: told once, with how many of its targets are there."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mstxkit
from mstxkit import Patch, Target
from mstxkit.patching import registry, versions


def installed(folder: Path, name: str, version: str) -> None:
    """A distribution of that name, with one module."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("def there(): pass\n")
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("known", "version", "word"),
    [
        (">=0.20.0,<=1.16.0", "1.16.0", ""), (">=0.20.0,<=1.16.0", "0.20.0", ""), (">=0.20.0,<=1.16.0", "1.2", ""),
        (">=0.20.0,<=1.16.0", "1.17.0", "newer"), (">=0.20.0,<=1.16.0", "1.16.1", "newer"),
        (">=0.20.0,<=1.16", "1.16.9", ""), (">=0.20.0,<=1.16.0", "0.19.9", "older"), ("2.13.0", "2.13.0+cpu", ""),
        ("2.13.0", "2.14.0", "newer"), ("2.13.0", "2.9.1", "older"), ("2.42.1 to 2.60.0", "2.60.0", ""),
        ("2.42.1 to 2.60.0", "2.61.0", "newer"), ("2.42.1 to 2.60.0", "2.42.0", "older"), (">=1.2,<2", "1.9", ""),
        (">=1.2,<2", "2.0", "newer"), (">=1.2,<2", "1.1", "older"), (">=1.2", "99.1", ""), (">=1.2", "1.1", "older"),
        ("any", "3.0", ""), ("", "3.0", ""), (">=0.6.1,<=0.9.1", "0.9.1.dev3", ""), (">=1", "main", ""),
    ],
)  # fmt: skip
def test_a_version_is_compared_with_those_that_a_patch_names(
    known: str, version: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("compared")
    module.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "compared", module)

    words = versions.describe_unknown(Patch("compared", known, (Target("compared:f"),)))

    assert words.startswith(f"{version} is {word} than autopatch knows (" if word else "")
    assert bool(words) is bool(word)


def test_it_is_one_warning_and_stands_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(tmp_path, "newer_than_known", "9.9.9")
    monkeypatch.syspath_prepend(str(tmp_path))
    targets = tuple(Target(f"newer_than_known:{name}") for name in ("there", "gone", "gone_too"))
    patch = Patch("newer_than_known", ">=1.0,<=2.5", targets)

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            registry.install_patches([(patch, True)])
            report: Any = registry.report_targets()
            registry.remove_patches()

    (told,) = [record.getMessage() for record in caplog.records]
    assert "newer_than_known 9.9.9 is newer than autopatch knows (1.0 to 2.5): 1 of 3 targets" in told
    assert {one.version for one in report.targets} == {"9.9.9 is newer than autopatch knows (1.0 to 2.5)"}
    assert "newer_than_known 9.9.9 is newer than autopatch knows (1.0 to 2.5)" in str(report)
    assert "newer_than_known" not in sys.modules


@pytest.mark.parametrize("name", [name for name in registry.list_frameworks() if name != "concurrent"])
def test_each_patch_says_up_to_which_version_it_was_read(name: str) -> None:
    bounds = versions._BOUND.findall(registry.load_patch(name).versions)

    assert [sign for sign, _ in bounds] in ([">=", "<="], [""], ["", ""])


def test_a_known_version_is_told_nowhere() -> None:
    assert "autopatch knows" not in str(mstxkit.patch_report())
