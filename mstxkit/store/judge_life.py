"""One life of a judge: its own file of verdicts, and whether a later life has begun (`judge_files.py`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable

from ..host import folders
from . import documents, judge_files, layout, verdicts
from .judge_files import LifeName

_TRIES = 100


class JudgeLife:
    """From now on the lives of this judge before it say nothing more that counts.

    Args:
        run: The run folder.
        who: The judge's name.

    Raises:
        OSError, CaptureError: its file cannot be made.
    """

    def __init__(self, run: Path, who: str) -> None:
        self._folder, self._who = run / layout.VERDICTS, who
        folders.make_folder(self._folder)
        for _ in range(_TRIES):
            if self._has_begun():
                return
        raise FileExistsError(f"{self._folder}: other lives of {who} begin all the time")

    def _has_begun(self) -> bool:
        """Make its file, unless another one has made it meanwhile."""
        before = self._list_lives()
        sizes = {name: os.stat(self._folder / name, follow_symlinks=False).st_size for name in before}
        self._fence, self._life = judge_files.fence(sizes), max(before.values(), default=0) + 1
        self._file = self._folder / LifeName(self._who, self._life).file
        try:
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, documents.FILE_MODE))
        except FileExistsError:
            return False
        try:
            verdicts.append(self._file, (), self._fence)
        except OSError:  # a full disk: no file without its first line is left at each try
            self._file.unlink(missing_ok=True)
            raise
        return True

    def _list_lives(self) -> dict[str, int]:
        """The files of this judge, to which life each is of."""
        names = documents.names_in(self._folder, layout.VERDICTS_SUFFIX)
        lives = {name: judge_files.life_of(name) for name in names}
        return {name: life.life for name, life in lives.items() if life.who == self._who}

    def is_over(self) -> bool:
        """Has a later life begun? Then nothing that this one says counts."""
        return max(self._list_lives().values(), default=0) > self._life

    def append(self, judged: Iterable[verdicts.Verdict]) -> None:
        """Add lines. Raises OSError: they cannot be written; nothing of them is left."""
        verdicts.append(self._file, judged, self._fence)
