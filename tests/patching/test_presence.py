"""autopatch never raises, whatever lies on the path, and before anything of it is imported."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator

import pytest

import mstxkit
from mstxkit import faults
from mstxkit.patching.presence import Presence
from mstxkit.patching.report import SKIPPED, WAITING, Reason

ROOT = Path(__file__).resolve().parents[2]
WAITS = (WAITING, Reason.NOT_IMPORTED)
IS_ABSENT = (SKIPPED, Reason.ABSENT)
NOT_INSTALLED = (SKIPPED, Reason.NOT_INSTALLED)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is imported from; what was patched and imported from it is put back afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    mstxkit.unpatch()
    for name in set(sys.modules) - before:
        if name.split(".")[0].startswith("odd_"):
            del sys.modules[name]


def write(folder: Path, **modules: str) -> None:
    """Modules by name, `__` for a dot; a name that ends so is a package's `__init__`."""
    for name, source in modules.items():
        *parents, last = name.split("__")
        where = folder.joinpath(*parents)
        where.mkdir(parents=True, exist_ok=True)
        (where / f"{last or '__init__'}.py").write_text(source)


def states(*targets: str) -> list[tuple[str, str]]:
    """State and reason of each target, from autopatch, and the same from the report."""
    of_patching = [(state.state, state.reason) for state in mstxkit.autopatch(targets=list(targets)).targets]
    assert [(state.state, state.reason) for state in mstxkit.patch_report().targets] == of_patching
    return of_patching


def test_below_a_folder_without_init_that_nobody_has_imported(path: Path) -> None:
    write(path, odd_a__="", odd_a__sub__="", odd_a__sub__ns__config__mod="def f(): pass")

    assert states(
        "odd_a.sub.ns.config.mod:f", "odd_a.sub.ns.config.other:f", "odd_a.sub.none.mod:f", "odd_a.sub.ns.config:f"
    ) == [WAITS, IS_ABSENT, IS_ABSENT, WAITS]
    assert faults.counts == {}
    assert "odd_a" not in sys.modules


def test_the_review_of_a_namespace_folder_in_a_process_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, acme__="", acme__sub__="", acme__sub__ns__mod="def f(): pass")
    program = "import mstxkit; mstxkit.autopatch(targets=['acme.sub.ns.mod:f']); print(mstxkit.patch_report())"

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert "waiting acme.sub.ns.mod:f: its module is not imported yet" in done.stdout


def test_a_namespace_package_with_parts_in_two_folders(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path / "one", odd_b__ns__left="def f(): pass")
    write(path / "two", odd_b__ns__right="def f(): pass")
    monkeypatch.syspath_prepend(str(path / "one"))
    monkeypatch.syspath_prepend(str(path / "two"))

    assert states("odd_b.ns.left:f", "odd_b.ns.right:f", "odd_b.ns.middle:f") == [WAITS, WAITS, IS_ABSENT]


def test_a_half_written_module_is_waited_for_and_its_import_fails_as_without_us(path: Path) -> None:
    write(path, odd_c__="", odd_c__half="def f(:", odd_c__fails="import no_such_module_at_all")
    assert states("odd_c.half:f", "odd_c.fails:f") == [WAITS, WAITS]

    with pytest.raises(SyntaxError):
        importlib.import_module("odd_c.half")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        importlib.import_module("odd_c.fails")
    assert faults.counts == {}


def test_a_module_that_is_none_in_sys_modules_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, odd_d__="", odd_d__mod="def f(): pass")
    monkeypatch.setitem(sys.modules, "odd_d.mod", None)
    monkeypatch.setitem(sys.modules, "odd_e", None)

    assert states("odd_d.mod:f", "odd_e.mod:f") == [IS_ABSENT, NOT_INSTALLED]


def test_what_stands_in_for_a_target_may_be_none_in_sys_modules(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, odd_f__="", odd_f__mod="def f(): pass")
    monkeypatch.setitem(sys.modules, "odd_f.newer", None)

    report = mstxkit.autopatch(targets=mstxkit.Target("odd_f.mod:f", unless="odd_f.newer:g"))

    assert [(state.state, state.reason) for state in report.targets] == [WAITS]


class Raising:
    """An object of which every look at an attribute raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is none of your business")


class LoadsItself(ModuleType):
    """A module whose class raises at the first look, as one does that loads itself then and cannot."""

    def __getattribute__(self, name: str) -> Any:
        raise ImportError(f"cannot be loaded: {name}")


@pytest.mark.parametrize("make", [Raising, lambda: LoadsItself("odd_g.mod"), object, lambda: 5, lambda: "text"])
def test_anything_may_be_in_sys_modules(path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]) -> None:
    write(path, odd_g__="", odd_g__mod="def f(): pass")
    monkeypatch.setitem(sys.modules, "odd_g.mod", make())
    monkeypatch.setitem(sys.modules, "odd_h", make())

    before, below = states("odd_g.mod:f", "odd_h.mod:f")

    assert before[0] in ("failed", "skipped")
    assert below[0] in (WAITING, SKIPPED)
    assert faults.counts == {}


class RaisingFinder:
    """A finder of somebody that raises for some names."""

    def __init__(self, names: str, error: Exception) -> None:
        self.names, self.error = names, error

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith(self.names):
            raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), KeyError("x"), ImportError("broken"), OSError(5, "I/O")], ids=repr
)
def test_a_finder_that_raises_leaves_the_target_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sys, "meta_path", [RaisingFinder("odd_i", error), *sys.meta_path])

    assert states("odd_i.mod:f") == [WAITS]
    assert f"looking for odd_i raised {type(error).__name__}" in mstxkit.patch_report().targets[0].detail


def test_a_path_hook_that_raises_leaves_the_target_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, odd_j__="", odd_j__sub__="")

    def hook(folder: str) -> object:
        if folder.endswith("odd_j"):
            raise RuntimeError("a hook of somebody's")
        raise ImportError

    monkeypatch.setattr(sys, "path_hooks", [hook, *sys.path_hooks])

    assert states("odd_j.sub.mod:f") == [WAITS]
    assert faults.counts == {}


def test_a_package_on_no_path_a_file_as_package_and_a_broken_one(path: Path) -> None:
    write(path, odd_k="x = 1", odd_l__="raise RuntimeError('at import')", odd_l__mod="def f(): pass")
    (path / "odd_m").write_text("a file")

    assert states("odd_nowhere.mod:f", "odd_k.mod:f", "odd_l.mod:f", "odd_m.mod:f") == [
        NOT_INSTALLED, IS_ABSENT, WAITS, NOT_INSTALLED,
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="at import"):
        importlib.import_module("odd_l")
    assert faults.counts == {}


def test_each_package_is_looked_for_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, odd_o__="", odd_o__mod="")
    asked: list[str] = []
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: asked.append(name) or find(name))
    presence = Presence()

    for _ in range(3):
        presence.of_module("odd_o.mod")

    assert asked == ["odd_o"]
