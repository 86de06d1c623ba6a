"""`help()` of every public name: what each argument means, and an example that runs."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mstxkit

ROOT = Path(mstxkit.__file__).resolve().parents[1]
MARKING = ("mstx_range", "stage", "mark", "step", "at_step", "current_step", "current_stage")
TABLES = tuple(f"Run.{table}" for table in ("ranges", "marks", "stages", "processes", "escalations"))
NEED_TABLES = {"open_run", *TABLES}
RUNS_EXAMPLES = """
import doctest, sys
from test_help import public
found = doctest.DocTestFinder(recurse=False).find(public(sys.argv[1]), sys.argv[1], globs={})
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
print(sum(runner.run(test).attempted for test in found))
sys.exit(runner.failures)
"""

every_name = pytest.mark.parametrize("name", [*mstxkit.__all__, *TABLES])


def public(name: str) -> Any:
    """The object of that name; a class of the reader by the name of its module."""
    first, _, rest = name.partition(".")
    found = importlib.import_module("mstxkit.reading.run").Run if first == "Run" else getattr(mstxkit, first)
    return getattr(found, rest) if rest else found


@every_name
def test_help_says_what_each_argument_means(name: str) -> None:
    names = [argument for argument in inspect.signature(public(name)).parameters if argument != "self"]
    text = inspect.getdoc(public(name)) or ""
    described = text.partition("Args:\n")[2]

    assert [argument for argument in names if f"\n    {argument}: " not in f"\n{described}"] == []


@every_name
def test_the_example_in_help_runs(name: str, tmp_path: Path) -> None:
    """In a process and a folder of its own, on the engine that is loaded here."""
    if name in NEED_TABLES:
        pytest.importorskip("polars")
    variables = {key: text for key, text in os.environ.items() if key not in ("MSTXKIT_RUN", "MSTXKIT_AUTOPATCH")}
    variables["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))

    done = subprocess.run(
        [sys.executable, "-c", RUNS_EXAMPLES, name], cwd=tmp_path, env=variables, capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip

    assert "Example:\n" in (inspect.getdoc(public(name)) or "")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 0, "there is no >>> in it"


@pytest.mark.parametrize("name", MARKING)
def test_the_marking_names_say_the_same_in_both_engines_and_to_type_checkers(name: str) -> None:
    import ast

    native = pytest.importorskip("mstxkit.engine.native.hot")
    stub = ast.parse((ROOT / "mstxkit" / "engine" / "native" / "hot.pyi").read_text(encoding="utf-8"))
    typed = next(node for node in stub.body if isinstance(node, ast.FunctionDef) and node.name == name)
    twin = importlib.import_module("mstxkit.engine.twin.hot")

    said = inspect.getdoc(getattr(native, name))

    assert ast.get_docstring(typed) == said
    assert inspect.getdoc(getattr(twin, name)) == said
