"""What a process does at a signal, whatever language its handler is in: Python's `signal` knows of its own alone."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

# More than any libc's `struct sigaction` takes. Source: glibc 2.41, bits/sigaction.h (152 bytes); musl 1.2.5, the same.
_ROOM_BYTES = 256


class Action(NamedTuple):
    """What is done at one signal, as the C library has it: nobody else need understand it.

    Args:
        number: Of the signal.
        content: A `struct sigaction`; b"" where the C library does not tell.
    """

    number: int
    content: bytes

    @classmethod
    def of(cls, number: int) -> Action:
        """What is done at it now. *Cost*: a system call."""
        room = ctypes.create_string_buffer(_ROOM_BYTES)
        return cls(number, b"" if _sigaction(number, None, room) else room.raw)

    @property
    def handler(self) -> bytes:
        """The handler's address, which is what it begins with."""
        return self.content[: ctypes.sizeof(ctypes.c_void_p)]

    def put_back(self) -> None:
        """Do this at it again."""
        if self.content:
            _sigaction(self.number, self.content, None)


def _sigaction(number: int, new: object, old: object) -> int:
    """0 where it was done."""
    try:
        return int(ctypes.CDLL(None).sigaction(number, new, old))
    except (OSError, AttributeError, ctypes.ArgumentError):
        return -1
