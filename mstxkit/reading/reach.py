"""Which steps and stages a run has, mostly without reading a row of it: the indexes of sealed files say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, NamedTuple

from ..store.records import NO_STEP
from ..store.values import list_of
from .rows import Need

if TYPE_CHECKING:
    from .processes import BlockRef
    from .run_files import RunFiles


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


def of_blocks(processes: Iterable[Iterable[BlockRef]]) -> tuple[Reach, bool]:
    """What indexes say, and whether each block has said it."""
    reach, is_whole = NOTHING, True
    for ref in (ref for blocks in processes for ref in blocks):
        extent, stages = list_of(ref.meta.get("extent")), list_of(ref.meta.get("stages"))
        if len(extent) != 4 or not all(isinstance(value, int) for value in extent):
            is_whole = False
            continue
        first, last = extent[2:]
        is_known = 0 <= first <= last < NO_STEP
        is_whole = is_whole and (is_known or first == NO_STEP or last < first)
        own = frozenset(stage for stage in stages if isinstance(stage, str))
        reach = reach.and_also(Reach(first, last, own) if is_known else Reach(None, None, own))
    return reach, is_whole


def of_rows(run: RunFiles) -> Reach:
    """What the rows say."""
    reach = NOTHING
    for piece in run.coded(Need(as_json=False)):
        steps = piece["step"].filter(piece["step"] != NO_STEP)
        bounds = [int(step) for step in (steps.to_numpy().min(), steps.to_numpy().max())] if len(steps) else []
        reach = reach.and_also(Reach(bounds[0], bounds[1], frozenset()) if bounds else NOTHING)
    return reach.and_also(Reach(None, None, frozenset(filter(None, run.vocabulary.stages))))
