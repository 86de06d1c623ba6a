"""Whose ranges go into which file, where a tool wants one file for each rank, and takes a rank's newest file alone; and
the folder that torch_npu writes a profile into, with what an export for its tools has beside its files.

A rank of one role keeps its number. Where processes of several roles have the same rank (trainer 0 and rollout 0), one
role, the trainer's, keeps its numbers, and all ranks of the others get numbers above all ranks. What has no rank at all
goes into one file, of rank -1. Helpers of a rank (data loaders, pools) are in its file.

Source: msprof-analyze 26.2.0 (one slot for rank -1, the newest file of a rank wins), MindStudio Insight July 2026 (a
rank is hostUid, hostName and rankId).
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Iterable, NamedTuple

import polars as pl

from ...host import names, parts
from ...store.values import group_by, text_of
from . import _rl_names
from .csv import FORMULA

NO_RANK = -1
# What Insight's import rejects in a path. Source: msinsight 4e16fca1f.
_REJECTED = "\"'%><|&$;`"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
RANKS = "ranks.csv"
_TRAINER, _OTHER, _ROLLOUT = range(3)
COLUMNS = ("file_rank", "rank", "role", "label", "host", "pid", "ranges")


class RankFile(NamedTuple):
    """One file: of which rank it is for the tool, and what its processes say they are, None where they say nothing.
    `host`, `pid` and `start_ns` are of the first of them; `processes`: rows of the table of processes.
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
    saying = group_by((row for row in rows if row["role"] is not None), lambda row: row["rank"])
    roles = {rank: [row["role"] for row in same] for rank, same in saying.items() if rank is not None}

    def key(index: int) -> tuple[int | None, str | None]:
        row, rank = rows[index], rows[index]["rank"]
        if rank is None or row["role"] is not None:
            return rank, None if rank is None else str(row["role"])
        # One that says none is of its rank's first role, but is no rollout unless it is a helper.
        own = (of for of in roles.get(rank, []) if row["under"] in parts.BESIDE or _order_of(of)[0] < _ROLLOUT)
        return rank, min(own, key=_order_of, default=None)

    files = []
    members = group_by(range(len(rows)), key)
    for of_rank, number in _number_roles(list(members)).items():
        own = members[of_rank]
        start_ns = min(rows[index]["start_ns"] or 0 for index in own)
        files.append(RankFile(number, *of_rank, rows[own[0]]["host"], rows[own[0]]["pid"], tuple(own), start_ns))
    return sorted(files, key=lambda file: file.number)


def _order_of(role: str | None) -> tuple[int, str]:
    """Which role goes before which: a trainer, what is neither, and what generates for it."""
    words = (role or "").lower()
    if any(word in words for word in ("actor", "train")):
        return _TRAINER, words
    is_rollout = any(word in words for word in ("rollout", "generat", "infer", "vllm", "sglang"))
    return (_ROLLOUT if is_rollout else _OTHER), words


def _number_roles(keys: list[tuple[int | None, str | None]]) -> dict[tuple[int | None, str | None], int]:
    """A role keeps its numbers unless one of them is that of a role before it."""
    ranks: dict[str | None, list[int]] = {}
    for rank, role in keys:
        if rank is not None:
            ranks.setdefault(role, []).append(rank)
    above = max((rank for of_role in ranks.values() for rank in of_role), default=-1) + 1
    numbers: dict[tuple[int | None, str | None], int] = {(None, None): NO_RANK} if (None, None) in keys else {}
    for role in sorted(ranks, key=_order_of):
        is_free = {*ranks[role]}.isdisjoint(numbers.values())
        for rank in sorted(ranks[role]):
            numbers[rank, role] = rank if is_free else above
            above += not is_free
    return numbers


def clean_name(name: str) -> str:
    """A name as these tools take it: UTF-8 of bounded length, without NUL."""
    return names.utf8(text_of(name)).decode().replace("\0", "\\x00")


def profile_folder(folder: Path, file: RankFile) -> Path:
    """The folder of a profile's results, made, with what says whose they are."""
    raw = folder / file.folder
    (raw / OUTPUT).mkdir(parents=True, mode=0o750)
    (raw / f"profiler_info{number_of(file)}.json").write_text(json.dumps({"rank_id": file.number}))
    (raw / "profiler_metadata.json").write_text(json.dumps({"role": file.role, "distributed_backend": "hccl"}))
    return raw / OUTPUT


def how_to_import(target: Path) -> list[str]:
    """What to do with an export in MindStudio Insight, in lines; and why it will not take it from there."""
    path = os.path.abspath(target)
    wrong = [character for character in dict.fromkeys(path) if character in _REJECTED or not character.isprintable()]
    what = f"has {' '.join(map(ascii, wrong))} in it" if wrong else "goes over a link"
    lines = [f"MindStudio Insight: Import Data, {target}"]
    if wrong or os.path.realpath(path) != path:
        lines.append(f"MindStudio Insight takes nothing from {path}: the path {what}; export to another one with -o")
    return lines


def number_of(file: RankFile) -> str:
    """The number of a rank in names of files; a file of no rank has none."""
    return "" if file.number == NO_RANK else f"_{file.number}"


def write_beside(
    folder: Path, files: Iterable[RankFile], processes: pl.DataFrame, counts: dict[int, int], shown: dict[str, str]
) -> None:
    """Which process is in which file, and how many ranges that has; and the table for Insight's RL tab, of the stages
    that are `shown`.
    """
    places = [(index, file.number, counts.get(file.number, 0)) for file in files for index in file.processes]
    of_files = pl.DataFrame(places, schema=dict.fromkeys(("index", "file_rank", "ranges"), pl.Int64), orient="row")
    rows = processes[of_files["index"]].with_columns(of_files["file_rank"], of_files["ranges"]).select(COLUMNS)
    table = rows.with_columns(pl.col(pl.String).str.replace(FORMULA, "'${1}")).write_csv(line_terminator="\r\n")
    (folder / RANKS).write_bytes(table.encode())
    (folder / _rl_names.CONFIG).write_text(_rl_names.write_config(sorted(shown.items())), encoding="utf-8")
