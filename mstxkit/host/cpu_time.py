"""How long the main thread of this process has run, and has waited for a CPU that others had."""

from __future__ import annotations

from . import proc_files

_FILE, _MOST_BYTES = "/proc/self/schedstat", 128


def ran_and_waited_ns() -> tuple[int, int] | None:
    """Since it began; None where the kernel does not count it. *Cost*: a few microseconds, in the kernel's memory."""
    try:
        ran, waited, _ = proc_files.content(_FILE, _MOST_BYTES).split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None
