"""Whose ranges go into which file, where a tool wants one file for each rank, and takes a rank's newest file alone.

A rank of one role keeps its number. Where processes of several roles have the same rank (trainer 0 and rollout 0), the
others get numbers above all ranks. What has no rank at all goes into one file, of rank -1. Helpers of a rank (data
loaders, pools) are in its file.

Source: msprof-analyze 26.2.0 (one slot for rank -1, the newest file of a rank wins), MindStudio Insight July 2026 (a
rank is hostUid, hostName and rankId).
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple

from ...host import names
from ...store.values import text_of

if TYPE_CHECKING:
    import polars as pl

NO_RANK = -1
COLUMNS = ("file_rank", "rank", "role", "label", "host", "pid", "ranges")


class RankFile(NamedTuple):
    """One file.

    Args:
        number: The rank that it is of, for the tool.
        rank, role: What its processes say they are; None where they say nothing.
        host, pid: Of the first of them.
        processes: Rows of the table of processes.
        start_ns: When the first of them began.
    """

    number: int
    rank: int | None
    role: str | None
    host: str
    pid: int
    processes: tuple[int, ...]
    start_ns: int

    @property
    def stamp(self) -> str:
        """Its start in 17 digits, local time, as the tools write it."""
        moment = datetime.fromtimestamp(min(max(self.start_ns, 0), 1 << 62) / 1e9)
        return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"

    @property
    def host_uid(self) -> str:
        """A number for the host, as a text."""
        return str(zlib.crc32(self.host.encode()))

    @property
    def host_name(self) -> str:
        """The host, and the role: two ranks of one number on one host stay apart."""
        return f"{self.host}-{self.role}" if self.role else self.host

    @property
    def folder(self) -> str:
        """What torch_npu would call the folder of its profile."""
        host = "".join(char if char.isalnum() and char.isascii() or char in "-." else "-" for char in self.host)
        return f"{host or 'host'}_{self.pid}_{self.stamp}_ascend_pt"


def of_run(processes: pl.DataFrame) -> list[RankFile]:
    """The files, by number."""
    members: dict[tuple[int | None, str | None], list[int]] = {}
    rows = processes.to_dicts()
    first_role: dict[int, str | None] = {}
    for index, row in enumerate(rows):
        rank, role = row["rank"], row["role"]
        if rank is None:
            role = None
        elif role is None:
            role = first_role.get(rank)
        if rank is not None:
            first_role.setdefault(rank, role)
        members.setdefault((rank, role), []).append(index)
    numbers = _numbers(list(members), first_role)
    files = [_file(number, key, members[key], rows) for key, number in numbers.items()]
    return sorted(files, key=lambda file: file.number)


def _numbers(
    keys: list[tuple[int | None, str | None]], first_role: dict[int, str | None]
) -> dict[tuple[int | None, str | None], int]:
    numbers: dict[tuple[int | None, str | None], int] = {}
    above = max((rank for rank, _ in keys if rank is not None), default=-1) + 1
    for rank, role in sorted(keys, key=lambda key: (key[1] or "", -1 if key[0] is None else key[0])):
        if rank is None:
            numbers[rank, role] = NO_RANK
        elif first_role[rank] == role:
            numbers[rank, role] = rank
        else:
            numbers[rank, role] = above
            above += 1
    return numbers


def _file(number: int, key: tuple[int | None, str | None], members: list[int], rows: list[dict[str, Any]]) -> RankFile:
    first = rows[members[0]]
    start_ns = min((rows[index]["start_ns"] or 0 for index in members), default=0)
    return RankFile(number, *key, first["host"], first["pid"], tuple(members), start_ns)


def as_rows(files: Iterable[RankFile], processes: pl.DataFrame, counts: dict[int, int]) -> list[dict[str, Any]]:
    """A row a process: which file it is in, and how many ranges that has."""
    rows = processes.to_dicts()
    return [
        {
            "file_rank": file.number, "rank": rows[index]["rank"], "role": rows[index]["role"],
            "label": rows[index]["label"], "host": rows[index]["host"], "pid": rows[index]["pid"],
            "ranges": counts.get(file.number, 0),
        }
        for file in files
        for index in file.processes
    ]  # fmt: skip


def clean(name: str) -> str:
    """A name as these tools take it: UTF-8 of bounded length, without NUL."""
    return names.utf8(text_of(name)).decode().replace("\0", "\\x00")
