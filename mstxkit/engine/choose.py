"""Which hot path this process runs on: the C extension where it loads, else the Python twin; `MSTXKIT_NATIVE` decides.

`1` requires the C extension, `0` forbids it, all else takes it where it loads. Everybody else imports `engine`,
the module, from here, so that a process has one engine only. A sub-interpreter has a Python twin of its own, which
never records: the C extension serves the main interpreter only.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING

from .. import faults
from ..host import names

if TYPE_CHECKING:
    from .native import hot as engine

__all__ = ["HOW_TO_GET_C", "VARIABLE", "engine", "load", "why_twin"]

VARIABLE = "MSTXKIT_NATIVE"
CHOICES, MEANING = ("", "0", "1"), "1 requires the C engine, 0 forbids it"
HOW_TO_GET_C = (
    "install a C compiler and this Python's headers (python3-dev), then pip install --force-reinstall mstxkit"
)


def load(choice: str) -> ModuleType:
    """The engine that `choice`, a value of `MSTXKIT_NATIVE`, asks for.

    Raises:
        MstxkitError: the C extension is required and cannot be loaded.
    """
    if choice not in CHOICES:  # a slip of the pen ends no training
        faults.say_once(f"{VARIABLE}={choice!r} (from the environment) is ignored: {MEANING}")
    if choice != "0":
        try:
            from .native import hot
        except ImportError as exc:
            from ..errors import MstxkitError  # modules less for each `import mstxkit`
            from ..host import interpreters

            if choice == "1" and interpreters.is_main():
                raise MstxkitError(
                    f"{VARIABLE}=1 (from the environment) requires the C engine, which cannot be loaded: {exc}. "
                    "Install mstxkit where a C compiler is found, or set it to 0 to run on the Python engine"
                ) from exc
        else:
            return hot
    from .twin import hot as twin

    return twin


def why_twin() -> str | None:
    """Why this process runs on the Python twin, and what to do; None where it runs on the C engine."""
    if engine.NATIVE:
        return None
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE}=0 (from the environment) forbids the C engine: unset it"
    try:
        from .native import hot  # noqa: F401
    except ImportError as exc:
        return f"the C engine cannot be loaded ({exc}): {HOW_TO_GET_C}"
    return f"the C engine can be loaded now, and could not at the start ({VARIABLE}): start the program again"


if not TYPE_CHECKING:
    engine = load(os.environ.get(VARIABLE, ""))
    engine.set_hooks(names.describe_site, names.utf8, faults.note_fault, None)
    faults.on_fault = engine.count_fault
