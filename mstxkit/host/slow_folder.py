"""Does a folder answer? Asked where a process begins, which may not wait for as long as its file system hangs."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import threads

# What a process, or a command, waits for it as it begins.
BEGINS_WITHIN_S = 1.5


class SlowFolder:
    """A run folder that is asked whether it answers, in a thread that only that one holds up.
    `asked`: as it was given. `limits`: of the recorder that is to be.
    """

    late_children: set[int] = set()  # nobody who records could count them

    def __init__(self, asked: Any, limits: Any = None) -> None:
        self.run, self.limits, self.name, self._answer = Path(os.path.abspath(asked)), limits, None, threading.Event()
        with suppress(RuntimeError):
            if threads.replaced_by() is None:
                threading.Thread(target=self._ask, name="mstxkit-asks", daemon=True).start()
                return
        self._answer.set()  # without a thread nothing is recorded here, and the recorder says so

    def answers(self, within_s: float) -> bool:
        """Does it answer by then, if only by an error?"""
        return self._answer.wait(within_s)

    def abandon(self) -> None:
        """In a forked child: there is nothing to let go of."""

    def _ask(self) -> None:
        """By calls of the kernel alone: an import may be under way on the thread that waits. A frozen one reads on."""
        with suppress(OSError, ValueError):  # the recorder says so
            there = os.path.realpath(self.run)
            while not os.path.isdir(there) and os.path.dirname(there) != there:
                there = os.path.dirname(there)
            os.rmdir(tempfile.mkdtemp(prefix=".mstxkit-asks-", dir=there))
        self._answer.set()
