"""The C engine's parts: each includes the headers of those it takes from, in no circle, and declares only its own."""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "mstxkit/engine/native"
UNIT = "hot"  # which is all of them
PARTS = sorted(path.stem for path in NATIVE.glob("*.c") if path.stem != UNIT)
KNOWN_TO_ALL = {"types", "words"}

COMMENT, TEXT = r"/\*.*?\*/", r'"(?:\\.|[^"\\\n])*"'
ATTRIBUTE = r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)"
HEAD = r"^static\b[^;={}]*?\b(\w+)\([^;{}]*\)\s*"


@cache
def read_code(name: str) -> str:
    """Without comments and attributes; empty where there is no such file."""
    path = NATIVE / name
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    return re.sub(ATTRIBUTE, "", re.sub(COMMENT, "", source, flags=re.S))


def find_defined(name: str) -> set[str]:
    return set(re.findall(HEAD + r"\{", read_code(name), flags=re.M))


def find_declared(name: str) -> set[str]:
    return set(re.findall(HEAD + r";", read_code(name), flags=re.M))


def find_called(name: str) -> set[str]:
    return set(re.findall(r"(?<![\w.>])(\w+)\(", re.sub(TEXT, "", read_code(name))))


def find_taken_from(part: str) -> set[str]:
    """The parts whose headers its source or its header includes."""
    both = read_code(f"{part}.c") + read_code(f"{part}.h")
    return set(re.findall(r'^#include "(\w+)\.h"', both, flags=re.M)) - {part} - KNOWN_TO_ALL


def test_no_part_takes_from_another_in_a_circle() -> None:
    graph = {part: find_taken_from(part) for part in PARTS}
    order = list(TopologicalSorter(graph).static_order())  # raises where there is one, and names it

    assert sorted(order) == PARTS
    assert sum(map(len, graph.values())) > 60


def test_a_part_declares_only_what_it_defines() -> None:
    """A declaration of what a later part defines would be a circle that no #include shows."""
    declared = {part: find_declared(f"{part}.c") | find_declared(f"{part}.h") for part in PARTS}
    others = {part: names - find_defined(f"{part}.c") for part, names in declared.items()}

    assert sum(map(len, declared.values())) > 80
    assert {part: names for part, names in others.items() if names} == {}
    assert find_declared("types.h") | find_declared("words.h") == set()


def test_a_part_includes_the_header_of_whoever_defines_what_it_calls() -> None:
    owners = {name: part for part in PARTS for name in find_defined(f"{part}.c")}
    missing = {
        (part, name, owners[name])
        for part in PARTS
        for name in find_called(f"{part}.c")
        if name in owners and owners[name] not in {part, *find_taken_from(part)}
    }

    assert len(owners) > 300
    assert missing == set()


def test_a_header_holds_declarations_and_no_code() -> None:
    assert {part: names for part in PARTS if (names := find_defined(f"{part}.h"))} == {}


def test_the_unit_is_all_parts() -> None:
    """A part left out would fail to compile only where something of it is called."""
    included = re.findall(r'^#include "(\w+)\.c"', read_code(f"{UNIT}.c"), flags=re.M)

    assert sorted(included) == PARTS
