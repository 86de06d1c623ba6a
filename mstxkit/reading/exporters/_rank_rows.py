"""A run's rows for tools that want one file for each rank: rank by rank, with the thread, name and step of each."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from ... import stages
from ...store.records import NO_STEP
from ..frames import NAMED
from ..lines import OPEN_NS
from ..rows import IS_MARK, WAITS_FOR, Need
from ..run import Run
from . import _rl_names
from ._even import runs_of
from ._nesting import TRACK_BITS
from ._rank_files import RankFile
from ._survey import COALESCED

# Threads and tasks that nothing describes, and tasks: above all numbers that a system gives.
_TASKS = 1 << 30


class RankRows(NamedTuple):
    """Rows of one process, in the order of their ends. Times in ns; `name` and `domain` are numbers in `texts`."""

    process: int
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    is_mark: npt.NDArray[np.bool_]
    name: npt.NDArray[np.int64]
    domain: npt.NDArray[np.int64]
    thread: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]


class RankRowReader:
    """Reads a run rank by rank. `texts` is what the numbers of names and domains stand for, and only grows; `shown` are
    stages and what their ranges are called.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        patches = run.patches()
        self._names = _rl_names.names_of(patches.filter(patches["state"] == "applied")["framework"].unique().to_list())
        # Of each lane the number of its thread; each task has one of its own.
        self._threads: dict[int, int] = {
            row["process"] << TRACK_BITS | row["track"]: row["thread"] & 0xFFFFFFFF
            for row in run.tracks().iter_rows(named=True)
            if not row["is_task"]
        }
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._by_key: dict[int, tuple[int, int]] = {}
        self.shown: dict[str, str] = {}

    def rows(self) -> Iterator[RankRows]:
        """All that has ended, process by process."""
        for piece in self._run.files.coded(Need(as_json=False, names=(COALESCED,)), backwards=False):
            process = piece["process"].to_numpy()
            for begin, end in runs_of(process):
                yield self._of_process(int(process[begin]), piece.slice(begin, end - begin))

    def open_marks(self) -> Iterator[RankRows]:
        """What is open, or was when its process ended, as a mark where it began: a range without an end is none."""
        for row in self._run.open_ranges().iter_rows(named=True):
            lane = row["process"] << TRACK_BITS | row["track"]
            at, step = row["start_ns"], NO_STEP if row["step"] is None else row["step"]
            numbers = (self._number(f"open: {row['name']}"), self._number(row["domain"]), self._thread(lane), step)
            columns = (np.array([value], dtype=np.int64) for value in numbers)
            yield RankRows(row["process"], np.array([at]), np.array([at]), np.array([True]), *columns)

    def _of_process(self, process: int, piece: pl.DataFrame) -> RankRows:
        start, duration = piece["start_ns"].to_numpy(), piece["duration_ns"].to_numpy()
        is_mark = piece["flags"].to_numpy() & IS_MARK != 0
        track, places = np.unique(piece["track"].to_numpy(), return_inverse=True)
        threads = np.array([self._thread(process << TRACK_BITS | number) for number in track.tolist()], dtype=np.int64)
        site, stage, step = (piece[name].to_numpy().astype(np.int64) for name in ("site", "stage", "step"))
        is_own = ~is_mark & piece[NAMED + WAITS_FOR].is_null().to_numpy()
        is_many = piece[NAMED + COALESCED].is_not_null().to_numpy()
        keys, texts = np.unique(site << 16 | stage << 2 | is_own << 1 | is_many, return_inverse=True)
        name, domain = np.array([self._pair_of(key) for key in keys.tolist()], dtype=np.int64).reshape(-1, 2)[texts].T
        return RankRows(process, start, start + np.maximum(duration, 0), is_mark, name, domain, threads[places], step)

    def _pair_of(self, key: int) -> tuple[int, int]:
        if key not in self._by_key:
            vocabulary = self._run.files.vocabulary
            site, stage = vocabulary.sites[key >> 16], vocabulary.stages[key >> 2 & (1 << 14) - 1]
            name = site.name
            if site.is_stage and stage is not None and key & 2:
                name = self._names.get(stages.canonical_key(stage), name)
                self.shown[stage] = name
            self._by_key[key] = self._number(name + " (coalesced)" * (key & 1)), self._number(site.domain)
        return self._by_key[key]

    def _number(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def _thread(self, lane: int) -> int:
        return self._threads.get(lane, _TASKS + (lane & (1 << TRACK_BITS) - 1))


class StepTimes:
    """When the steps of a file began: in each attempt by the first of its processes that has any.
    `attempts`: the attempt of each process of the run.
    """

    def __init__(self, file: RankFile, attempts: Sequence[int]) -> None:
        self.file, self._attempts = file, attempts
        self._seen: list[pl.DataFrame] = []

    def see(self, rows: RankRows) -> None:
        """Rows of one of its processes."""
        columns = pl.DataFrame({name: getattr(rows, name) for name in ("step", "start", "end", "is_mark")})
        in_step = pl.when((pl.col("step") != NO_STEP) & ~pl.col("is_mark")).then("step").alias("step")
        whose = {"attempt": pl.lit(self._attempts[rows.process]), "process": pl.lit(rows.process)}
        self._seen.append(columns.group_by(in_step).agg(pl.col("start").min(), pl.col("end").max(), **whose))

    def windows(self) -> list[tuple[int, int, int]]:
        """Of each step its number, begin and end, by begin. A step that was done again is that of its last attempt.

        A step ends just before the next one begins; the last with its attempt, or where the next attempt begins.
        """
        if not self._seen:
            return []
        seen = pl.concat(self._seen)
        steps = seen.drop_nulls("step").filter(pl.col("process") == pl.col("process").first().over("attempt"))
        begun = steps.group_by("attempt", "step").agg(pl.col("start").min()).sort("attempt", "start", "step")
        last_ns = dict(seen.group_by("attempt").agg(pl.col("end").max()).iter_rows())
        windows: dict[int, tuple[int, int, int]] = {}
        until_ns = OPEN_NS
        for own in reversed(begun.partition_by("attempt", maintain_order=True)):
            starts = own["start"].to_list()
            ends = [*(at - 1 for at in starts[1:]), min(last_ns[own["attempt"][0]], until_ns)]
            of_attempt = {step: (step, at, max(at, end)) for step, at, end in zip(own["step"], starts, ends)}
            windows, until_ns = {**of_attempt, **windows}, starts[0] - 1
        return sorted(windows.values(), key=lambda window: window[1])
