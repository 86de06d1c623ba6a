"""What a program shows on a terminal."""

from __future__ import annotations

import os

# The cursor.
HIDDEN, SHOWN_AGAIN = "\x1b[?25l", "\x1b[?25h"


def up_to(ours: int, text: str) -> str:
    """What comes from a pty until it has said this, or is closed on its other side."""
    shown = b""
    try:
        while text.encode() not in shown:
            shown += os.read(ours, 65536)
    except OSError:
        pass
    return shown.decode("utf-8", "replace")


def all_of(ours: int) -> str:
    """All that comes from a pty until its other side is closed; it is closed then."""
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    return shown.decode("utf-8", "replace")
