"""`help()` of every public name: what each argument means, and an example that runs; and of the engine's stub."""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any, Iterator, Sequence

import pytest
from builders import soak

import mstxkit
from mstxkit import testing
from mstxkit.bootstrap.capture import Capture
from mstxkit.reading.run import Run

ROOT = Path(mstxkit.__file__).resolve().parents[1]
MARKING = ("mstx_range", "stage", "mark", "step", "at_step", "current_step", "current_stage")
TABLES = [name for name, value in vars(Run).items() if isinstance(value, FunctionType) and name[0] != "_"]
RUN = ("Run", *(f"Run.{name}" for name in TABLES))
# Tables are asked for all alike, as the example of `Run` does: of these one shows what the table has.
SHOWN = ("Run", *(f"Run.{name}" for name in TABLES if "Example:" in (inspect.getdoc(getattr(Run, name)) or "")))
KIT = tuple(f"testing.{name}" for name in testing.__all__)
# Methods of the test kit whose use the example of their class shows.
KIT_METHODS = tuple(
    f"{name}.{method}"
    for name in KIT
    for method, value in vars(getattr(testing, name.partition(".")[2])).items()
    if not method.startswith("_") and isinstance(value, (FunctionType, classmethod, property))
)
RUNS_EXAMPLES = """
import doctest, os, sys, tempfile
here = os.getcwd()
from test_help import public
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
for name in sys.argv[1:]:
    os.chdir(tempfile.mkdtemp(dir=here))
    found = doctest.DocTestFinder(recurse=False).find(public(name), name, globs={})
    if not sum(runner.run(test).attempted for test in found):
        sys.exit(f"there is no >>> in {name}")
sys.exit(min(runner.failures, 1))
"""


def public(name: str) -> Any:
    """The object of that name; a class of the reader or of the test kit by the name of its module."""
    first, *rest = name.split(".")
    found: Any = {"Run": Run, "Capture": Capture, "testing": testing}.get(first) or getattr(mstxkit, first)
    return functools.reduce(getattr, rest, found)


@pytest.mark.parametrize("name", [*mstxkit.__all__, "Capture", "Capture.stop", *RUN, *KIT, *KIT_METHODS])
def test_help_says_what_each_argument_means(name: str) -> None:
    found = public(name)
    text = inspect.getdoc(found) or ""
    described = re.findall(r"^    ([a-z_, ]+): ", text.partition("Args:\n")[2], re.MULTILINE)
    arguments = [] if isinstance(found, property) else list(inspect.signature(found).parameters)

    assert text
    assert set(arguments) - {"self"} <= {one for together in described for one in together.split(", ")}


@pytest.mark.parametrize(
    "names",
    [*soak.sample([[name] for name in mstxkit.__all__], 8), ["Capture"], SHOWN, KIT],
    ids=lambda names: names[0],
)
def test_the_examples_in_help_run(names: Sequence[str], tmp_path: Path) -> None:
    """In a process of their own, each in a new folder, on the engine that is loaded here."""
    if names in (["open_run"], SHOWN):
        pytest.importorskip("polars")
    if names is KIT and shutil.which("gcc") is None:
        pytest.skip("no C compiler for the stand-in libraries")
    variables = {key: text for key, text in os.environ.items() if key not in ("MSTXKIT_RUN", "MSTXKIT_AUTOPATCH")}
    variables["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))

    done = subprocess.run(
        [sys.executable, "-c", RUNS_EXAMPLES, *names], cwd=tmp_path, env=variables, capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip

    assert [name for name in names if "Example:\n" not in (inspect.getdoc(public(name)) or "")] == []
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_of_a_table_shows_data(name: str) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(public(name), name, globs={})

    assert not {example.want.strip() for example in test.examples} & {"0", "1", "[]", "{}"}


@pytest.mark.parametrize("name", MARKING)
def test_the_marking_names_say_the_same_in_both_engines_and_to_type_checkers(name: str) -> None:
    native = pytest.importorskip("mstxkit.engine.native.hot")
    twin = importlib.import_module("mstxkit.engine.twin.hot")
    said = inspect.getdoc(getattr(native, name))

    assert dict(described())[name] == said
    assert said is not None and said.startswith(inspect.getdoc(getattr(twin, name)) or "nothing")


def described() -> Iterator[tuple[str, str | None]]:
    """Every function, class and method of the stub, but those that Python itself calls, and what is said of it; of
    overloads by the last.
    """
    stub = ast.parse((ROOT / "mstxkit" / "engine" / "native" / "hot.pyi").read_text(encoding="utf-8"))
    for node in {node.name: node for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}.values():
        yield node.name, ast.get_docstring(node)
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                yield f"{node.name}.{part.name}", ast.get_docstring(part)


def test_the_stub_says_of_everything_what_it_does_and_what_c_says() -> None:
    native = pytest.importorskip("mstxkit.engine.native.hot")
    in_c = {name: inspect.getdoc(functools.reduce(getattr, name.split("."), native)) for name, _ in described()}

    assert [name for name, text in described() if not text] == []
    assert {name: text for name, text in described() if in_c[name] is not None and in_c[name] != text} == {}
    assert [name for name in ("Site", "Range", "Range.set", "Driven", "Span", "stage_times") if not in_c[name]] == []
