"""Where a sealed file is: on its host's own disk until it is in the run (`own_disk.py`), else in the run at once.

A file is in one of four states, and goes from one to the next by one rename or removal each: `<name>` here; `<name>`
claimed, as `<name>.moving`; claimed, and whole in the run; only in the run. Who looks in this order finds it, however
it moves meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

from ..errors import FormatError
from . import documents, layout

MOVING = ".moving"


def names_in(folder: Path) -> list[str]:
    """The sealed files in it, sorted, those that are being moved too. Raises OSError: it cannot be listed."""
    names = {name.removesuffix(MOVING) for name in os.listdir(folder)}
    return sorted(name for name in names if name.endswith(layout.SEALED_SUFFIX))


def all_names(folders: Sequence[Path], process: str = "") -> list[str]:
    """The sealed files in these folders, first those of hosts and last that of the run, sorted; of one process.

    One that cannot be listed, or is a link, holds none.
    """
    names = {name.removesuffix(MOVING) for folder in folders for name in documents.names_in(folder)}
    prefix = f"{process}." if process else ""
    return sorted(name for name in names if name.endswith(layout.SEALED_SUFFIX) and name.startswith(prefix))


def path_of(folders: Sequence[Path], name: str) -> Path:
    """Where a sealed file is now; in the last folder, the run's, where it is in none."""
    for folder in folders[:-1]:
        for path in (folder / name, folder / f"{name}{MOVING}"):
            if os.path.lexists(path):
                return path
    return folders[-1] / name


def opened(folders: Sequence[Path], name: str) -> int:
    """A descriptor of a sealed file, wherever it is.
    Raises FormatError: not a regular file; OSError: it is nowhere, or cannot be opened.
    """
    for folder in folders[:-1]:
        for path in (name, f"{name}{MOVING}"):
            try:
                return _opened_in(folder, path)
            except (FileNotFoundError, FormatError):
                continue
    return _opened_in(folders[-1], name)


def _opened_in(folder: Path, name: str) -> int:
    with documents.closing(documents.open_folder(folder)) as descriptor:
        return documents.open_regular(name, descriptor)
