"""A file for Prometheus' node exporter (`--collector.textfile.directory`): replaced as a whole, gone with the job."""

from __future__ import annotations

from pathlib import Path

from ..errors import MstxkitError
from ..host import folders
from ..store import documents, layout

EVERY_S = 5.0
# The node exporter may run as somebody else.
_MODE = 0o644


class Textfile:
    """One job's. `folder` is where the file is, "": in the run. It is never made: who names one has it."""

    def __init__(self, run: Path, run_id: str, folder: str = "") -> None:
        self._own = not folder
        name = layout.TEXTFILE if self._own else f"mstxkit-{run_id[:12]}.prom"
        self.path = (run / layout.METRICS if self._own else Path(folder)) / name
        self._state = tuple[int, ...]()

    def write(self, content: bytes) -> None:
        """Replace it. OSError, MstxkitError: it cannot be written."""
        if self._own:
            folders.make_folder(self.path.parent)
        elif not self.path.parent.is_dir():
            raise MstxkitError(f"{self.path.parent} is no folder")
        documents.replace_file(self.path, content)
        if not self._own:
            self.path.chmod(_MODE)
        self._state = documents.state_of(self.path)

    def remove(self) -> None:
        """The job is over: what it says would be taken for true as long as it is there. Another judge's stays."""
        documents.withdraw(self.path, self._state)
