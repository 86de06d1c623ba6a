"""Tables of what was recorded, as it was: `Run.ranges()`, `Run.marks()` and `Run.tracks()`."""

from __future__ import annotations

from typing import Iterable

import polars as pl

from ...store.dataset import MARKS, RANGES
from .. import frames
from ..processes import rank_of
from ..run_files import RunFiles


def ranges(files: RunFiles, attributes: bool | Iterable[str]) -> pl.DataFrame:
    """Every range, then those that are open."""
    need = frames.need_of(attributes)
    pieces = list(files.pieces(need=need, kinds=(RANGES,)))  # all of them first: only then every text is known
    finisher = files.finisher()
    return frames.together([finisher.ranges(pieces.pop(0), need=need) for _ in range(len(pieces))])


def marks(files: RunFiles, attributes: bool | Iterable[str]) -> pl.DataFrame:
    """Every mark."""
    need = frames.need_of(attributes)
    marked = frames.together([frames.only_marks(piece) for piece in files.pieces(need=need, kinds=(MARKS,))])
    return files.finisher().marks(marked, need=need)


def tracks(files: RunFiles) -> pl.DataFrame:
    """The tracks of each process."""
    files.learn_tracks()
    rows = [
        (*who, track, text.thread & (1 << 63) - 1, text.is_task, text.name or None, text.is_shared)
        for who, texts in (((p.index, rank_of(p), p.host, p.pid), p.texts) for p in files.processes)
        for track, text in sorted(texts.tracks.items())
    ]
    return pl.DataFrame(rows, schema=frames.TRACK_SCHEMA, orient="row")
