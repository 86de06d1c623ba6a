"""The README's support table: what each recorded version of a framework holds of its patch.

Run as a script it writes the table into the README, between its two marks; a test fails while they differ.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Iterator

from builders.contracts import surface

from mstxkit.patching import registry
from mstxkit.patching.declare import CORE, Patch
from mstxkit.patching.symbols import HELD, ClassSymbols, ModuleSymbols, Symbols

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
SURFACES = ROOT / "tests" / "contracts" / "surfaces"
# Single functions of modules that the surfaces leave out, in the same form.
ALSO = ROOT / "tests" / "builders" / "also_recorded.json"
BEGIN, END = "<!-- support table: make readme-table -->", "<!-- end of the support table -->"


def table() -> str:
    """The table in Markdown, a row for each recorded version, oldest first."""
    rows = [_row(name, version) for name in registry.names() for version in versions(name)]
    return "\n".join(["| framework | version | core targets | extra targets |", "|---|---|---|---|", *rows])


def versions(framework: str) -> list[str]:
    """Recorded versions, oldest first; a branch is newer than every release."""
    found = [path.name[len(framework) + 1 : -len(".json")] for path in SURFACES.glob(f"{framework}-*.json")]
    return sorted(found, key=lambda version: [version[:1].isalpha(), *map(int, re.findall(r"\d+", version)[:3])])


def _row(framework: str, version: str) -> str:
    patch = registry.load(framework)
    held = [state.tier for state in recorded(framework, version).states(patch) if state.state == HELD]
    counts = [_count(patch, held, is_core) for is_core in (True, False)]
    return f"| {framework} | {version} | {counts[0]} | {counts[1]} |"


def _count(patch: Patch, held: list[str], is_core: bool) -> str:
    declared = sum((target.tier == CORE) is is_core for target in patch.targets)
    return f"{sum((tier == CORE) is is_core for tier in held)} of {declared}" if declared else "–"


def recorded(framework: str, version: str) -> Symbols:
    """The symbols of a recorded version."""
    record = surface.recorded(f"{framework}-{version}")
    found = {name: {**one, "imports_from": _imports(record, name)} for name, one in record.modules.items()}
    for one in json.loads(ALSO.read_text(encoding="utf-8")):
        if one["framework"] == framework and version in one["versions"]:
            found[one["module"]] = one
    modules = {name: _module(record) for name, record in found.items()}
    for package in {above for name in modules for above in _above(name)} - modules.keys():
        modules[package] = _passing_on(package, modules)
    return Symbols(modules.get)


def _imports(record: surface.Surface, module: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for source, names in surface.imports_of(record, module):
        found[source] = [*found.get(source, []), *names]
    return found


def _module(record: dict[str, Any]) -> ModuleSymbols:
    classes = {
        name: ClassSymbols(tuple(one["bases"]), dict.fromkeys(one["methods"], ""))
        for name, one in record.get("classes", {}).items()
    }
    imports = {name: (source, name) for source, names in record.get("imports_from", {}).items() for name in names}
    return ModuleSymbols(classes, dict.fromkeys(record.get("functions", {}), ""), imports)


def _above(module: str) -> Iterator[str]:
    parts = module.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))


def _passing_on(package: str, modules: dict[str, ModuleSymbols]) -> ModuleSymbols:
    """A package whose own file is not recorded: it passes on what only one of its modules defines."""
    sources: dict[str, list[str]] = {}
    for name, one in modules.items():
        if name.startswith(f"{package}."):
            for defined in (*one.classes, *one.names):
                sources.setdefault(defined, []).append(name)
    return ModuleSymbols(imports={name: (where[0], name) for name, where in sources.items() if len(where) == 1})


def in_readme() -> str:
    """What the README has between the marks."""
    return README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def write() -> None:
    """Put the table into the README."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    write()
