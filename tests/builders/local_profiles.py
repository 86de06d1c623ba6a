"""A run, and a disk of this host, with sessions that have recorded onto it or into the run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mstxkit.store import fetching, local_place, run_file
from mstxkit.store.fetching import fetch_all
from mstxkit.store.session_file import Order, SessionFile, SessionOutcome, SessionStart

REQUEST = "ab" * 8


class Place:
    """A run, and a disk of this host."""

    def __init__(self, folder: Path) -> None:
        self.run, self.run_id = run_file.open_run_folder(folder / "run")
        self.disk = folder / "disk"
        self.disk.mkdir()

    @property
    def root(self) -> Path:
        return local_place.root_of(self.disk, self.run_id)

    def record(self, rank: int = 0, *, local: bool = True, size: int = 1000, **changes: Any) -> SessionFile:
        """A session that has ended, with two files of data."""
        nothing: dict[str, Any] = {}
        order = Order(
            self.run, self.run_id, rank, 8, "actor", "actor_update", 7, "full", REQUEST,
            local=self.disk if local else None,
        )._replace(**{key: changes[key] for key in changes if key in Order._fields})  # fmt: skip
        start = SessionStart(order, "full", nothing, (), True, "torch_npu", "2.13.0", "0.1.0", nothing)
        file = SessionFile(self.run, start)
        raw = file.data / f"node_{rank}_{changes.get('number', 1)}_ascend_pt"
        (raw / "PROF_1").mkdir(parents=True)
        (raw / "profiler_info.json").write_text("{}")
        (raw / "PROF_1" / "data").write_bytes(os.urandom(size))
        if not changes.get("is_open"):
            end_ns = changes.get("end_ns", 2)
            outcome = SessionOutcome(raw, (7,), 1, end_ns, size, (), changes.get("is_whole", True))
            assert file.end(outcome, "the stage ended") is None
        return file

    def fetch(self) -> list[fetching.Fetched]:
        return list(fetch_all(self.run, self.run_id, self.root, 0.0))

    def told(self, file: SessionFile) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((file.folder / "session.json").read_text())
        return told

    def data(self, file: SessionFile) -> Path:
        return file.folder / str(self.told(file)["output"])
