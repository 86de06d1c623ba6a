"""Which coroutines and generators were suspended while other ranges began on their track.

What begins while a body runs is inside of it, and so deeper. One that is no deeper began while it was suspended.
"""

from __future__ import annotations

from typing import Iterable

import polars as pl

# How the attributes of a row begin that stands for several calls.
COALESCED = '{"coalesced":'

_COLUMNS = ("process", "track", "depth", "start_ns", "busy_ns")


class Suspended:
    """Found by one reading of a run. Keeps about 200 bytes for each, and a number for each track and depth."""

    def __init__(self) -> None:
        self._found: set[tuple[int, int, int, int]] = set()
        # When the last range of each track and depth began, of those that have ended.
        self._latest: dict[tuple[int, int], dict[int, int]] = {}

    @classmethod
    def of(cls, batches: Iterable[tuple[pl.DataFrame, pl.DataFrame]], only: pl.Expr | None = None) -> Suspended:
        """All of `Run.batches()` that have ended; of these ranges alone, where only some are looked at."""
        suspended = cls()
        for ranges, _ in batches:
            suspended.learn(ranges if only is None else ranges.filter(only))
        return suspended

    def learn(self, ranges: pl.DataFrame) -> None:
        """Take the next ranges, in the order of their ends."""
        is_coalesced = pl.col("attributes").str.starts_with(COALESCED).fill_null(False)
        ended = ranges.filter(~pl.col("open") & ~is_coalesced)
        if ended["busy_ns"].null_count() == ended.height:
            last = ended.group_by("process", "track", "depth").agg(pl.col("start_ns").max())
            for process, track, depth, start_ns in last.iter_rows():
                self._begun(self._latest.setdefault((process, track), {}), depth, start_ns)
            return
        for process, track, depth, start_ns, busy_ns in zip(*(ended[name].to_list() for name in _COLUMNS)):
            if busy_ns is not None:
                self.see(process, track, depth, start_ns)
            self._begun(self._latest.setdefault((process, track), {}), depth, start_ns)

    def _begun(self, latest: dict[int, int], depth: int, start_ns: int) -> None:
        if start_ns > latest.get(depth, start_ns - 1):
            latest[depth] = start_ns

    def see(self, process: int, track: int, depth: int, start_ns: int) -> None:
        """Judge one that ends now, or is open when all that have ended are known."""
        latest = self._latest.get((process, track), {})
        if any(depth >= other and since > start_ns for other, since in latest.items()):
            self._found.add((process, track, depth, start_ns))

    def has(self, process: int, track: int, depth: int, start_ns: int) -> bool:
        """Was this one?"""
        return (process, track, depth, start_ns) in self._found
