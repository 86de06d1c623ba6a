"""What lies in a folder: in a package of plug-ins, read once a process; in one that is asked for again and again, read
where it has changed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Iterable

# In a folder that was changed within this, another file may come with the same time stamp.
_SETTLES_WITHIN_NS = 50_000_000
# What `modules_in` has found; not that a folder could not be read, as for want of descriptors.
_modules: dict[tuple[str, ...], list[str]] = {}


class ListedFolder:
    """The names in a folder of a file system of this host, listed again only where it has changed. Any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[tuple[int, ...], frozenset[str]] = (), frozenset()

    def names(self) -> frozenset[str]:
        """The names now; the same object as before where these are the same, as where a file was replaced. *Cost*: one
        system call where nothing was made, removed or renamed in it. Raises OSError: there is no such folder.
        """
        status = os.stat(self._folder)
        state = status.st_dev, status.st_ino, status.st_mtime_ns
        before, names = self._seen
        if not before or before != state:
            is_settled = abs(time.time_ns() - status.st_mtime_ns) > _SETTLES_WITHIN_NS
            listed = frozenset(os.listdir(self._folder))
            names = names if names == listed else listed
            self._seen = state if is_settled else (), names
        return names


def modules_in(folders: Iterable[str]) -> list[str]:
    """Names of the modules in a package's folders, sorted; not those that begin with an underscore.

    The folder is read the first time only: the environment often lies on a file system that a whole cluster shares, and
    who is on duty asks several times a second. `folders`: the package's `__path__`.
    """
    key = tuple(folders)
    if not _modules.get(key):
        try:
            files = [name for folder in key for name in os.listdir(folder)]
            names = {name.partition(".")[0] for name in files if name.endswith((".py", ".pyc"))}
        except OSError:  # within an archive, say
            import pkgutil

            names = {module.name for module in pkgutil.iter_modules(key)}
        _modules[key] = sorted(name for name in names if not name.startswith("_"))
    return list(_modules[key])
