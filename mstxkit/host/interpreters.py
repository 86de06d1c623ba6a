"""Sub-interpreters: the recorder, its live file and the C engine belong to the main interpreter of a process."""

from __future__ import annotations

import importlib
from typing import Any

_ASKED = ("_interpreters", "_xxsubinterpreters")  # of CPython from 3.13 on; before


def is_main() -> bool:
    """Is this the main interpreter of its process? Where CPython cannot be asked there is no other."""
    for name in _ASKED:
        try:
            asked: Any = importlib.import_module(name)
        except ImportError:
            continue
        return bool(asked.get_current() == asked.get_main())
    return True
