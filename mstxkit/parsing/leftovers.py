"""What a parse that was cut off left in a profile, removed so that the next one starts from the raw data alone.

msprof takes its own intermediate files for finished work and then fails for want of the rest ("Parsing Profile Data",
MindStudio Profiler user guide). The list is what torch_npu 2.13.0 (`_profiling_parser.py`) and mindspore 2.10.0
(`clean_analysis_cache`) remove themselves; raw data are in `FRAMEWORK`, `host/data` and `device_*/data`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Iterator

from .kinds import OUTPUT

_IN_DEVICE_DATA = ("analyze", "mindstudio_profiler_log", "mindstudio_profiler_output")
_FILES = re.compile(r"msprof_\d+\.db|msprof_analysis_\d+\.log")
_PARTS = re.compile(r"host|device_\d+")
_IN_PARTS = ("sqlite", "summary", "timeline", "data/all_file.complete")


def clear(raw: Path) -> None:
    """Remove what earlier parses of a raw folder left. Raises: OSError where something cannot be removed."""
    for path in (raw / OUTPUT, *_find_intermediate(raw)):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)


def _find_intermediate(raw: Path) -> Iterator[Path]:
    for name in os.listdir(raw):
        folder = raw / name
        if not name.startswith("PROF_") or folder.is_symlink() or not folder.is_dir():
            continue
        yield from (folder / inner for inner in _IN_DEVICE_DATA)
        for inner in os.listdir(folder):
            if _FILES.fullmatch(inner):
                yield folder / inner
            elif _PARTS.fullmatch(inner) and not (folder / inner).is_symlink():
                yield from (folder / inner / left for left in _IN_PARTS)
