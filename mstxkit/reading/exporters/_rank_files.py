"""Whose ranges go into which file, where a tool wants one file for each rank, and takes a rank's newest file alone.

A rank of one role keeps its number. Where processes of several roles have the same rank (trainer 0 and rollout 0), one
role, the trainer's, keeps its numbers, and all ranks of the others get numbers above all ranks. What has no rank at all
goes into one file, of rank -1. Helpers of a rank (data loaders, pools) are in its file.

Source: msprof-analyze 26.2.0 (one slot for rank -1, the newest file of a rank wins), MindStudio Insight July 2026 (a
rank is hostUid, hostName and rankId).
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Any, Iterable, NamedTuple

import polars as pl

from ...host import names, parts
from ...store.values import text_of

NO_RANK = -1
_TRAINER, _OTHER, _ROLLOUT = range(3)
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
    rows = processes.to_dicts()
    roles: dict[int, list[str]] = {}
    for row in rows:
        if row["rank"] is not None and row["role"] is not None:
            roles.setdefault(row["rank"], []).append(row["role"])
    members: dict[tuple[int | None, str | None], list[int]] = {}
    for index, row in enumerate(rows):
        rank = row["rank"]
        members.setdefault((rank, None if rank is None else _role_in(row, roles.get(rank, []))), []).append(index)
    files = [_file(number, key, members[key], rows) for key, number in _numbers(list(members)).items()]
    return sorted(files, key=lambda file: file.number)


def _role_in(row: dict[str, Any], roles: list[str]) -> str | None:
    """The role of a process; one that says none is of its rank's first, but is no rollout unless it is a helper."""
    if row["role"] is not None:
        return str(row["role"])
    is_helper = row["under"] in parts.BESIDE
    return min((role for role in roles if is_helper or _order(role)[0] < _ROLLOUT), key=_order, default=None)


def _order(role: str | None) -> tuple[int, str]:
    """Which role goes before which: a trainer, what is neither, and what generates for it."""
    words = (role or "").lower()
    if any(word in words for word in ("actor", "train")):
        return _TRAINER, words
    is_rollout = any(word in words for word in ("rollout", "generat", "infer", "vllm", "sglang"))
    return (_ROLLOUT if is_rollout else _OTHER), words


def _numbers(keys: list[tuple[int | None, str | None]]) -> dict[tuple[int | None, str | None], int]:
    """A role keeps its numbers unless one of them is that of a role before it."""
    ranks: dict[str | None, list[int]] = {}
    for rank, role in keys:
        if rank is not None:
            ranks.setdefault(role, []).append(rank)
    above = max((rank for of_role in ranks.values() for rank in of_role), default=-1) + 1
    numbers: dict[tuple[int | None, str | None], int] = {(None, None): NO_RANK} if (None, None) in keys else {}
    for role in sorted(ranks, key=_order):
        is_free = {*ranks[role]}.isdisjoint(numbers.values())
        for rank in sorted(ranks[role]):
            numbers[rank, role] = rank if is_free else above
            above += not is_free
    return numbers


def _file(number: int, key: tuple[int | None, str | None], members: list[int], rows: list[dict[str, Any]]) -> RankFile:
    first = rows[members[0]]
    start_ns = min((rows[index]["start_ns"] or 0 for index in members), default=0)
    return RankFile(number, *key, first["host"], first["pid"], tuple(members), start_ns)


def as_rows(files: Iterable[RankFile], processes: pl.DataFrame, counts: dict[int, int]) -> list[dict[str, Any]]:
    """A row a process: its own, which file it is in, and how many ranges that has."""
    rows = processes.to_dicts()
    return [
        {**rows[index], "file_rank": file.number, "ranges": counts.get(file.number, 0)}
        for file in files
        for index in file.processes
    ]


def clean(name: str) -> str:
    """A name as these tools take it: UTF-8 of bounded length, without NUL."""
    return names.utf8(text_of(name)).decode().replace("\0", "\\x00")
