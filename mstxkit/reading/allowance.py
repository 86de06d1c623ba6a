"""How much of what blocks claim to hold is unpacked: a run cannot take more memory than its own size accounts for.

Checksums say that bytes are as they were written, not who wrote them: 34 KB of zeros, packed, claimed 8 GB.
"""

from __future__ import annotations

import os
import threading

from ..errors import FormatError
from .processes import BlockRef

VARIABLE = "MSTXKIT_READ_BEYOND_BYTES"
# The most regular ranges, with the same attributes each time, were packed to a fiftieth.
TIMES = 64
BEYOND_BYTES = 64 << 20


class Allowance:
    """Of one run: each block may claim 64 times its size, and all together so many bytes beyond that."""

    def __init__(self) -> None:
        text = os.environ.get(VARIABLE, "")
        self._left = int(text) if text.isdecimal() else BEYOND_BYTES
        self._granted: set[tuple[str, int]] = set()
        self._granting = threading.Lock()  # blocks are read on threads

    def most(self, ref: BlockRef) -> int:
        """What this block may hold, in bytes."""
        return TIMES * ref.size + self._left

    def grant(self, ref: BlockRef, claimed: int) -> None:
        """Let a block hold what it claims. Raises FormatError: it is more than the run accounts for."""
        beyond = claimed - TIMES * ref.size
        if beyond <= 0:
            return
        with self._granting:
            if (ref.file, ref.offset) in self._granted:
                return
            if beyond > self._left:
                raise FormatError(f"{ref.size} bytes that claim to hold {claimed}; {VARIABLE}={beyond} would let them")
            self._left -= beyond
            self._granted.add((ref.file, ref.offset))
