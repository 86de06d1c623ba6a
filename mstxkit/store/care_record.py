"""`care/<host>-<key>.json`: what is still on the own disk of a host, and what was removed there or in the run, by the
one process that looks after sealed files (`sealed_care.py`). `care/run.json`: what was removed for the whole run.

A removal is written down before it is made, with what it costs: whoever finds it undone does it, and counts it once.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from ..host import folders, identity
from . import documents, layout, values
from .values import list_of, text_of, whole_number

# Of the run as a whole: no host's name is followed by nothing.
RUN = "run"
_PROCESSES_AT_MOST = 4096
_OTHERS = "others"  # of more processes than that
_DAY_NS = 86400 * 10**9


class Cost(NamedTuple):
    """What removals of a process's sealed files have cost."""

    files: int = 0
    bytes: int = 0
    records: int = 0

    def __add__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(self.files + other.files, self.bytes + other.bytes, self.records + other.records)


class CareRecord(NamedTuple):
    """What a record says."""

    host: str  # whose it is; "" of the run as a whole
    # folder, token: on its own disk, where sealed files are until they are moved; "" where it has none
    folder: str = ""
    token: str = ""
    # files, bytes: so much is there
    files: int = 0
    bytes: int = 0
    problem: str = ""  # why it stays there, where something keeps it
    as_of_ns: int = 0  # its host's wall clock, when that was so
    removed: dict[str, Cost] = {}  # by process
    removing: dict[str, Cost] = {}  # by the name of each file that is just being removed


class SealedCare(NamedTuple):
    """What is to be done with the sealed files of a run on this host."""

    run: Path
    run_id: str
    live: Path  # where the live files of this host are
    # Where sealed files are written on this host's own disk; None: they are written into the run.
    place: Path | None = None
    mb_s: float = 20.0  # so many megabytes a second go from there into the run; 0: they stay
    quota_bytes: int = 0  # of each process, here and in the run together
    # host_bytes, run_bytes: of all processes of this host, here and in the run; of all in the run. 0: no limit
    host_bytes: int = 0
    run_bytes: int = 0
    keep_days: float = 0.0  # what was last written to so long ago is removed; 0: nothing is
    every_s: float = 120.0  # how often this is done

    @property
    def folders(self) -> list[Path]:
        """Where sealed files of this host are."""
        return [*([] if self.place is None else [self.place]), self.run / layout.SEALED]

    def before_ns(self) -> int:
        """What is older than that is removed; 0: nothing is. By who stamps the run's files: this host may be ahead."""
        if self.keep_days <= 0:
            return 0
        folder = self.run / layout.SEALED
        os.utime(folder, follow_symlinks=False)
        now_ns = min(time.time_ns(), os.lstat(folder).st_mtime_ns)
        return int(now_ns - self.keep_days * _DAY_NS)


def name_of(host: str, key: str) -> str:
    """The name of the record of a host."""
    return f"{host}-{key}{layout.CARE_SUFFIX}"


def announce_place(run: Path, run_id: str, folder: Path, token: str) -> None:
    """Say, before anything is there, where this host keeps sealed files. Nothing where that was said before.
    Raises OSError, CaptureError: it cannot be written.
    """
    file = run / layout.CARE / name_of(identity.name_host(), token)
    if not os.path.lexists(file):
        folders.make_folder(file.parent)
        record = CareRecord(identity.name_host(), str(folder), token, as_of_ns=time.time_ns())
        documents.write_new(file, _as_json(record, run_id))


def write_record(file: Path, run_id: str, record: CareRecord) -> None:
    """Replace a record in the run. Raises OSError, CaptureError: it cannot be written."""
    folders.make_folder(file.parent)
    write_file(file, run_id, record)


def write_file(file: Path, run_id: str, record: CareRecord) -> None:
    """Replace a record, wherever it is kept. Raises OSError: it cannot be written."""
    documents.replace_file(file, _as_json(record, run_id))


def read_file(file: Path, run_id: str) -> CareRecord | None:
    """One record, wherever it is kept; None where there is none that can be read."""
    fields = documents.find_document(file, run_id)
    return None if fields is None else _read_record(fields)


def read_records(run: Path, run_id: str, host: str = "") -> Iterator[CareRecord]:
    """All records of a run, or of one host, that can be read."""
    for name in documents.names_in(run / layout.CARE, layout.CARE_SUFFIX):
        is_asked_for = not name.startswith(".") and name.startswith(f"{host}-" if host else "")
        if is_asked_for and (record := read_file(run / layout.CARE / name, run_id)):
            yield record


def add_removals(removed: dict[str, Cost], more: dict[str, Cost]) -> dict[str, Cost]:
    """Removals by process, with those of files by name added to them. Bounded: of too many processes as one."""
    together = dict(removed)
    for name, cost in more.items():
        process = layout.sealed_process(name)
        key = process if process in together or len(together) < _PROCESSES_AT_MOST else _OTHERS
        together[key] = together.get(key, Cost()) + cost
    return together


def _as_json(record: CareRecord, run_id: str) -> bytes:
    fields = {**record._asdict(), "format": documents.FORMAT, "run": run_id}
    return json.dumps(fields).encode("utf-8", "backslashreplace")


def _read_cost(value: Any) -> Cost:
    """Three whole numbers, whatever stands there."""
    numbers = [whole_number(number) for number in list_of(value)[:3]]
    return Cost(*numbers) if len(numbers) == len(Cost._fields) else Cost()


_read_record = values.record_with(CareRecord, {
    text_of: "host folder token problem", whole_number: "files bytes as_of_ns",
    values.table_with(_read_cost): "removed removing",
})  # fmt: skip
