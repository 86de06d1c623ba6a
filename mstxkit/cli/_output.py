"""A command's output file or folder: made beside its place and moved there whole, so that nobody sees half of it."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from ..errors import MstxkitError

# In each folder that a command made: the next one may replace it.
MADE_BY_US = ".made_by_mstxkit"


@contextmanager
def write_whole(target: Path, is_folder: bool = False) -> Iterator[Path]:
    """A draft to be written in the body. It becomes `target` when the body ends well, else it is gone, also by Ctrl-C.

    A folder of that name is replaced only if it is empty or was made this way; a file always, as `>` does.
    Raises: MstxkitError where it cannot be written, or is something that must not be replaced.
    """
    if not is_folder:
        check_file(target)
    elif target.is_symlink() or (target.exists() and not target.is_dir()):
        raise MstxkitError(f"{target} is no folder; give the name of one, new or empty")
    elif target.is_dir() and any(target.iterdir()) and not (target / MADE_BY_US).exists():
        raise MstxkitError(f"{target} holds other files; give the name of a folder that is new or empty")
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        if is_folder:
            draft.mkdir()
            draft.chmod(0o750)  # as of a run, whatever the umask
        yield draft
        if is_folder:
            (draft / MADE_BY_US).touch(0o640)
            _replace_folder(draft, target)
        else:
            os.replace(draft, target)
    except OSError as exc:
        raise MstxkitError(f"{target} cannot be written: {exc.strerror or exc}") from exc
    finally:
        _remove_path(draft)


def check_file(target: Path) -> None:
    """Before anything long is done for it. Raises: MstxkitError where there can be no file of this name."""
    if target.is_dir():
        raise MstxkitError(f"{target} is a folder; give the name of a file")
    if target.exists() and not target.is_file():  # a device, say: in its place there would be a file from then on
        raise MstxkitError(f"{target} is no file, and would be replaced; give the name of one")
    if not target.parent.is_dir():
        raise MstxkitError(f"{target} cannot be written: there is no folder {target.parent}")


def _replace_folder(draft: Path, target: Path) -> None:
    """What was there before is there again where this is interrupted between the two moves."""
    before = draft.with_name(f"{draft.name}.before")
    try:
        if target.is_dir():
            os.rename(target, before)
        os.rename(draft, target)
    finally:
        if before.is_dir() and not target.exists():
            os.rename(before, target)
        _remove_path(before)


def _remove_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):  # where nothing may be written, what is not there cannot be removed either
            path.unlink()
