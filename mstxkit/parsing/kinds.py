"""The kinds of raw profile that need parsing, what parses them, and what must be there when that went well.

Source: torch_npu 2.13.0 `profiler/analysis/` (`_profiling_parser.py`, `prof_db_parse/_db_parser.py`), mindspore 2.10.0
`profiler/profiler.py` (`analyse`) and `profiler/common/profiler_path_manager.py`. Both print their errors and return;
torch_npu writes `analyse.done` also after an error. So what is on disk decides, not what a parser says.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ..store import documents

OUTPUT = "ASCEND_PROFILER_OUTPUT"
TEXT, DB = "text", "db"
_INFO = re.compile(r"profiler_info(_\d{1,9})?\.json")
_RAW_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d{1,9})_\d{17}_ascend_(pt|ms)")
_DEVICE = re.compile(r"PROF_\d+_\d+_[0-9A-Za-z]+")


class Kind(NamedTuple):
    """One kind of raw profile."""

    name: str  # of the framework, as its backend is called
    suffix: str  # of its folders
    module: str  # where its `analyse` is
    database: re.Pattern[str]  # names that its database has
    marker: str  # a file of the output that says that a parse came to its end, well or not; "" where there is none
    picks_export: bool  # has `analyse` an option for what to write?


_TORCH_DB = re.compile(r"ascend_pytorch_profiler(_\d{1,16})?\.db")
_MINDSPORE_DB = re.compile(r"ascend_mindspore_profiler(_\d{1,16})?\.db")
KINDS = {
    "torch_npu": Kind("torch_npu", "_ascend_pt", "torch_npu.profiler.profiler", _TORCH_DB, "analyse.done", True),
    "mindspore": Kind("mindspore", "_ascend_ms", "mindspore.profiler.profiler", _MINDSPORE_DB, "", False),
}


def kind_of(folder_name: str) -> Kind | None:
    """The kind of raw profile that a folder of this name is; None if it is none."""
    return next((kind for kind in KINDS.values() if folder_name.endswith(kind.suffix)), None)


def recorder_of(folder_name: str) -> dict[str, Any]:
    """Host and pid of the process that recorded, as the folder's name says; empty where a user chose the name."""
    match = _RAW_NAME.fullmatch(folder_name)
    return {"host": re.sub(r"[^0-9A-Za-z_.]", "_", match["host"])[:64], "pid": int(match["pid"])} if match else {}


def info_of(raw: Path) -> dict[str, Any] | None:
    """`profiler_info*.json`, which both frameworks write when a recording ends; None while there is none."""
    for name in documents.names_in(raw):  # none where it cannot be read, which the parser then says better
        if _INFO.fullmatch(name):
            return documents.read_json(raw / name) or {}
    return None


def has_device_data(raw: Path) -> bool:
    """Did CANN record? What it wrote is read by msprof alone."""
    return any(_DEVICE.match(name) for name in documents.names_in(raw))


def exports_of(kind: Kind, raw: Path) -> tuple[str, ...]:
    """What a parse writes, as it was configured when the profile was recorded: text, db or both."""
    wanted: Any = info_of(raw) or {}
    keys = ("config", "experimental_config", "_export_type")
    for key in keys if kind.name == "torch_npu" else ("profiler_parameters", "export_type"):
        wanted = wanted.get(key) if isinstance(wanted, dict) else None
    listed = [wanted] if isinstance(wanted, str) else wanted
    chosen = tuple(export for export in (TEXT, DB) if isinstance(listed, list) and export in listed)
    return chosen or (TEXT,)
