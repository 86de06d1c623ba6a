"""The errors a user of mstxkit can catch: raised while configuring, starting or reading, never by a range."""

from __future__ import annotations


class MstxkitError(Exception):
    """Base of every error that mstxkit raises on purpose: its message says what is wrong, where, and what to do."""


class CaptureError(MstxkitError):
    """The recorder could not be started: the run folder or the live file cannot be used."""


class PatchError(MstxkitError):
    """A framework or a target that was asked for is unknown, or is declared wrongly."""


class ReadError(MstxkitError):
    """A path holds nothing that can be read as a run."""


class FormatError(MstxkitError):
    """A file, or a part of one, is damaged or was not written by mstxkit.

    Attributes:
        offset: Byte offset of the damage in its file, where known.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class NewerVersionError(FormatError):
    """A file was written by a newer mstxkit than this one."""


class StandInError(MstxkitError):
    """The stand-in CANN libraries could not be built, or a script under them could not be run."""
