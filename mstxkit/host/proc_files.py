"""Small files of the kernel's, read with a bound.

A program may put a file that never ends in the place of a descriptor that was just opened; to read all of that would
take all of its memory.
"""

from __future__ import annotations

import os

_LIMIT_BYTES = 1 << 20


def read_content(path: str, limit_bytes: int = _LIMIT_BYTES) -> bytes:
    """All of it, as far as the limit goes. Raises OSError: it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while limit_bytes > 0 and (part := os.read(descriptor, min(limit_bytes, 1 << 16))):
            parts.append(part)
            limit_bytes -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_text(path: str, limit_bytes: int = _LIMIT_BYTES) -> str:
    """The same; what is not UTF-8 is replaced. "" where it cannot be read."""
    try:
        return read_content(path, limit_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


def stat_of(folder: str) -> list[str]:
    """The fields of `stat` of a process or thread, from its state on, which proc(5) counts as the third; nothing of who
    is gone.
    """
    return read_text(f"{folder}/stat").rpartition(")")[2].split()
