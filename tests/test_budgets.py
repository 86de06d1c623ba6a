"""Rooms of the package have budgets of lines and modules, the package of how finely it is cut, the guide of words.

They only fall. A budget is raised by hand alone, with a page in docs/decisions that says what was tried first.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Iterator

import pytest

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, GUIDE, BUDGETS = ROOT / "mstxkit", ROOT / "docs" / "guide", ROOT / ".ci" / "budgets.toml"
FRAGMENT_LINES = 5
Sizes = dict[str, dict[str, int]]
HEAD = """\
# Sizes that nothing may pass: of each room (the modules right in mstxkit/ are one, too), of how finely the package is
# cut, of the guide. tests/test_budgets.py writes down a smaller size that it meets. Raised only with a page in
# docs/decisions.
"""


def sizes_of_rooms() -> Sizes:
    rooms: Sizes = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        room = rooms.setdefault(inside.parts[0] if len(inside.parts) > 1 else "top", {"lines": 0, "modules": 0})
        room["lines"] += path.read_text(encoding="utf-8").count("\n")
        room["modules"] += 1
    return dict(sorted(rooms.items()))


def functions() -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, Counter[str]]]:
    """Each function, and how often each name is read in its file."""
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        uses.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
        yield from ((node, uses) for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def is_fragment(function: ast.FunctionDef | ast.AsyncFunctionDef, uses: Counter[str]) -> bool:
    """Is it private, short, and used once?"""
    is_private = re.match("_(?!_)", function.name) is not None
    return is_private and uses[function.name] == 1 and (function.end_lineno or 0) < function.lineno + FRAGMENT_LINES


def size_of_package(rooms: Sizes) -> dict[str, int]:
    """Counts, not shares of all: a share rises where other lines go."""
    all_functions = list(functions())
    one_word = [function for function, _ in all_functions if re.fullmatch("_?[a-z]+", function.name)]
    return {
        "lines": sum(room["lines"] for room in rooms.values()),
        "functions": len(all_functions),
        "fragments": sum(is_fragment(*function) for function in all_functions),
        "names_of_one_word": len(one_word),
    }


def size_of_guide() -> dict[str, int]:
    return {"words": sum(len(page.read_text(encoding="utf-8").split()) for page in GUIDE.glob("*.md"))}


def as_toml(sizes: Sizes) -> str:
    tables = (
        "\n".join((f"[{name}]", *(f"{size} = {value}" for size, value in table.items())))
        for name, table in sizes.items()
    )
    return HEAD + "\n" + "\n\n".join(tables) + "\n"


def test_no_size_is_beyond_its_budget_and_a_smaller_one_becomes_the_budget() -> None:
    rooms = sizes_of_rooms()
    sizes = {"package": size_of_package(rooms), "guide": size_of_guide(), **rooms}
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))

    beyond = {
        f"{name}.{size}": (value, budgets.get(name, {}).get(size, 0))
        for name, table in sizes.items()
        for size, value in table.items()
        if value > budgets.get(name, {}).get(size, 0)
    }
    assert beyond == {}, "(size, budget): make it smaller; a page in docs/decisions may raise it, as the last resort"
    if sizes != budgets:
        BUDGETS.write_text(as_toml(sizes), encoding="utf-8")
