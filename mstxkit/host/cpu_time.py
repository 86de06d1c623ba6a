"""How long the main thread of this process has run, and has waited for a CPU that others had."""

from __future__ import annotations

from pathlib import Path

_FILE = Path("/proc/self/schedstat")


def ran_and_waited_ns() -> tuple[int, int] | None:
    """Since it began; None where the kernel does not count it. *Cost*: one read of a file of the kernel's."""
    try:
        ran, waited, _ = _FILE.read_text("ascii").split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None
