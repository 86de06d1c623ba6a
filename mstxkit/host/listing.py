"""What lies in a package of plug-ins: registries list their folder, and each process reads it once."""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import Iterable


def modules_in(folders: Iterable[str]) -> list[str]:
    """Names of the modules in a package's folders, sorted; not those that begin with an underscore.

    The folder is read the first time only: the environment often lies on a file system that a whole cluster shares,
    and who is on duty asks several times a second.

    Args:
        folders: The package's `__path__`.
    """
    return list(_listed(tuple(folders)))


@cache
def _listed(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")))
