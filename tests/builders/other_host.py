"""A process that is on another host, as far as mstxkit asks it: a kernel, a name and a wall clock of its own."""

from __future__ import annotations

import time

from mstxkit.host import identity


def move_to(host: str, off_s: float) -> None:
    """Be there from now on.

    Args:
        off_s: By how much its wall clock is wrong.
    """
    wall_ns = time.time_ns
    identity.name_host, identity.boot_id = lambda: host, lambda: f"boot of {host}"
    time.time_ns = lambda: wall_ns() + int(off_s * 1e9)
