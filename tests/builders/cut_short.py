"""A kill in the middle of something, without a process: after so many calls of one step nothing more happens. And a
folder that cannot be opened for a moment.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest

from mstxkit.store import documents


@contextmanager
def cut_short(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int) -> Iterator[None]:
    """Inside of this the call of `owner.name` after the first `count` raises KeyboardInterrupt, and all later ones."""
    step, calls = getattr(owner, name), []

    def cut(*args: Any, **kwargs: Any) -> Any:
        if len(calls) == count:
            raise KeyboardInterrupt
        calls.append(1)
        return step(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, cut)
        yield


@contextmanager
def stale_once(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int) -> Iterator[None]:
    """Inside of this a folder cannot be opened once, after `count` times: as its file server is started anew."""
    opened, calls = documents.open_folder, []

    def open_folder(path: str | os.PathLike[str], is_private: bool = False) -> int:
        if os.fspath(path) == str(folder):
            calls.append(1)
            if len(calls) == count + 1:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(folder))
        return opened(path, is_private)

    with monkeypatch.context() as patched:
        patched.setattr(documents, "open_folder", open_folder)
        yield
