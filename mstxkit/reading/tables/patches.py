"""`Run.patches()` and `Run.trainer_settings()`: what `autopatch` did and saw in each process, by its own word."""

from __future__ import annotations

import os
from typing import Callable, Iterator, TypeVar

import polars as pl

from ...errors import FormatError
from ...store import layout, patch_record
from ..folder import Damage, Folder
from ..frames import PATCH_SCHEMA
from ..processes import Process, rank_of, role_of
from ..run_files import RunFiles

Record = TypeVar("Record")


def table(files: RunFiles) -> pl.DataFrame:
    """A row a process and target."""
    rows = [
        (process.index, rank_of(process), process.host, process.pid, role_of(process), *target)
        for process, targets in _read_records(files, patch_record.parse)
        for target in targets
    ]
    return pl.DataFrame(rows, schema=PATCH_SCHEMA, orient="row")


def trainer_settings(files: RunFiles) -> dict[str, list[str]]:
    """By name, the values that processes have."""
    values: dict[str, set[str]] = {}
    for _, settings in _read_records(files, patch_record.parse_settings):
        for name, value in settings.items():
            values.setdefault(name, set()).add(value)
    return {name: sorted(seen) for name, seen in values.items()}


def _read_records(files: RunFiles, parse: Callable[[bytes], Record]) -> Iterator[tuple[Process, Record]]:
    """What each process says that says anything, parsed."""
    folder = Folder(os.path.join(files.path, layout.PATCHES))
    by_file = {f"{process.name}{layout.PATCHES_SUFFIX}": process for process in files.processes}
    for name in (name for name in folder.names(layout.PATCHES_SUFFIX) if name in by_file):
        try:
            record = parse(folder.read(name, size=patch_record.LIMIT_BYTES))
        except (OSError, FormatError) as exc:
            Damage.because(folder.path_of(name), exc).note_in(files.damage)
            continue
        yield by_file[name], record
