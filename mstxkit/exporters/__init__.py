"""Exporters: a run as a file of another tool. One module a format, found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from ..errors import MstxkitError

if TYPE_CHECKING:
    from typing import IO

    from ..reader import Run


@dataclass(frozen=True)
class Exporter:
    """One format.

    Args:
        suffix: What its files end in, with the dot.
        write: Writes a run to a text file, piece by piece, and returns the number of events written.
    """

    suffix: str
    write: Callable[[Run, IO[str]], int]


def known() -> list[str]:
    """The names of all formats."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load(name: str) -> Exporter:
    """The exporter of a format.

    Raises:
        MstxkitError: there is no such format.
    """
    if name not in known():
        raise MstxkitError(f"no format {name!r} to export to; choose one of {', '.join(known())}")
    found = importlib.import_module(f"{__name__}.{name}").EXPORTER
    assert isinstance(found, Exporter)
    return found
