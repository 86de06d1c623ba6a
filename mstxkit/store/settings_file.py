"""`control/settings.json`: what a job is judged by, changed while it runs, with a version that all acknowledge.

`verdicts/figures.json`: what the judge says back: the figures of the step that it judged last.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from ..errors import CaptureError, MstxkitError
from ..host import folders
from . import documents, layout, values
from .documents import Unusable, WrittenByNewer
from .values import finite_number, step_number, table_of, text_of

VALUES_AT_MOST, FIGURES_AT_MOST, NAME_AT_MOST = 256, 4096, 300
_WITHIN_S = 10.0


class LiveSettings(NamedTuple):
    """Settings of a version; version 0: nobody has changed any."""

    version: int = 0
    values: Mapping[str, float] = {}


class Figures(NamedTuple):
    """What who judges says to all hosts."""

    step: int | None = None  # that was judged last
    values: Mapping[str, float] = {}  # by their public names
    settings: int = 0  # the version by which it was judged
    written_ns: int = 0  # wall clock
    is_final: bool = False  # was all judged that there was, by who has left off since?
    asks: int = 0  # how often rings were asked for: once more than before, and each host asks its processes

    def as_json(self, run_id: str) -> bytes:
        """Its file."""
        return documents.encode_document(run_id, {**self._asdict(), "values": dict(self.values)})


def read_settings(run: Path, run_id: str) -> LiveSettings:
    """The settings of a run. Raises Unusable: the file is not what it should be."""
    fields = documents.read_document(run / layout.CONTROL / layout.SETTINGS, run_id, is_private=True)
    if fields is None:
        return LiveSettings()
    return LiveSettings(values.count_of(fields.get("version")), _read_numbers(fields.get("values"), VALUES_AT_MOST))


def change_settings(run: Path, run_id: str, changed: Mapping[str, float]) -> LiveSettings:
    """Change some, checked before; what is in force from now on. Raises MstxkitError: they cannot be written."""
    folder = run / layout.CONTROL
    try:
        folders.make_folder(folder)
        with documents.hold_lock(folder / f"{layout.SETTINGS}.lock", _WITHIN_S):
            try:
                before = read_settings(run, run_id)
            except WrittenByNewer:
                raise
            except Unusable:
                # Its version is not known: no acknowledgement of an older one may count for the new one.
                before = LiveSettings(int(time.time()) % (1 << 31))
            after = LiveSettings(before.version + 1, {**before.values, **changed})
            fields = {"written_ns": time.time_ns(), **after._asdict()}
            documents.replace_file(folder / layout.SETTINGS, documents.encode_document(run_id, fields))
            return after
    except (OSError, CaptureError) as exc:
        raise MstxkitError(f"settings cannot be left in {folder}: {exc}") from exc


def read_figures(file: Path, run_id: str) -> Figures | None:
    """The figures in a file; None where there is none, or it cannot be used."""
    fields = documents.find_document(file, run_id)
    return None if fields is None else figures_of(fields)


def _read_numbers(value: Any, at_most: int = FIGURES_AT_MOST) -> dict[str, float]:
    kept = list(table_of(value).items())[:at_most]
    numbers = ((text_of(name)[:NAME_AT_MOST], finite_number(number)) for name, number in kept)
    return {name: number for name, number in numbers if number is not None}


# Of their JSON.
figures_of = values.record_with(Figures, {
    step_number: "step", values.count_of: "settings asks", values.is_true: "is_final", _read_numbers: "values",
}, written_ns=lambda time_ns: time_ns if type(time_ns) is int else 0)  # fmt: skip
