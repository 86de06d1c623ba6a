"""The folder that torch_npu writes a profile into, and what an export for its tools has beside its files."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any

from . import _rank_files, _rl_names
from ._rank_files import RankFile
from ._rank_rows import RankRowReader
from .csv import FORMULA

# What Insight's import rejects in a path. Source: msinsight 4e16fca1f.
_REJECTED = "\"'%><|&$;`"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
RANKS = "ranks.csv"


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


def most_ranges(folder: Path) -> int:
    """How many ranges the largest file of an export has; 0 where none is said."""
    try:
        with open(folder / RANKS, encoding="utf-8", newline="") as file:
            return max((int(row["ranges"]) for row in csv.DictReader(file)), default=0)
    except FileNotFoundError:
        return 0


def number_of(file: RankFile) -> str:
    """The number of a rank in names of files; a file of no rank has none."""
    return "" if file.number == _rank_files.NO_RANK else f"_{file.number}"


def _harmless(value: Any) -> Any:
    return re.sub(FORMULA, r"'\1", value) if isinstance(value, str) else value


def write_beside(folder: Path, rows: list[dict[str, Any]], reader: RankRowReader) -> None:
    """Which file is whose, and the table for Insight's RL tab."""
    with open(folder / RANKS, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        table = csv.DictWriter(file, _rank_files.COLUMNS)
        table.writeheader()
        table.writerows({name: _harmless(row[name]) for name in _rank_files.COLUMNS} for row in rows)
    (folder / _rl_names.CONFIG).write_text(_rl_names.config(sorted(reader.shown.items())), encoding="utf-8")
