"""The shape of the package, read from its source: layers, names, sizes, cost of an import (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Iterator

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mstxkit"
FILES = sorted(PACKAGE.rglob("*.py"))

# First part of a module's name below mstxkit -> its layer; "" is the package itself, whose public names the faces use.
LAYERS = {
    **dict.fromkeys(("errors", "faults", "clock", "identity", "names", "imports", "places", "stages"), 0),
    **dict.fromkeys(("records", "livefile", "segment", "state"), 1),
    **dict.fromkeys(("recorder", "sinks", "_native"), 2),
    **dict.fromkeys(("ranges", "wrapping", "calls", "signatures", "off", "dynamo"), 3),
    **dict.fromkeys(("patching", "patches", "config", "profiling", "backends", "presets"), 4),
    **dict.fromkeys(("control",), 5),
    **dict.fromkeys(("wiring", "bootstrap", "escalation"), 6),
    **dict.fromkeys(("reader", "reading", "align", "analysis", "parsing", "report", "exporters"), 7),
    **dict.fromkeys(("cli", "testing", "demo", "__main__", ""), 8),
}
OFFLINE, OFFLINE_MAY_IMPORT = 7, (0, 1, 7)
# Upwards, inside a function: a range that is called with a function decorates it, a site pickles by its public name.
MAY_REACH_UP = {"recorder/engine.py": {"mstxkit.wrapping"}, "recorder/twin_sites.py": {"mstxkit.ranges"}}

HEAVY = {"torch", "torch_npu", "numpy", "polars", "pydantic", "wrapt", "ray", "asyncio", "mindspore"}
HEAVY |= {"zstandard", "typer", "rich", "yaml", "plotly"}
# Who may import what at module level all the same: modules that nobody loads unless they want just that.
MAY_IMPORT = {
    "cli": {"typer", "rich"},
    "config": {"pydantic"},
    "demo": {"torch", "numpy", "rich"},
    **{name: {"numpy", "polars", "rich"} for name in ("reading", "analysis", "report", "exporters")},
}

# Files in which a fault must not reach user code, and is noted instead.
MAY_CATCH_EVERYTHING = {
    "backends/_session.py",
    "bootstrap/entry_points.py",
    "bootstrap/pth.py",
    "bootstrap/activation.py",
    "bootstrap/patch_record.py",
    "bootstrap/ray.py",
    "bootstrap/ray_ranges.py",
    "calls.py",
    "cli/_importing.py",
    "control/mailbox.py",
    "control/standby.py",
    "faults.py",
    "identity.py",
    "imports.py",
    "patches/_mindspeed_rl_profiler.py",
    "patching/reach.py",
    "patching/active.py",
    "patching/registry.py",
    "patching/seams.py",
    "parsing/one.py",
    "profiling/others.py",
    "profiling/session.py",
    "recorder/adopt.py",
    "recorder/process.py",
    "recorder/forking.py",
    "recorder/sealer.py",
    "recorder/twin_driven.py",
    "recorder/twin_quick.py",
    "recorder/twin_ranges.py",
    "recorder/twin_sinks.py",
    "recorder/twin_steps.py",
    "recorder/twin_attributes.py",
    "recorder/twin_watch.py",
    "sinks/cann.py",
    "sinks/seams.py",
    "wiring.py",
    "wrapping.py",
}

BANNED_WORDS = {"utils", "util", "helpers", "helper", "manager", "common", "core", "misc"}
LINES_AT_MOST = 450
# More than bare Python. The twin is what runs where C could not be built: ten modules of its own, and what they need.
MODULES_AT_MOST, MODULES_AT_MOST_ON_THE_TWIN = 40, 66

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def part(module: str) -> str:
    """`mstxkit.recorder.live` -> `recorder`."""
    return (module.split(".") + [""])[1]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Full names of what import statements among `nodes` load; `from . import x` names x where x is a module."""
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for name in (f"{base}.{alias.name}" for alias in node.names):
                if name != "mstxkit.__version__":  # the one value of the package itself that anybody may read
                    yield name if is_module(name) else base


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir() or name == "mstxkit._native.hot"


def at_module_level(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run at import; `if TYPE_CHECKING` does not."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from at_module_level(node.orelse)
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from at_module_level(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from at_module_level(handler.body)
        else:
            yield node


@every_file
def test_imports_point_to_the_same_layer_or_below(path: Path) -> None:
    own = LAYERS[part(module_name(path))]
    loaded = {name for name in imports(path, ast.walk(tree(path))) if name.split(".")[0] == "mstxkit"}

    loaded -= MAY_REACH_UP.get(str(path.relative_to(PACKAGE)), set())

    assert not [name for name in loaded if LAYERS[part(name)] > own]
    if own == OFFLINE:
        assert not [name for name in loaded if LAYERS[part(name)] not in OFFLINE_MAY_IMPORT]


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = {module_name(p): set(imports(p, at_module_level(tree(p).body))) - {module_name(p)} for p in FILES}
    while leaves := {name for name, targets in edges.items() if not targets & edges.keys()}:
        edges = {name: targets for name, targets in edges.items() if name not in leaves}

    assert not edges


@every_file
def test_nothing_heavy_is_imported_at_module_level(path: Path) -> None:
    allowed = MAY_IMPORT.get(part(module_name(path)), set())
    heavy = {name.split(".")[0] for name in imports(path, at_module_level(tree(path).body))} & HEAVY

    assert heavy <= allowed


@every_file
def test_a_module_opens_with_its_promise(path: Path) -> None:
    text = ast.get_docstring(tree(path)) or ""

    assert text or not tree(path).body, "no docstring"
    assert not text or text.split("\n\n")[0].rstrip().endswith((".", ":", "`"))


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Is it `except Exception` or wider, and not just there to tidy up and raise again?"""
    last = handler.body[-1]
    if isinstance(last, ast.Raise) and last.exc is None:
        return False
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in ("Exception", "BaseException") for kind in kinds)


def test_only_listed_files_catch_everything() -> None:
    catching = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and catches_everything(node)
    }

    assert catching == MAY_CATCH_EVERYTHING


@every_file
def test_print_is_for_the_command_line_and_the_demo(path: Path) -> None:
    names = {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}

    assert "print" not in names or part(module_name(path)) in ("cli", "demo")


@every_file
def test_names_say_what_a_thing_is(path: Path) -> None:
    named = [
        n.name for n in ast.walk(tree(path)) if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    words = {word.lower() for name in [path.stem, *named] for word in re.findall(r"[A-Z]?[a-z]+", name)}

    assert not words & BANNED_WORDS


@every_file
def test_a_file_is_short_enough_to_read(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_AT_MOST


def loaded_modules(statement: str) -> set[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {statement}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_mstxkit_loads_little_and_nothing_heavy() -> None:
    more = loaded_modules("from mstxkit import mstx_range, mstx_timer") - loaded_modules("pass")
    limit = MODULES_AT_MOST if "mstxkit._native.hot" in more else MODULES_AT_MOST_ON_THE_TWIN

    assert len(more) <= limit, sorted(more)
    assert not {name.split(".")[0] for name in more} & HEAVY
