"""Runs a check in a forked child of the test's process."""

from __future__ import annotations

import os
from typing import Callable


def in_child(work: Callable[[], bool]) -> bool:
    """Does `work` give True in a forked child?"""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
