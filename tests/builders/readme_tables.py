"""The tables of the README in both languages: what is supported, from the recorded surfaces; figures, from the results
of the benchmarks. The guide has what each recorded version of a framework holds of its patch.

Run as a script it writes each between its two marks; a test fails while they differ.
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
ENGLISH, CHINESE, GUIDE = ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "docs" / "guide" / "autopatch.md"
SURFACES = ROOT / "tests" / "contracts" / "surfaces"
RESULTS = ROOT / "benchmarks" / "results"
# Single functions of modules that the surfaces leave out, in the same form.
ALSO = ROOT / "tests" / "builders" / "also_recorded.json"
_END = "<!-- end of the table -->"
_HEADS = {
    ENGLISH: ("framework", "versions", "core targets in the newest", "what", "figure", "NAME"),
    CHINESE: ("框架", "版本", "最新版本中的核心目标", "项目", "数值", "NAME"),
}
# What it is in both languages; its benchmark, the key of its result, and how that is written.
FIGURES = (
    ("a range while nothing listens", "无人监听时的一个区间", "range_off", "range_off.native", "{note}, {value:.2f} ×"),
    (
        "a range that is recorded",
        "被记录的一个区间",
        "range_recording",
        "range_recording.native_tsc",
        "{note}, {value:.2f} ×",
    ),
    ("a range on disk", "一个区间占用的磁盘", "memory", "memory.sealed_bytes", "{value:.1f} B"),
    (
        "all of it, of a rank’s time",
        "全部开销占一个 rank 的时间",
        "everything",
        "whole.everything_sum",
        "{value:.1f} %",
    ),
    ("faults on which the right rank is named", "指认正确 rank 的故障", "detect", "detect.right", "{note}"),
    ("faults on which one that waits is named", "误指等待者的故障", "detect", "detect.victim_blamed", "{note}"),
    (
        "steps until a rank 25 % slower is named",
        "慢 25 % 的 rank 被指认所需步数",
        "detect",
        "detect.steps_1.25",
        "{value:.0f}",
    ),
)


def tables() -> dict[tuple[Path, str], str]:
    """Each table in Markdown, by the file that has it and the name in its mark."""
    readmes = {(file, name): make(file) for file in _HEADS for name, make in (("support", short), ("figures", figures))}
    return {(GUIDE, "support"): table(), **readmes}


def table() -> str:
    """What each recorded version holds, a row for each, oldest first."""
    rows = [_row(name, version) for name in registry.list_frameworks() for version in versions(name)]
    return "\n".join(["| framework | version | core targets | extra |", "|---|---|---|---|", *rows])


def short(file: Path) -> str:
    """The same for who wants to know whether theirs is among them: a row for each framework."""
    lines = ["| {} | {} | {} |".format(*_HEADS[file][:3]), "|---|---|---|"]
    for name in registry.list_frameworks():
        if every := versions(name):
            core = _row(name, every[-1]).split(" | ")[2]
            spanned = " … ".join(dict.fromkeys((every[0], every[-1])))
            lines.append(f"| {name} | {spanned} ({len(every)}) | {core} |")
    return "\n".join(lines)


def figures(file: Path) -> str:
    """What was measured, as the results that are committed have it."""
    lines = ["| {} | {} | {} |".format(*_HEADS[file][3:]), "|---|---|---|"]
    for english, chinese, benchmark, key, form in FIGURES:
        rows = json.loads((RESULTS / f"{benchmark}.json").read_text(encoding="utf-8"))["rows"]
        (row,) = (row for row in rows if row["key"] == key)
        figure = form.format(**row).replace(" of ", " / ")
        what = english if file == ENGLISH else chinese
        lines.append(f"| {what} | {figure} | `{benchmark}` |")
    return "\n".join(lines)


def versions(framework: str) -> list[str]:
    """Recorded versions, oldest first; a branch is newer than every release."""
    found = [path.name[len(framework) + 1 : -len(".json")] for path in SURFACES.glob(f"{framework}-*.json")]
    return sorted(found, key=lambda version: [version[:1].isalpha(), *map(int, re.findall(r"\d+", version)[:3])])


def _row(framework: str, version: str) -> str:
    patch = registry.load_patch(framework)
    held = [state.tier for state in recorded(framework, version).states(patch) if state.state == HELD]
    counts = [_count(patch, held, is_core) for is_core in (True, False)]
    return f"| {framework} | {version} | {counts[0]} | {counts[1]} |"


def _count(patch: Patch, held: list[str], is_core: bool) -> str:
    declared = sum((target.tier == CORE) is is_core for target in patch.targets)
    return f"{sum((tier == CORE) is is_core for tier in held)}/{declared}" if declared else "–"


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


def in_file(file: Path, name: str) -> str:
    """What a file has between the marks of a table."""
    return file.read_text(encoding="utf-8").partition(_begin(name))[2].partition(_END)[0].strip()


def _begin(name: str) -> str:
    return f"<!-- {name}: make readme-tables -->"


def write() -> None:
    """Put each table into its file."""
    for (file, name), text in tables().items():
        before, begin, rest = file.read_text(encoding="utf-8").partition(_begin(name))
        assert begin, f"{file} has no {_begin(name)}"
        file.write_text(f"{before}{begin}\n{text}\n{_END}{rest.partition(_END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    write()
