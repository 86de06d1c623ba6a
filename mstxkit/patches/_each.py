"""One declaration for several functions that are treated alike."""

from __future__ import annotations

from typing import Any

from ..patching.declare import Target


def each(where: str, *names: str, **fields: Any) -> tuple[Target, ...]:
    """A target for each of these functions.

    Args:
        where: `package.module` of the functions, or `package.module:Class` of the methods.
        names: What they are called there.
        fields: The other arguments of each `Target`.
    """
    separator = "." if ":" in where else ":"
    return tuple(Target(f"{where}{separator}{name}", **fields) for name in names)
