"""What is on, as bits, and which process this is. While nothing is on a range does nothing at all."""

from __future__ import annotations

RECORD, TOOLS, WATCH, AWAITED = 1, 2, 4, 8

on = 0
# Another one in a forked child: what was begun before is the parent's.
process = object()


def switch(bit: int, is_on: object) -> None:
    """Switch one of them on or off."""
    global on
    on = on | bit if is_on else on & ~bit


def after_fork() -> None:
    """All is off in a forked child, until it is switched on there."""
    global on, process
    on, process = 0, object()
