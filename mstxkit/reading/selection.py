"""What of a run is asked for: ranks, steps, a stretch of time, stages. What lies outside is not read where that can be
told from an index.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Iterable, NamedTuple, Sequence, Union

import numpy as np
import polars as pl

from .. import stages as stage_keys
from ..errors import ReadError
from ..store.records import STEP_MAX
from ..store.values import list_of
from .decode import U16, U32, Bits
from .processes import BlockRef, Process

Numbers = Union[int, Iterable[int], None]
Moment = Union[int, datetime, None]


class Selection(NamedTuple):
    """What is asked for; None asks for all. Times are ns on the run's wall clock; a range that reaches into the time
    from `since_ns` to before `until_ns` is part of it.
    """

    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    stages: frozenset[str] | None = None

    def may_hold(self, ref: BlockRef, process: Process) -> bool:
        """Can any range of a block be asked for, by what its index says? One that does not say so may."""
        extent = list_of(ref.meta.get("extent"))
        if len(extent) != 4 or not all(isinstance(value, int) and abs(value) < 1 << 62 for value in extent):
            return True
        first, last, first_step, last_step = extent
        in_steps = self.steps is None or self.meets_steps(first_step, last_step)
        in_stages = self.stages is None or any(map(self._is_asked_for, list_of(ref.meta.get("stages"))))
        if not (in_steps and in_stages and self.has_time):
            return in_steps and in_stages
        begin, end = process.clock.to_monotonic(np.array([first, last], dtype=np.int64)) + np.int64(process.offset_ns)
        return bool(self.in_time(np.array([begin]), np.array([end - begin]))[0])

    def meets_steps(self, first: int, last: int) -> bool:
        """Is any of the steps from the first to the last asked for? Only where steps are."""
        assert self.steps is not None
        if last - first < len(self.steps):
            return any(step in self.steps for step in range(first, last + 1))
        return any(first <= step <= last for step in self.steps)

    @property
    def has_time(self) -> bool:
        """Is a stretch of time asked for?"""
        return self.since_ns is not None or self.until_ns is not None

    def in_time(self, start_ns: Any, duration_ns: Any) -> Bits:
        """Which of these ranges reach into it; of a negative duration, open ones, all that began before its end."""
        chosen = np.ones(len(start_ns), dtype=bool)
        if self.since_ns is not None:
            chosen &= (duration_ns < 0) | (start_ns + duration_ns >= self.since_ns)
        if self.until_ns is not None:
            chosen &= start_ns < self.until_ns
        return chosen

    def in_steps(self, step: U32) -> Bits:
        """Which of these steps are asked for."""
        assert self.steps is not None
        if len(self.steps) == 1:
            return np.asarray(step == np.uint32(next(iter(self.steps))))
        return np.isin(step, np.fromiter(self.steps, dtype=np.uint32, count=len(self.steps)))

    def in_stages(self, stage: U16, key_of: dict[int, str]) -> Bits:
        """Which of these stages of a block are asked for."""
        assert self.stages is not None
        return np.isin(stage, [number for number, key in key_of.items() if self._is_asked_for(key)])

    def rows(self, compact: pl.DataFrame, stages: Sequence[str | None]) -> Any:
        """Which rows with codes in place of texts are asked for: one truth a row.
        `stages`: what the codes of stages stand for.
        """
        wanted = np.ones(compact.height, dtype=bool)
        if self.has_time:
            wanted &= self.in_time(compact["start_ns"].to_numpy(), compact["duration_ns"].to_numpy())
        if self.steps is not None:
            wanted &= self.in_steps(compact["step"].to_numpy())
        if self.stages is not None:
            named = {code: stage for code, stage in enumerate(stages) if stage is not None}
            wanted &= self.in_stages(compact["stage"].to_numpy(), named)
        return wanted

    def of_table(self, table: pl.DataFrame) -> pl.DataFrame:
        """What is asked for of a table of ranks, steps and stages, by whatever names its stages go."""
        stages = None if self.stages is None else filter(self._is_asked_for, table["stage"].unique().to_list())
        for name, values in (("rank", self.ranks), ("step", self.steps), ("stage", stages)):
            if values is not None:
                table = table.filter(pl.col(name).is_in(list(values)))
        return table

    def _is_asked_for(self, stage: Any) -> bool:
        assert self.stages is not None
        return isinstance(stage, str) and stage_keys.canonical_key(stage) in self.stages

    def has(self, step: int, stage: str | None) -> bool:
        """Is a range in this step and stage asked for? `records.NO_STEP` is none."""
        return (self.steps is None or step in self.steps) and (self.stages is None or self._is_asked_for(stage))

    def has_word(self, rank: int | None, stage: str | None, time_ns: int) -> bool:
        """Is what was said then of a rank and a stage asked for? What is of no rank or stage alone is of every one."""
        return (
            (self.ranks is None or rank is None or rank in self.ranks)
            and (self.stages is None or not stage or self._is_asked_for(stage))
            and (self.since_ns is None or time_ns >= self.since_ns)
            and (self.until_ns is None or time_ns < self.until_ns)
        )


EVERYTHING = Selection()


def make_selection(
    ranks: Numbers, steps: Numbers, since: Moment, until: Moment, stages: str | Iterable[str] | None
) -> Selection:
    """Checked, from what a user gave `open_run`. Raises ReadError: one of them is not what it should be."""
    keys: list[Any] | None = None if stages is None else [stages] if isinstance(stages, str) else list(stages)
    if wrong := [key for key in keys or () if not isinstance(key, str)]:
        raise ReadError(f"open_run(stages=…): {wrong[0]!r} is no name of a stage")
    return Selection(
        _read_numbers("ranks", ranks, (1 << 31) - 1), _read_numbers("steps", steps, STEP_MAX),
        _read_moment("since", since),
        _read_moment("until", until), None if keys is None else frozenset(map(stage_keys.canonical_key, keys)),
    )  # fmt: skip


def _read_numbers(name: str, asked: Numbers, largest: int) -> frozenset[int] | None:
    if asked is None:
        return None
    try:
        numbers = frozenset([asked] if isinstance(asked, int) else asked)
    except TypeError:
        numbers = frozenset([None])  # type: ignore[list-item]
    for value in numbers:
        if type(value) is not int or not 0 <= value <= largest:
            raise ReadError(f"open_run({name}={asked!r}): {name} are a number, or several, from 0 to {largest}")
    return numbers


def _read_moment(name: str, asked: Moment) -> int | None:
    if asked is None or type(asked) is int:
        return asked
    if isinstance(asked, datetime) and asked.tzinfo is not None:
        seconds, rest = divmod(asked.timestamp(), 1)
        return int(seconds) * 1_000_000_000 + round(rest * 1e6) * 1000
    allowed = "whole nanoseconds since 1970, or a datetime with a time zone"
    raise ReadError(f"open_run({name}={asked!r}): a time is {allowed}")
