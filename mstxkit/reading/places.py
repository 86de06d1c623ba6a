"""Sealed files of a run wherever they are: in the run, on this host's own disk, or between the two; what is still on
the disks of other hosts; and what was removed for a quota or for its age.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterable, Iterator

from ..store import care_record, documents, layout, sealed_place
from .folder import Folder
from .processes import Process

_RECORDS_AT_MOST = 1 << 62


class SealedFolder(Folder):
    """The run's folder of sealed files, and those of this run on this host's own disks: each file is in it once.
    `only`: these names, whether they are there or not: who opens one that is not finds out; None: all that are.
    """

    def __init__(self, run: str, run_id: str) -> None:
        super().__init__(os.path.join(run, layout.SEALED))
        self._folders = [*sealed_place.on_this_host(Path(run), run_id), Path(self.path)]
        self.only: frozenset[str] | None = None
        self.without: frozenset[str] = frozenset()

    def path_of(self, name: str) -> str:
        """Where a file is now, for messages."""
        return str(sealed_place.path_of(self._folders, name))

    def names(self, suffix: str = "") -> list[str]:
        """The names that end in `suffix`, sorted."""
        if self.only is not None:
            return sorted(self.only)
        # What is moved from here to there meanwhile is in one listing or in both.
        here = self._folders[:-1]
        return sorted({*(sealed_place.all_names(here) if here else []), *super().names(suffix)} - self.without)

    @contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """As of any folder, wherever the file is now."""
        with documents.close_after(sealed_place.open_sealed(self._folders, name)) as descriptor:
            yield descriptor


def add_removed(run: str, run_id: str, processes: Iterable[Process]) -> None:
    """Count what was removed by others than its process as evicted, as what its own quota has cost."""
    removed: dict[str, int] = {}
    for record in care_record.read_records(Path(run), run_id):
        for name, cost in record.removed.items():
            removed[name] = min(removed.get(name, 0) + cost.records, _RECORDS_AT_MOST)
    for process in (process for process in processes if process.name in removed):
        process.counters["evicted"] = process.counters.get("evicted", 0) + removed[process.name]


def list_places(run: str, run_id: str, known_processes: Iterable[str]) -> list[dict[str, Any]]:
    """What each host has on its own disk still, and what was removed of processes that are gone altogether.

    `host, folder, files, bytes, is_here, problem, as_of_ns, gone_files, gone_records`. Hosts with neither are left out.
    """
    alive = set(known_processes)
    made = []
    for record in care_record.read_records(Path(run), run_id):
        gone = [cost for name, cost in record.removed.items() if name not in alive]
        row = {
            "host": record.host, "folder": record.folder, "files": record.files, "bytes": record.bytes,
            "is_here": sealed_place.believe_record(record, run_id) is not None, "problem": record.problem,
            "as_of_ns": record.as_of_ns, "gone_files": sum(cost.files for cost in gone),
            "gone_records": sum(cost.records for cost in gone),
        }  # fmt: skip
        if record.files or gone:
            made.append(row)
    return sorted(made, key=lambda row: (row["host"], row["folder"]))
