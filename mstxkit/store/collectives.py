"""One entry of a process into a collective, send or receive, in 32 bytes: of torch's flight-recorder ring, or CALLED.

Little-endian: u32 group, a number that all its members have for it; of sends and receives it is of one sender and one
receiver · u32 sequence, which of the group's collectives · i64 entered, i64 left (0: not known), ns of the host's
CLOCK_MONOTONIC · u16 operation, its place in OPERATIONS in the lowest 4 bits, above them the id of the stage in which
it was CALLED (0: in none) · u16 flags · u32 size, KiB of what goes in, rounded up; of what was CALLED, for how many us
it was waited for until it was left.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, NamedTuple

from . import documents, layout
from .handed_over import GROUPS
from .values import table_of

ROW = struct.Struct("<IIqqHHI")
ROW_BYTES = ROW.size
# The same for numpy: `numpy.dtype(FIELDS)`.
FIELDS = [
    ("group", "<u4"), ("sequence", "<u4"), ("entered_ns", "<i8"), ("left_ns", "<i8"), ("operation", "<u2"),
    ("flags", "<u2"), ("size_kib", "<u4"),
]  # fmt: skip
OPERATIONS = (
    "other", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier", "reduce", "gather",
    "scatter", "send", "recv", "take",
)  # fmt: skip
SEND, RECEIVE, TAKE = map(OPERATIONS.index, ("send", "recv", "take"))
OPERATION_BITS = 4
# Entered while its ring was being read, or as the first after that: the reading may have held it up.
DISTURBED = 1
# `left` is when torch's watchdog saw that it was over: it was over then at the latest.
LEFT_AT_MOST = 2
# Seen as Python code made the call; and the device of its group runs behind the host, of which alone it tells.
CALLED, HOST_ALONE = 4, 8
RANK, RING, WHY_NOT = "rank", "ring_entries", "why_not"
_MOST_32, _RUNS_AT_MOST, _RANKS_AT_MOST = 0xFFFFFFFF, 32, 1 << 20
# Of `ranks_as_text`: a part of that would be other ranks.
RANKS_TEXT_AT_MOST = _RUNS_AT_MOST * len("123456789-123456789/123456789,")
_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?", re.ASCII)
_PAIR = re.compile(r"(\d{1,9})>(\d{1,9})", re.ASCII)


class CollectiveEntry(NamedTuple):
    """One process entered one collective. Args: as in the module's first lines."""

    group: int
    sequence: int
    entered_ns: int
    left_ns: int
    operation: int
    flags: int
    size_kib: int

    def pack(self) -> bytes:
        """Its 32 bytes."""
        return ROW.pack(
            self.group & _MOST_32, self.sequence & _MOST_32, self.entered_ns, self.left_ns, self.operation, self.flags,
            min(max(0, self.size_kib), _MOST_32),
        )  # fmt: skip


def unpack_entries(data: bytes) -> Iterator[CollectiveEntry]:
    """The entries in whole rows; what is left at the end is left out."""
    return map(CollectiveEntry._make, ROW.iter_unpack(data[: len(data) // ROW_BYTES * ROW_BYTES]))


def operation_in(operation: Any) -> Any:
    """Its place in OPERATIONS, of what a row has."""
    return operation & (1 << OPERATION_BITS) - 1


def ranks_as_text(ranks: Iterable[int]) -> str:
    """Ranks as runs: "0-7", "1-1021/4" for each fourth, by commas; "" where that takes more than 32 runs."""
    ordered, runs = sorted(set(ranks)), []
    while ordered:
        stride = ordered[1] - ordered[0] if len(ordered) > 1 else 1
        length = next((n for n in range(1, len(ordered)) if ordered[n] - ordered[n - 1] != stride), len(ordered))
        length = length if length > 2 or stride == 1 else 1
        every = f"/{stride}" if stride > 1 else ""
        runs.append(f"{ordered[0]}-{ordered[length - 1]}{every}" if length > 1 else str(ordered[0]))
        ordered = ordered[length:]
    return ",".join(runs) if len(runs) <= _RUNS_AT_MOST else ""


def ranks_in(text: object) -> tuple[int, ...]:
    """The ranks of `ranks_as_text`, or of a pair, "3>4", who sends and who receives; () for what is no such text."""
    parts = text.split(",") if isinstance(text, str) else []
    if len(parts) == 1 and (pair := _PAIR.fullmatch(parts[0])):
        return int(pair[1]), int(pair[2])
    matches = [match for part in parts if (match := _RUN.fullmatch(part))]
    runs = [range(int(m[1]), int(m[2] or m[1]) + 1, max(1, int(m[3] or 1))) for m in matches]
    if len(runs) < len(parts) or len(runs) > _RUNS_AT_MOST or sum(map(len, runs)) > _RANKS_AT_MOST:
        return ()
    return tuple(rank for run in runs for rank in run)


def groups_in(document: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """Number of each group to its ranks, as the document beside the rows says it; what is none is left out."""
    return {
        int(number): ranks_in(fields.get("ranks"))
        for number, fields in table_of(document.get(GROUPS)).items()
        if number.isdecimal() and len(number) <= 10 and isinstance(fields, dict)
    }


def ask_rings(folder: Path) -> None:
    """Have all processes of this live folder hand over what is new in their rings. Raises OSError: it cannot be."""
    documents.replace_file(folder / layout.ASKED_FOR_RINGS, b"")


def find_asked(folder: Path) -> tuple[int, ...]:
    """What changes with each `ask_rings`; () while nobody has. *Cost*: one call."""
    return documents.state_of(folder / layout.ASKED_FOR_RINGS)
