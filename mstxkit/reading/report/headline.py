"""What is said first of a run, by whatever shows it: what weighs most, what it costs, why, and what to do next."""

from __future__ import annotations

from typing import Any, Sequence

from rich.console import RenderableType
from rich.text import Text

from . import matters, next_step
from .account import Account
from .next_step import Possible
from .number_table import below
from .sentences import begun

_OTHERS = 4


def headline(account: Account, now: Possible | None = None) -> dict[str, Any]:
    """`headline` and `matters`, plain values: all that is the matter as it weighs, and the first with its `verdict`, a
    whole sentence. `now`: what can be done with the run; None: what its judge advises.
    """
    every = matters.weighed(account)
    if now is not None:
        every = [matter._replace(next=next_step.command(account, matter, now)) for matter in every]
    plain = [{**matter._asdict(), "ranks": list(matter.ranks)} for matter in every]
    return {"headline": {**plain[0], "verdict": begun(plain[0]["words"]) + "."}, "matters": plain}


def lines(matters: Sequence[dict[str, Any]], everything: bool = False) -> list[RenderableType]:
    """The first lines of a terminal: the first one with why and what next, others in a line each."""
    first, *others = matters
    shown_lines: list[RenderableType] = [_line("Verdict", first), *_below(first, everything)]
    for other in others if everything else others[:_OTHERS]:
        shown_lines += [_line("also", other), *(_below(other, True) if everything else ())]
    if len(others) > _OTHERS and not everything:
        shown_lines.append(Text(f"… and {len(others) - _OTHERS} more (--all)", "dim"))
    return shown_lines


def _line(word: str, matter: dict[str, Any]) -> Text:
    head = Text.assemble((f"{word}: ", "bold"), (matter["words"], "bold red" if matter["blames"] else "bold"))
    return head.append(f": {matter['cost']}." if matter["cost"] else ".")


def _below(matter: dict[str, Any], everything: bool) -> list[RenderableType]:
    keys = ("why", "profile", "advice", "next", *(["evidence"] if everything else []))
    return below([({"advice": "do"}.get(key, key), matter[key]) for key in keys])
