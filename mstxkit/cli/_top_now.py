"""What ranks do at this moment, as `mstxkit top` shows it: a line each; of many, those that do the same together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Sequence

from ..judging.sight import Judges, Sighting
from ..reading.report.escape import shown
from ..reading.report.units import counted, spans
from ..store.values import grouped
from ..store.whereabouts import Whereabouts, span
from ._top_paper import Paper, fitted, line_of

if TYPE_CHECKING:
    from rich.text import Text

RANKS_AT_MOST = 16
_STALE_S, _WIDEST = 15.0, 32


def of_ranks(sighting: Sighting, paper: Paper) -> Iterator[Text]:
    """A line a rank; of more than 16, those that do the same together."""
    if sighting.by == Judges.OVER:
        return
    ranks = [where for where in sighting.where if where.is_at_work]
    if not ranks:
        return
    from rich.cells import cell_len

    ranks.sort(key=lambda where: (where.rank is None, where.rank or 0, where.role, where.called))
    yield line_of("now", "bold").append(f"{paper.dot}as their hosts said a few seconds ago", "dim not bold")
    if len(ranks) <= RANKS_AT_MOST:
        groups = [[rank] for rank in ranks]
    else:
        groups = sorted(grouped(ranks, lambda rank: (rank.role, rank.stage or "")).values(), key=len)
    shown_groups = groups[:RANKS_AT_MOST]
    rows = [[_name_group(group), shown(group[0].role), _name_steps(group)] for group in shown_groups]
    widths = [min(_WIDEST, max(cell_len(row[column]) for row in rows)) for column in range(3)]
    for row, group in zip(rows, shown_groups):
        yield _of_group("  ".join(fitted(text, width) for text, width in zip(row, widths) if width), group)
    if len(groups) > RANKS_AT_MOST:
        yield line_of(f"  and {counted(sum(map(len, groups[RANKS_AT_MOST:])), 'more rank')} (--json)", "dim")


def _name_steps(group: Sequence[Whereabouts]) -> str:
    steps = sorted({where.step for where in group if where.step is not None})
    return "" if not steps else f"step {steps[0]:,}" + (f" to {steps[-1]:,}" if len(steps) > 1 else "")


def _of_group(begin: str, group: Sequence[Whereabouts]) -> Text:
    longest_s = max(where.in_stage_s or 0.0 for where in group)
    first = group[0]
    up_to = "up to " if len(group) > 1 else ""
    stage = f"{shown(first.stage)} for {up_to}{span(longest_s)}" if first.stage else "between two stages"
    oldest = max((where.age for where in group), key=lambda age: age.seconds)
    line = line_of(f"  {begin}  {stage}")
    return line.append(f"  seen {oldest.words}", "bold yellow") if oldest.seconds > _STALE_S else line


def _name_group(group: Sequence[Whereabouts]) -> str:
    if len(group) == 1:
        return group[0].called
    if any(where.rank is None for where in group):
        return f"{len(group):,} processes"
    return f"{len(group):,} ranks: {spans(where.rank or 0 for where in group)}"
