"""Exporters: a run as a file of another tool. One module a format, found by listing this folder."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable, Mapping

from ...errors import MstxkitError
from ...host import listing

# Of what is written: as the run, for this user, and to be read by its group.
_MASK = 0o027

if TYPE_CHECKING:
    from pathlib import Path

    from ..run import Run


TEXT, BYTES, FOLDER = "text", "bytes", "folder"


@dataclass(frozen=True)
class Exporter:
    """One format: how its files or folders are called, and what writes them.

    Args:
        suffix: Ending of the name of its file, or of its folder.
        write: Writes a run and returns the number of events. Its second argument is by `form` a text file, a file of
            bytes, or the path of an empty folder; then come the `options` that were given, by name.
        form: TEXT, BYTES or FOLDER.
        readings: So many times the run is read, for who shows how far it has come.
        options: What may be given, and what it means. A value is a text.
        advice: What to do with the output that it is given, in lines; none for most.
    """

    suffix: str
    write: Callable[..., int]
    form: str = TEXT
    readings: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    advice: Callable[[Path], list[str]] = lambda target: []

    def write_to(self, run: Run, target: Path, **options: str) -> int:
        """Write a run to a file, or into an empty folder that is there; the number of events. Others may read no more
        of it than of the run. Raises OSError: it cannot be written.
        """
        before = os.umask(_MASK)
        try:
            if self.form == FOLDER:
                return self.write(run, target, **options)
            is_text = self.form == TEXT
            with open(target, "w" if is_text else "wb", encoding="utf-8" if is_text else None) as file:
                return self.write(run, file, **options)
        finally:
            os.umask(before)


def list_formats() -> list[str]:
    """The names of all formats."""
    return [module.replace("_", "-") for module in listing.modules_in(__path__)]


def load_exporter(name: str) -> Exporter:
    """The exporter of a format. Raises MstxkitError: there is no such format."""
    if name not in list_formats():
        raise MstxkitError(f"no format {name!r} to export to; choose one of {', '.join(list_formats())}")
    exporter = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").EXPORTER
    assert isinstance(exporter, Exporter)
    return exporter
