"""Which steps and stages a run has, mostly without reading a row of it: the indexes of sealed files say so."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..store.records import NO_STEP
from ..store.values import list_of
from .processes import BlockRef
from .rows import DecodedBlock, Source
from .vocabulary import UNKNOWN_TEXT


class Reach(NamedTuple):
    """The steps from the first to the last, None where nothing is in one; the keys of the stages."""

    first_step: int | None
    last_step: int | None
    stages: frozenset[str]

    def and_also(self, other: Reach) -> Reach:
        """Both together."""
        steps = [step for reach in (self, other) for step in reach[:2] if step is not None]
        return Reach(min(steps, default=None), max(steps, default=None), self.stages | other.stages)


NOTHING = Reach(None, None, frozenset())


def said_of(source: Source) -> Reach | None:
    """What an index says of a block; None where it does not, as of a live bank."""
    if not isinstance(source, BlockRef):
        return None
    extent, stages = list_of(source.meta.get("extent")), list_of(source.meta.get("stages"))
    if len(extent) != 4 or not all(isinstance(value, int) for value in extent):
        return None
    first, last = extent[2:]
    own = frozenset(stage for stage in stages if isinstance(stage, str))
    if 0 <= first <= last < NO_STEP:
        return Reach(first, last, own)
    return Reach(None, None, own) if first == NO_STEP or last < first else None


def read_from(block: DecodedBlock) -> Reach:
    """What its rows say."""
    steps = block.columns.step[block.columns.step != NO_STEP]
    numbers = np.unique(block.columns.stage).tolist()
    stages = frozenset(block.texts.stages.get(number, UNKNOWN_TEXT) for number in numbers if number)
    return Reach(int(steps.min()), int(steps.max()), stages) if len(steps) else Reach(None, None, stages)
