"""Exporters: a run as a file of another tool. One module a format, found by listing this folder."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from ...errors import MstxkitError
from ...host import listing

if TYPE_CHECKING:
    from typing import IO

    from ..run import Run


@dataclass(frozen=True)
class Exporter:
    """One format: the ending of its files, and what writes a run to a text file and returns the number of events."""

    suffix: str
    write: Callable[[Run, IO[str]], int]


def formats() -> list[str]:
    """The names of all formats."""
    return listing.modules_in(__path__)


def load(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        MstxkitError: there is no such format.
    """
    if name not in formats():
        raise MstxkitError(f"no format {name!r} to export to; choose one of {', '.join(formats())}")
    exporter = importlib.import_module(f"{__name__}.{name}").EXPORTER
    assert isinstance(exporter, Exporter)
    return exporter
