"""Importers: what other tools recorded of a run's devices. One module a format, found by listing this folder."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

from ...host import listing

if TYPE_CHECKING:
    from ._trace import DeviceTrace

    Advance = Callable[[float], None]

# So much of a file's beginning is looked at to know it.
HEAD_BYTES = 1 << 16


class Importer(NamedTuple):
    """One format.

    Args:
        what: What it is called in messages and in the column `source`.
        recognises: Is this one, by its name and its first bytes?
        read: All of a file as one trace for each rank in it. It calls what it is handed with the bytes that it has
            read since. What is damaged is in `DeviceTrace.damage`; it raises `FormatError` or `OSError` where nothing
            is left.
        preference: Of files of one folder that tell the same, the one with the smallest is read; 0: it stands alone.
    """

    what: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path, Advance], list[DeviceTrace]]
    preference: int = 0


def list_formats() -> list[str]:
    """The names of all formats."""
    return listing.modules_in(__path__)


def recognise_file(path: Path, head: bytes) -> Importer | None:
    """The importer of a file, by its name and its first bytes; None where no format knows it."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in list_formats())
    return next((module.IMPORTER for module in modules if module.IMPORTER.recognises(path, head)), None)
