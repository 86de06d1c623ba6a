"""Which engine a process runs on, and that the two have the same names."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mstxkit
from mstxkit.engine import choose as module
from mstxkit.engine.twin import hot

PACKAGE = Path(mstxkit.__file__).parent


def documented_names() -> set[str]:
    """What the interface file of the C engine declares."""
    tree = ast.parse((PACKAGE / "engine/native/hot.pyi").read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    values = {
        node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return {name for name in functions | values if not name.startswith("_")}


def test_both_engines_have_the_names_of_the_interface(engine: Any) -> None:
    missing = {name for name in documented_names() if not hasattr(engine, name)}

    assert missing == set()


def test_the_twin_has_no_more_names_than_the_interface() -> None:
    ours = {name for name, value in vars(hot).items() if str(getattr(value, "__module__", "")).startswith("mstxkit.")}

    assert {name for name in ours if not name.startswith("_")} - {"at_step"} <= documented_names()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("Range", ["__enter__", "__exit__", "__aenter__", "__aexit__", "__call__", "set"]),
        ("Driven", ["__await__", "__iter__", "__next__", "send", "throw", "close"]),
        ("Span", ["drive", "close"]),
        ("Site", ["name", "stage", "domain", "id"]),
    ],
)
def test_their_objects_have_the_same_methods(engine: Any, kind: str, names: list[str]) -> None:
    assert [name for name in names if not hasattr(getattr(engine, kind), name)] == []


def test_an_engine_says_which_it_is(engine: Any) -> None:
    assert engine.NATIVE is (engine is not hot)


def run(choice: str | None, code: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
    environment["PYTHONPATH"] = str(PACKAGE.parent)
    if choice is not None:
        environment[module.VARIABLE] = choice
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)


LOADED = "from mstxkit.engine.choose import engine; print(engine.NATIVE)"
# As where no compiler was found.
WITHOUT_C = "import sys; sys.modules['mstxkit.engine.native.hot'] = None; "


def test_0_forbids_the_c_engine() -> None:
    assert run("0", LOADED).stdout.strip() == "False"


def test_1_requires_the_c_engine_and_says_what_to_do_where_it_is_missing() -> None:
    missing = run("1", WITHOUT_C + LOADED)

    assert missing.returncode == 1
    assert "MstxkitError: MSTXKIT_NATIVE=1 (from the environment) requires the C engine" in missing.stderr
    assert "set it to 0" in missing.stderr


@pytest.mark.parametrize("choice", [None, ""])
def test_without_a_choice_it_is_the_c_engine_where_that_loads(choice: str | None) -> None:
    pytest.importorskip("mstxkit.engine.native.hot")

    assert run(choice, LOADED).stdout.strip() == "True"
    assert run(choice, WITHOUT_C + LOADED).stdout.strip() == "False"


def test_another_choice_is_ignored_and_said_once_with_those_there_are() -> None:
    """It is in the environment of a training, which an import must not end."""
    done = run("yes", "import mstxkit; " + LOADED)

    assert done.stdout == run(None, LOADED).stdout != ""
    assert done.stderr.count("MSTXKIT_NATIVE='yes' (from the environment) is ignored: 1 requires the C engine") == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("choice", ["0", ""])
def test_loading_an_engine_loads_nothing_heavy(choice: str) -> None:
    heavy = ["asyncio", "ctypes", "mmap", "numpy", "torch", "wrapt", "inspect", "dataclasses"]
    found = run(choice, f"{LOADED}; import sys; print([name for name in {heavy} if name in sys.modules])")

    assert found.stdout.split("\n")[1] == "[]", found.stderr
