"""Which interpreter this is: the recorder, its live file and the C engine belong to the main one of a process, and at a
prompt an exception ends what was typed, and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_ASKED = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


def is_main() -> bool:
    """Is this the main interpreter of its process? Where CPython cannot be asked there is no other."""
    try:
        asked: Any = importlib.import_module(_ASKED)
    except (ImportError, OSError):  # there is none of that name, or no descriptor to look for it
        return True
    return bool(asked.get_current() == asked.get_main())


def is_at_prompt() -> bool:
    """Does somebody type what is run here: at Python's own prompt, IPython's, or in a notebook?

    Source: CPython 3.9 to 3.13, `Python/pythonrun.c` (sys.ps1 is there at a prompt); IPython 9.18.1,
        `IPython/core/interactiveshell.py` (`init_prompts`), which sets it as well.
    """
    return hasattr(sys, "ps1")
