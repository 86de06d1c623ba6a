"""Appends a host's batches to its file in the run, through a descriptor that stays open; bounded, the oldest go first.

On a shared file system each call that names a file is answered by one server for all hosts: so there are none, but for
the first batch and where the file is put aside.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from .. import faults
from ..errors import CaptureError
from ..host import folders, identity
from ..recorder.kept_open import KeptOpen
from ..store import batches, layout

# Two files of this size at most: 100,000 steps of 8 ranks with 10 stages.
FILE_BYTES = 32 << 20
# What the run folder did not take is kept, and tried again.
WAITING_BYTES = 1 << 20
# Files are stamped to some milliseconds. Of a disk that stamps to whole seconds the clock is not known.
ALIKE_NS = 25_000_000
# The quickest of so many answers counts: the first may have to open the file.
_LOOKS = 2


class BatchLog:
    """The file of this host. `append` from one thread at a time; a forked child makes a new one.
    `run`: the run folder. `folder`: of the live files of this host. `file_bytes`: it is put aside once it is so large;
    what was put aside before is removed.
    `dropped`: batches that are in no file, because the run folder took none for too long. `ahead_ns`: by how much the
    clock that stamps its file is ahead of this host's, and its error; 0: they are alike.
    """

    def __init__(self, run: Path, folder: Path, file_bytes: int = FILE_BYTES) -> None:
        self._run, self._folder, self._file_bytes = run, folder, file_bytes
        self._path: Path | None = None
        self._file = KeptOpen()
        self._size_bytes = 0
        self._waiting: list[bytes] = []
        self.dropped, self.ahead_ns, self._said_ns = 0, (0, 0), 0

    def append(self, *frames: bytes) -> None:
        """Write batches at its end, after those that could not be written before. Raises OSError, CaptureError."""
        self._waiting.extend(frames)
        if not self._waiting:
            return
        try:
            self._append_block(b"".join(self._waiting))
            self._waiting.clear()
        finally:
            while len(self._waiting) > 1 and sum(map(len, self._waiting)) > WAITING_BYTES:
                del self._waiting[0]
                self.dropped += 1

    def _append_block(self, block: bytes) -> None:
        path = self._path or self._make_file()
        if self._size_bytes and self._size_bytes + len(block) > self._file_bytes:
            old = path.with_name(path.name[: -len(layout.SUMMARIES_SUFFIX)] + batches.OLD_SUFFIX)
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, old)
            self._file.close()
            self._size_bytes = 0
        try:
            self._size_bytes = self._file.append(path, block)
        except FileNotFoundError:
            self._path = None
            self._size_bytes = self._file.append(self._make_file(), block)

    def look_at_clock(self) -> bool:
        """Compare the clock of who stamps the file, a file server's say, with this host's own. Never raises. Was the
        answer too slow to tell anything? Then ask again soon: the error says so meanwhile.
        """
        try:
            path = self._path or self._make_file()
            half_ns, ahead_ns = min(self._read_answer(path) for _ in range(_LOOKS))
        except (OSError, CaptureError):
            return False
        off_ns = abs(ahead_ns - self.ahead_ns[0])
        if off_ns > half_ns + ALIKE_NS:
            self.ahead_ns = ahead_ns, half_ns + ALIKE_NS
            if abs(ahead_ns) > 2 * self._said_ns:  # a clock that nobody puts right drifts for weeks
                self._said_ns = abs(ahead_ns)
                off = f"{-ahead_ns / 1e9:+.3f} s off that of the run folder's disk: its times are put right by that"
                faults.say_once(f"the wall clock of {identity.name_host()} is {off}")
        else:
            self.ahead_ns = self.ahead_ns[0], off_ns + half_ns
        return half_ns > ALIKE_NS

    def _read_answer(self, path: Path) -> tuple[int, int]:
        """Half of what the answer took, which is the error of what it says: by how much its clock is ahead; ns."""
        before_ns, asked_ns = time.time_ns(), time.monotonic_ns()
        stamped_ns = self._file.stamped_ns(path)
        half_ns = (time.monotonic_ns() - asked_ns) // 2
        if not stamped_ns % 10**9:
            raise OSError("stamps files to whole seconds")
        return half_ns, stamped_ns - before_ns - half_ns

    def _make_file(self) -> Path:
        os.stat(self._run)  # what somebody has removed is not made anew here
        folders.make_folder(self._run / layout.SUMMARIES)
        name = layout.name_of_host(self._folder, layout.SUMMARIES_SUFFIX)
        self._path = self._run / layout.SUMMARIES / name
        return self._path

    def close(self) -> None:
        """Hold nothing any more. Never raises."""
        self._file.close()
