"""A run's folders, read so that nothing in them can make a reader hang, leave the run or run out of memory.

Symbolic links inside a run are never followed, FIFOs and devices never opened for long, sizes never taken on trust.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import Iterator, NamedTuple

from ..errors import FormatError
from ..store import documents, layout
from ..store.documents import Unusable
from ..store.values import text_of, whole_number

# Sealed files are rotated long before; what lies beyond is listed as damage.
LIMIT_BYTES = 1 << 30
RUN_FORMAT = 1
_RUN_LIMIT_BYTES = 1 << 20
_GONE = "gone since the run was opened (a quota, or who compacts, takes files): open it anew"


class Damage(NamedTuple):
    """A part of a run that could not be read, and why. `offset` and `size` in bytes."""

    path: str
    offset: int
    size: int
    reason: str

    @classmethod
    def of(cls, path: str, reason: str) -> Damage:
        """A whole file or folder."""
        return cls(text_of(path), 0, 0, text_of(reason))

    @classmethod
    def because(cls, path: str, exc: BaseException, offset: int = 0, size: int = 0) -> Damage:
        """A file that could not be read, or a part that was there when it was opened: all of it, where it is gone."""
        if offset and isinstance(exc, FileNotFoundError):
            return cls(path, 0, 0, _GONE)
        return cls(path, offset or getattr(exc, "offset", 0) or 0, size, reason_of(exc))

    def note_in(self, damage: list[Damage]) -> None:
        """Add it to a list, once."""
        if self not in damage:
            damage.append(self)


@contextmanager
def noting_unusable(damage: list[Damage]) -> Iterator[list[Unusable]]:
    """A list for files that are not what they should be; they are added to `damage` at the end, each once."""
    unusable: list[Unusable] = []
    yield unusable
    new, earlier = dict.fromkeys(Damage.of(file.path, file.reason) for file in unusable), set(damage)
    damage += [part for part in new if part not in earlier]


def reason_of(exc: BaseException) -> str:
    """Why something could not be read, in words without its path."""
    if isinstance(exc, MemoryError):
        return "needs more memory than there is"
    return getattr(exc, "strerror", None) or str(exc)


class Folder:
    """One folder of a run. `path` is opened anew for every access; a folder that is not there holds nothing."""

    def __init__(self, path: str) -> None:
        self.path = path

    def path_of(self, name: str) -> str:
        """Where a file of this folder is, for messages."""
        return os.path.join(self.path, name)

    def names(self, suffix: str = "") -> list[str]:
        """The names that end in `suffix`, sorted; a link to a folder elsewhere holds none."""
        return documents.names_in(self.path, suffix)

    @contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """A descriptor of a regular file. Raises FormatError: not a regular file; OSError: it cannot be opened."""
        with documents.close_after(documents.open_folder(self.path)) as folder:
            descriptor = documents.open_regular(name, folder)
        with documents.close_after(descriptor):
            yield descriptor

    def read(self, name: str, offset: int = 0, size: int = LIMIT_BYTES) -> bytes:
        """At most `size` bytes of a regular file, from `offset`.
        Raises FormatError: not a regular file; OSError: it cannot be opened or read.
        """
        with self.opened(name) as fd:
            return documents.read_part(fd, offset, size)


def explain_unlisted(path: str) -> list[Damage]:
    """That a folder is there and holds nothing for us: it is a link, say, or another user's."""
    try:
        os.close(documents.open_folder(path))
    except FileNotFoundError:
        pass
    except OSError as exc:
        return [Damage.of(path, f"cannot be opened as a folder: {reason_of(exc)}")]
    return []


def merge_damage(damage: list[Damage]) -> list[Damage]:
    """Neighbours in one file with one reason as one, so that a foreign file cannot fill the list."""
    merged: list[Damage] = []
    for part in damage:
        last = merged[-1] if merged else None
        if last and last.path == part.path and last.reason == part.reason and last.offset + last.size == part.offset:
            merged[-1] = last._replace(size=last.size + part.size)
        else:
            merged.append(part)
    return merged


def run_id(path: str, damage: list[Damage]) -> str:
    """The id of the run in this folder; "" where it cannot be read."""
    where = Folder(path)
    file = where.path_of(layout.RUN_FILE)
    try:
        fields = json.loads(where.read(layout.RUN_FILE, size=_RUN_LIMIT_BYTES))
        if not isinstance(fields, dict):
            raise FormatError("not a JSON object")
        if whole_number(fields.get("format")) > RUN_FORMAT:
            damage.append(Damage(file, 0, 0, "written by a newer mstxkit: upgrade this one"))
        return str(fields.get("run", ""))
    except (OSError, ValueError, RecursionError, FormatError) as exc:
        damage.append(Damage(file, 0, 0, f"the run's id cannot be read: {reason_of(exc)}"))
        return ""
