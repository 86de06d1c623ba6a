"""Profiles that were asked for and of which nothing came: a capture that recorded nothing is a failure that is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from ...store.report import EXPIRED, FAILED, REFUSED
from .escape import SENTENCE_LIMIT, for_terminal, shown

if TYPE_CHECKING:
    from ..run import Run

_SHOWN, _RANKS_SHOWN = 5, 8


def summarise(run: Run) -> list[dict[str, Any]]:
    """What failed, was refused or has expired, the newest first: `request`, `stage`, `state`, `reason`, `ranks`."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for row in run.escalations().iter_rows(named=True):
        if row["state"] in (FAILED, REFUSED, EXPIRED):
            key = row["request"], row["stage"], row["state"], row["reason"]
            alike.setdefault(key, []).append(row["rank"])
    named = ("request", "stage", "state", "reason")
    return [{**dict(zip(named, key)), "ranks": ranks} for key, ranks in reversed(alike.items())]


def lines(failures: list[dict[str, Any]]) -> list[RenderableType]:
    """A line for each."""
    shown_lines: list[RenderableType] = [_line(failure) for failure in failures[:_SHOWN]]
    if (more := len(failures) - _SHOWN) > 0:
        shown_lines.append(Text(f"… and {more} more profiles that did not come (--json lists all)", "dim"))
    return [Text(), *shown_lines] if shown_lines else []


def _line(failure: dict[str, Any]) -> Text:
    ranks = [rank for rank in failure["ranks"] if rank is not None]
    more = f" and {len(ranks) - _RANKS_SHOWN} more" if len(ranks) > _RANKS_SHOWN else ""
    who = f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:_RANKS_SHOWN]))}{more}" if ranks else ""
    what = f"Profile of {shown(failure['stage'] or '?')}{who}"
    reason = for_terminal(failure["reason"] or "no reason was given", SENTENCE_LIMIT)
    style = "bold red" if failure["state"] == FAILED else "yellow"
    return Text.assemble((f"{what} {failure['state']}: ", style), f"{reason} (request {shown(failure['request'])})")
