"""A run, and a disk of this host, with sealed files on it or in the run, of processes that live or have ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mstxkit.host import identity
from mstxkit.store import care_record, layout, run_file, sealed_place, segment
from mstxkit.store.care_record import SealedCare
from mstxkit.store.sealed_care import take_care

HOST = identity.name_host()


def content(records: int, size: int) -> bytes:
    """A sealed file with one block of so many records."""
    block = segment.pack_block(segment.RECORDS, {"bank": 1, "records": records}, os.urandom(size))
    return segment.file_header() + block


class SealedPlace:
    """A run, and a disk of this host."""

    def __init__(self, folder: Path) -> None:
        self.run, self.run_id = run_file.open_run_folder(folder / "run")
        (folder / "disk").mkdir()
        self.live = folder / "live"
        self.live.mkdir()
        self.here = sealed_place.make_own_folder(folder / "disk", self.run_id)
        care_record.announce_place(self.run, self.run_id, self.here, str(sealed_place.token_of(self.here)))

    @property
    def sealed(self) -> Path:
        return self.run / layout.SEALED

    def process(self, pid: int, host: str = HOST) -> str:
        return f"{host}-{pid}-a"

    def announce(self, process: str) -> None:
        """As a process that lives, or whose rest is still to be sealed."""
        (self.run / layout.LIVE / f"{process}.json").write_text("{}")

    def end(self, process: str) -> None:
        (self.run / layout.LIVE / f"{process}.json").unlink(missing_ok=True)

    def write(
        self, process: str, number: int, *, local: bool = True, size: int = 1000, records: int = 10, at_s: float = 1e9
    ) -> Path:
        """One sealed file, last written to at that time."""
        path = (self.here if local else self.sealed) / layout.sealed_name(process, number)
        path.write_bytes(content(records, size))
        os.utime(path, (at_s, at_s))
        return path

    def care(self, **changes: Any) -> SealedCare:
        return SealedCare(self.run, self.run_id, self.live, self.here, mb_s=1e9, every_s=0)._replace(**changes)

    def take_care(self, **changes: Any) -> tuple[list[str], str]:
        """What was moved, and why the rest was not."""
        done = take_care(self.care(**changes))
        assert done is not None
        return done.names, done.problem

    def names(self) -> tuple[list[str], list[str]]:
        """What is on the host's own disk, and what is in the run, drafts and claims too."""
        return tuple(  # type: ignore[return-value]
            sorted(name for name in os.listdir(folder) if ".mxs" in name) for folder in (self.here, self.sealed)
        )

    def records(self) -> dict[str, care_record.CareRecord]:
        """By the names of their files."""
        folder = self.run / layout.CARE
        names = [name for name in os.listdir(folder) if name.endswith(layout.CARE_SUFFIX)]
        return {name: care_record.read_file(folder / name, self.run_id) for name in names}  # type: ignore[misc]

    def removed(self) -> dict[str, care_record.Cost]:
        """By process, by whomever."""
        together: dict[str, care_record.Cost] = {}
        for record in self.records().values():
            for process, cost in record.removed.items():
                together[process] = together.get(process, care_record.Cost()) + cost
        return together
