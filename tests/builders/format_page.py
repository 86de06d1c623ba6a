"""The tables of docs/internals/format.md as data, and the C engine's constants, for tests."""

from __future__ import annotations

import re
from pathlib import Path

import mstxkit

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "format.md"
_TYPES_H = Path(mstxkit.__file__).parent / "engine" / "native" / "types.h"

Table = list[list[str]]


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def tables(section: str) -> list[Table]:
    """The tables below a heading that begins with `section`, each without its head: rows of cells."""
    (body,) = (part for part in re.split(r"^## ", text(), flags=re.M) if part.startswith(section))
    blocks = re.findall(r"(?:^\|.*\n)+", body, flags=re.M)
    return [[_cells(line) for line in block.splitlines()[2:]] for block in blocks]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" |")]


def subject(field: str) -> str:
    """What a field's description begins with, before its details: `state: 0 being made` -> `state`."""
    return re.split(r" \(|:| = | `|, ", field)[0].strip("`")


def size_bytes(cell: str) -> int:
    """`64 × 32` -> 2048."""
    product = 1
    for factor in cell.split("×"):
        product *= int(factor)
    return product


def c_constants() -> dict[str, int]:
    """Every number that types.h names, by enum or by #define."""
    source = re.sub(r"/\*.*?\*/", "", _TYPES_H.read_text(encoding="utf-8"), flags=re.S)
    found: dict[str, int] = {}
    for body in re.findall(r"^enum \{(.*?)\};", source, flags=re.S | re.M):
        value = -1
        for item in body.split(","):
            name, _, given = (part.strip() for part in item.partition("="))
            value = _number(given, found) if given else value + 1
            found[name] = value
    for name, given in re.findall(r"^#define (\w+) (\(?[\dx].*|\(.*)$", source, flags=re.M):
        found[name] = _number(given, found)
    return found


def _number(given: str, known: dict[str, int]) -> int:
    """A C constant expression of numbers, shifts, sums and names known so far."""
    plain = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", given)
    return int(eval(plain, {"__builtins__": {}}, dict(known)))
